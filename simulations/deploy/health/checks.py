"""One check of `fedpriv doctor`: what was looked at, what was found, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Fault(ValueError):
    """A fault: what is wrong, and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: What was looked at.
        passed: Whether all is well.
        found: What was found, or what is wrong.
        remedy: What to do; empty if all is well.
    """

    name: str
    passed: bool
    found: str
    remedy: str = ""


Examination = tuple[str, "Callable[[], str]", str]
"""A name, what to do, and the remedy if it fails without saying one."""


def examined(examinations: Iterable[Examination]) -> tuple[Check, ...]:
    """Carry out all checks: one that fails does not prevent the others."""
    return tuple(_examine(name, look, remedy) for name, look, remedy in examinations)


def _examine(name: str, look: Callable[[], str], remedy: str) -> Check:
    try:
        return Check(name=name, passed=True, found=look())
    except Fault as fault:
        return Check(name=name, passed=False, found=str(fault), remedy=fault.remedy)
    except (ValueError, OSError, RuntimeError) as error:
        return Check(name=name, passed=False, found=str(error), remedy=remedy)
