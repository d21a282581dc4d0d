"""A mutant: one line of the product made wrong, and the tests that must notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("list.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A line of the list.

    Attributes:
        area: Of the product, as the page groups them.
        file: Whose text is changed, from the root of the repository.
        old: The text; it stands in the file exactly once.
        new: What replaces it.
        breaks: What goes wrong, in words.
        killed_by: Tests, as node ids or files below `tests`; each of them fails.
        neutral: Why nothing changes, for a mutant that must survive its tests; else empty.
        sample: Whether it is one of the few that run in `make test`.
    """

    area: str
    file: str
    old: str
    new: str
    breaks: str
    killed_by: tuple[str, ...]
    neutral: str = ""
    sample: bool = False

    def __post_init__(self) -> None:
        if self.old == self.new:
            raise ValueError(f"new must differ from old, got {self.new!r} for both ({self}).")
        if not self.killed_by:
            raise ValueError(f"killed_by must name a test, got none ({self}).")

    def __str__(self) -> str:
        return f"{self.file}: {self.breaks}"

    @property
    def tests(self) -> tuple[str, ...]:
        """What pytest is given."""
        return tuple(f"tests/{each}" for each in self.killed_by)

    def applied(self, source: str) -> str:
        """The source of the mutant.

        Raises:
            ValueError: If the text is not there, or more than once.
        """
        found = source.count(self.old)
        if found != 1:
            raise ValueError(
                f"old must occur exactly once in {self.file}, got {self.old!r}, which occurs "
                f"{found} times. Give more of the lines around it, or what stands there now."
            )
        return source.replace(self.old, self.new)


def read(path: Path = LIST) -> tuple[Mutant, ...]:
    """The mutants of a list, in its order."""
    areas = tomllib.loads(path.read_text())
    return tuple(
        Mutant(area=area, **{**line, "killed_by": tuple(line["killed_by"])})
        for area, lines in areas.items()
        for line in lines
    )


def stale(mutants: tuple[Mutant, ...], root: Path = ROOT) -> list[str]:
    """What of a list no longer fits the repository: texts, and tests, that are not there."""
    found = []
    for mutant in mutants:
        try:
            mutant.applied((root / mutant.file).read_text())
        except (OSError, ValueError) as error:
            found.append(f"{mutant}: {error}")
        for test in mutant.tests:
            path, *names = test.split("[")[0].split("::")
            text = (root / path).read_text() if (root / path).is_file() else ""
            if not text or any(f"def {name}(" not in text for name in names):
                found.append(f"{mutant}: there is no test {test}.")
    return found
