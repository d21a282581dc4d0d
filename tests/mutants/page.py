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

A test proves something only if it fails when the product is wrong. So the product is broken on
purpose in {count} places, one at a time, each in a copy of the source: a sensitivity is halved, a
share of noise left out, a threshold lowered by one. For each copy, `make mutants` runs the tests
named here. All of them must fail there, and pass on the unchanged source. The target fails if a
mutant survives.

This shows that these errors would be found, not that there are no others. A mutant that makes no
difference that matters is *neutral*: its tests must pass, and the list says why.

The list is `tests/mutants/list.toml`, with one line per mutant: the file; the text to replace,
which must occur in it exactly once; the replacement; what that breaks; and the tests that must
fail. To keep the list true, a text that is no longer found is an error. Run
`python -m tests.mutants WORD` for the mutants whose line contains the word, and
`python -m tests.mutants --page` to write this page.
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
