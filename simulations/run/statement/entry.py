"""Entry for a registry (YAML) as others hand it on: read strictly, and held against its own text.

People read an entry as text, and registries by other readers of YAML. So it is not enough that the
values are right as we read them: a key may come twice, of which readers take one or the other, and
comments, which no reader of values sees, may say anything. An entry is what fedpriv writes of the
statement, letter by letter, but for the blanks that a person fills in, and for the three lines by
which a registry sorts it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from fedpriv.privacy.statement.registry import BLANK

if TYPE_CHECKING:
    from collections.abc import Hashable

_MOST_BYTES = 1 << 20  # which is read slowly
_SORTED_BY = re.compile(r"^(url_slug|status|tier): [^\n#]*$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*#", re.MULTILINE)


def read_entry(data: bytes) -> dict[str, Any]:
    """The values of an entry.

    Raises:
        ValueError: It is none, is too long, has a key twice, or refers to a part of itself.
    """
    if len(data) > _MOST_BYTES:
        raise ValueError(f"statement.yaml must have at most {_MOST_BYTES} bytes, got {len(data)}.")
    try:
        text = data.decode()
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("statement.yaml must have no aliases: they may stand for any length.")
        values = yaml.load(text, Loader=_EachOnce)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        values = None
    if not isinstance(values, dict) or "deployment" not in values:
        raise ValueError("statement.yaml is no registry entry: the file was changed or damaged.")
    return values


def is_filled_in(text: str, *, own: str) -> bool:
    """Whether a text is that of an ``own`` entry, with something in the place of its blanks.

    A text of several lines in a blank goes on further in than the blank's own line, a list with
    further items: neither ends the blank and goes on with other keys.
    """
    first, *parts = _SORTED_BY.sub(r"\1", own).split(BLANK)
    text = _SORTED_BY.sub(r"\1", text.replace("\r\n", "\n"), count=3)
    if not text.startswith(first):
        return False
    before, end = first, len(first)
    for number, part in enumerate(parts, start=1):
        last = number == len(parts)
        found = len(text) - len(part) if last else text.find(part, end + 1)
        if found <= end or not text.startswith(part, found):
            return False
        if not _fits(text[end:found], before.rpartition("\n")[2]):
            return False
        before, end = part, found + len(part)
    return end == len(text)


def _fits(filling: str, begun: str) -> bool:
    """Whether all of what fills a blank is in its place; ``begun`` is its line up to there."""
    margin = " " * (len(begun) - len(begun.lstrip()))
    inside = (f"{margin} ", f"{margin}- ") if begun.strip() == "-" else (f"{margin} ",)
    later = [line for line in filling.split("\n")[1:] if line.strip()]
    return all(line.startswith(inside) for line in later) and not _COMMENT.search(filling)


class _EachOnce(yaml.SafeLoader):
    """Reads no table that has a key twice, or takes in another one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A table whose keys are texts, each once."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(node.value) or "<<" in keys:
            raise yaml.constructor.ConstructorError(
                None, None, "a key comes twice", node.start_mark
            )
        return super().construct_mapping(node, deep)
