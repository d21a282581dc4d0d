"""Wording of an outcome: whether text and registry entry say what the statement says.

What is signed, and computed again, is ``statement.json``. What people read is its text, and what a
registry takes is ``statement.yaml``. Both are written again here from the values: whoever hands an
outcome on, or signs a dossier of it, cannot say in words what no party has signed.

In the entry a person fills in blanks. What stands there is that person's; all else is as it was, to
the letter (`entry`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from fedpriv import __version__
from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.privacy.statement import to_registry_yaml, to_text
from fedpriv.privacy.statement.reading import read_values
from fedpriv.privacy.statement.registry import BLANK
from fedpriv.simulations.run.statement.entry import is_filled_in, read_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.statement import Statement

_DESCRIBED = "deployment"
"""The part of an entry that is about the run; the rest is for the registry to sort by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The forms of a statement that people read, as they must be.

    Attributes:
        statement: What they are of.
        vouched: Whether all of the text follows from the statement; a table of coefficients follows
            from ``result.json``, which no party signs.
    """

    statement: Statement
    vouched: bool

    @classmethod
    def of(cls, values: Mapping[str, Any], *, result: Mapping[str, Any]) -> Self:
        """Of the values of a statement, and of the result beside it."""
        released = result.get("coefficients")
        lines = () if released is None else CoefficientTable.from_dict(released).lines()
        statement = read_values(values, coefficients=tuple(lines))
        return cls(statement=statement, vouched=released is None)

    @property
    def elsewhere(self) -> str:
        """A sentence, if another version of fedpriv wrote them: it may have other words."""
        version = self.statement.version
        if version == __version__:
            return ""
        return (
            f" fedpriv {version} wrote it, and this is {__version__}, which may use other words: "
            "verify it with that one."
        )

    def of_text(self, text: bytes) -> str:
        """What is wrong with ``statement.txt``; empty if nothing is."""
        return "" if to_text(self.statement).encode() == text else "it says else"

    def of_entry(self, text: bytes) -> str:
        """What is wrong with ``statement.yaml``; empty if nothing is.

        Raises:
            ValueError: It cannot be read.
        """
        written, stated = to_registry_yaml(self.statement), read_entry(text)
        own = read_entry(written.encode())
        if place := _departs(own[_DESCRIBED], stated[_DESCRIBED], _DESCRIBED):
            return f"{place} is another"
        return "" if is_filled_in(text.decode(), own=written) else "it says more, or less"


def _departs(own: Any, stated: Any, place: str) -> str:
    """Where an entry is not what it must be, but for blanks that were filled in; empty if so."""
    match own, stated:
        case dict(), dict() if own.keys() == stated.keys():
            parts = (_departs(own[key], stated[key], f"{place}.{key}") for key in own)
            return next(filter(None, parts), "")
        case [blank], list() if blank == BLANK:
            return "" if all(isinstance(each, str) for each in stated) else place
        case str(), str() if own == BLANK:
            return ""
    return "" if own == stated and type(own) is type(stated) else place
