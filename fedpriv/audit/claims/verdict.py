"""The verdict on a claim: sound, false, not proved, or not differentially private at all.

A claim is *false* if the true ε is known to be larger: where our number is exact, or by a pair of
neighbours that shows it. It is *not proved* if our best upper bound is larger, and the truth may
lie between: the assumptions of the claim do not hold for these settings, and a new proof would be
needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import isfinite
from typing import Any, ClassVar

from fedpriv._validate import require_choice, require_delta, require_positive
from fedpriv.privacy.rounding import rounded_up

SLACK = 1.005
"""Accountants differ by tenths of a percent: a claim that close below ours is not false."""

ADD_REMOVE, REPLACE_ONE, ZERO_OUT = "add-remove", "replace-one", "zero-out"
ADJACENCIES = (ADD_REMOVE, REPLACE_ONE, ZERO_OUT)
"""Zero-out: the contribution of one unit becomes zero; all counts and positions stay."""


class Outcome(StrEnum):
    """The possible outcomes for a claim."""

    SOUND = "sound"
    FALSE = "false"
    UNPROVED = "not proved"
    NOT_DP = "not DP"
    UNSTATED = "no claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        kind: Of the claim.
        outcome: Sound, false, or not DP at all; "no claim" where no ε was stated.
        claimed: ε as claimed; None where none was.
        epsilon: What is proved of these settings, an upper bound at ``delta``; None if no finite
            one is.
        at_least: A lower bound on the true ε; equal to ``epsilon`` where that is exact.
        delta: As claimed.
        adjacency: What neighbours differ by.
        unit: Whose data that is.
        method: How ``epsilon`` was computed.
        reason: Why, in a sentence or two.
        notes: Further assumptions of the guarantee.
        source: The source code examined, with its version; empty for a plain claim.
    """

    kind: str
    outcome: Outcome
    claimed: float | None
    epsilon: float | None
    at_least: float
    delta: float
    adjacency: str
    unit: str
    method: str
    reason: str
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claim is not false."""
        return self.outcome in (Outcome.SOUND, Outcome.UNSTATED)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self) | {"holds": self.holds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(ABC):
    """Settings of a system, with the guarantee that somebody claims for them.

    Attributes:
        epsilon: As claimed; None to ask what it is.
        delta: As claimed.
        adjacency: "add-remove", "replace-one" or "zero-out".
    """

    kind: ClassVar[str]
    about: ClassVar[str]
    source: ClassVar[str] = ""
    epsilon: float | None = None
    delta: float
    adjacency: str

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            require_positive(epsilon=self.epsilon)
        require_delta(delta=self.delta)
        require_choice(ADJACENCIES, adjacency=self.adjacency)

    @abstractmethod
    def judged(self) -> Verdict:
        """The verdict."""

    def verdict(
        self,
        epsilon: float | None,
        *,
        unit: str,
        method: str,
        reason: str,
        notes: tuple[str, ...] = (),
        at_least: float | None = None,
    ) -> Verdict:
        """A verdict by the ε that is proved; ``at_least`` is None where that is exact."""
        proved = epsilon if epsilon is not None and isfinite(epsilon) else None
        least = at_least if at_least is not None else proved or 0.0
        if self.epsilon is None:
            outcome = Outcome.UNSTATED
        elif proved is not None and proved <= self.epsilon * SLACK:
            outcome = Outcome.SOUND
        elif least > self.epsilon * SLACK:
            outcome = Outcome.FALSE
        else:
            outcome = Outcome.UNPROVED
        return Verdict(
            kind=self.kind,
            outcome=outcome,
            claimed=self.epsilon,
            epsilon=proved,
            at_least=least,
            delta=self.delta,
            adjacency=self.adjacency,
            unit=unit,
            method=method,
            reason=reason,
            notes=notes,
            source=self.source,
        )

    def not_private(self, *, unit: str, reason: str, notes: tuple[str, ...] = ()) -> Verdict:
        """The verdict on settings that are not differentially private for any ε."""
        found = self.verdict(None, unit=unit, method="none", reason=reason, notes=notes)
        return replace(found, outcome=Outcome.NOT_DP)


def in_words(verdict: Verdict) -> list[str]:
    """A verdict, line by line."""
    at = f"at δ = {verdict.delta:g}, for {verdict.unit}, {verdict.adjacency}"
    claimed = "" if verdict.claimed is None else f"claimed ε = {verdict.claimed:g}"
    proved = "" if verdict.epsilon is None else rounded_up(verdict.epsilon)
    match verdict.outcome:
        case Outcome.NOT_DP:
            first = f"NOT DP: {claimed or 'there is no ε'} {at}; no ε holds"
        case Outcome.UNSTATED:
            first = f"ε ≤ {proved} {at}" if proved else f"no finite ε is proved {at}"
        case Outcome.SOUND:
            first = f"SOUND: {claimed} {at}; what is proved is ε ≤ {proved}"
        case Outcome.UNPROVED:
            bound = f"ε ≤ {proved}" if proved else "no finite ε"
            first = f"NOT PROVED: {claimed} {at}; what is proved is {bound}"
        case _ if verdict.epsilon == verdict.at_least:
            first = f"FALSE: {claimed} {at}; ε really is {proved}"
        case _:
            bound = f", and at most {proved}" if proved else ""
            first = f"FALSE: {claimed} {at}; ε really is at least {verdict.at_least:.4g}{bound}"
    lines = [first, verdict.reason, f"computed by: {verdict.method}"]
    lines += [f"note: {note}" for note in verdict.notes]
    if verdict.source:
        lines.append(f"read: {verdict.source}")
    return lines
