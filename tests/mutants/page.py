"""The page about mutants, from their list: what was broken, and which test notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.mutants.mutant import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutants.mutant import Mutant

PAGE = ROOT / "docs" / "mutants.md"

_OPENING = """\
# Mutants: would a test notice?

Tests prove something only if they fail when the product is wrong. So {count} lines of it are made
wrong, one at a time, each in a copy of the source: a sensitivity halved, a share of noise left out,
a threshold lowered by one. `make mutants` runs on each copy the tests that are named here. All of
them must fail there, and pass on the source as it is; a mutant that survives fails the target.

This shows that these errors would be found. It does not show that there is no other. A mutant that
changes nothing which matters is *neutral*: its tests must pass, and the reason is given.

The list is `tests/mutants/list.toml`, one line a mutant: the file; the text, which stands there
exactly once; what replaces it; what that breaks; and the tests that must fail. A text that stands
in its file no longer is an error, so that the list stays true. `python -m tests.mutants WORD` runs
the mutants whose line has the word, and `python -m tests.mutants --page` writes this page.
"""


_HEAD = "| {} | in | {} |\n|---|---|---|\n"


def page(mutants: Iterable[Mutant]) -> str:
    """The page, in Markdown."""
    mutants = tuple(mutants)
    parts = [_OPENING.format(count=sum(not mutant.neutral for mutant in mutants))]
    for area in dict.fromkeys(mutant.area for mutant in mutants):
        rows = [_row(mutant) for mutant in mutants if mutant.area == area and not mutant.neutral]
        parts.append(
            f"\n## {area.capitalize()}\n\n| what is broken | in | found by |\n|---|---|---|\n"
        )
        parts.extend(rows)
    neutral = [mutant for mutant in mutants if mutant.neutral]
    if neutral:
        parts.append(
            "\n## Neutral\n\n| what is changed | in | why it does not matter |\n|---|---|---|\n"
        )
        parts.extend(f"| {each.breaks} | `{each.file}` | {each.neutral} |\n" for each in neutral)
    return "".join(parts)


def _row(mutant: Mutant) -> str:
    tests = "<br>".join(f"`{each}`" for each in mutant.tests)
    return f"| {mutant.breaks} | `{mutant.file}` | {tests} |\n"
