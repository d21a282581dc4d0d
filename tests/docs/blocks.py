"""Blocks of code in the pages, and the commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}

_FENCED = re.compile(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_COMMAND = re.compile(r"^(?:\w*\$ +)?((?:[A-Z_]+=\S+ )*fedpriv .*(?:\\\n.*)*)$", re.MULTILINE)
_INLINE = re.compile(r"`(fedpriv [^`\n]+)`")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of a page, by its language; what is indented has none."""

    page: str
    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Its `fedpriv` commands, as words, without what is set for their environment."""
        return [words(line) for line in _COMMAND.findall(self.text)]


def words(line: str) -> list[str]:
    """A command without `fedpriv` itself, its comment, and what stands before it."""
    split = shlex.split(line.replace("\\\n", " "), comments=True)
    return split[split.index("fedpriv") + 1 :]


def text_of(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


def fenced(page: str, language: str = "") -> list[Block]:
    """The fenced blocks of a page, of one language or of all; directives of the site are none."""
    return [
        Block(page=page, language=found, text=text)
        for found, text in _FENCED.findall(text_of(page))
        if found[:1].isalpha() and language in {"", found}
    ]


def all_commands() -> list[tuple[str, list[str]]]:
    """Every `fedpriv` command of every page: in blocks, indented, and within sentences."""
    named = []
    for page in PAGES:
        rest = _FENCED.sub("", text_of(page))
        lines = [
            re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in _INDENTED.findall(rest)
        ]
        blocks = [*fenced(page), *(Block(page=page, language="", text=text) for text in lines)]
        named += [(page, command) for block in blocks for command in block.commands]
        named += [(page, words(line)) for line in _INLINE.findall(rest)]
    return named
