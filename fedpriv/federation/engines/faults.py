"""Faults injected on purpose between a server and its parties.

A plan is a frozen, seeded value: the same plan causes the same faults in the same exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from fedpriv._validate import require_choice, require_non_negative
from fedpriv.privacy.randomness import RandomStream

if TYPE_CHECKING:
    from fedpriv.federation.engines.dropouts import Dropouts

FaultKind = Literal["silence", "error", "lost", "delay", "duplicate", "flip", "truncate", "replay"]
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: "silence": the request is lost. "error": the ClientApp fails before it does anything.
            "lost": the party does its step and the reply is lost. "delay": the reply comes late.
            "duplicate": the request is delivered twice, and both replies arrive. "flip" and
            "truncate": the bytes of the reply are damaged. "replay": the party's previous reply
            comes instead.
        step: The exchange, such as "answer".
        party: The party it happens to.
        occurrence: Which exchange of this name, from 0; None for every one.
        seconds: The length of a delay.
    """

    kind: FaultKind
    step: str
    party: int
    occurrence: int | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        require_choice(FAULTS, kind=self.kind)
        require_non_negative(seconds=self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Faults by name, faults at random, and drop-outs.

    Attributes:
        faults: Faults that happen for certain.
        rates: The probability of a kind of fault for every party in every exchange but the first.
        seconds: The length of a random delay.
        dropouts: Who leaves a round: requests fail with an error from that step on.
        first_round: The round of the drop-outs that the first sum is in.
        reorder: Whether replies arrive in random order.
        seed: The seed of everything random here.
    """

    faults: tuple[Fault, ...] = ()
    rates: tuple[tuple[FaultKind, float], ...] = ()
    seconds: float = 0.0
    dropouts: Dropouts | None = None
    first_round: int = 0
    reorder: bool = False
    seed: int = 0

    def of(self, *, step: str, occurrence: int, round_: int, party: int) -> tuple[Fault, ...]:
        """The fault of one party in one exchange: ``round_`` counts the sums asked for."""
        found = [
            fault
            for fault in self.faults
            if (fault.step, fault.party) == (step, party) and fault.occurrence in (None, occurrence)
        ]
        if self._has_left(step, round_, party):
            found.append(Fault(kind="error", step=step, party=party))
        if self.rates and step != "join":
            stream = RandomStream.seeded(self.seed, "faults", step, occurrence, party)
            drawn = stream.uniform(len(self.rates))
            found += [
                Fault(kind=kind, step=step, party=party, seconds=self.seconds)
                for (kind, rate), uniform in zip(self.rates, drawn, strict=True)
                if uniform < rate
            ]
        return tuple(found)

    def order(self, count: int, *, pull: int) -> list[int]:
        """The order in which ``count`` replies of a pull arrive."""
        if not self.reorder:
            return list(range(count))
        order: list[int] = RandomStream.seeded(self.seed, "order", pull).permutation(count).tolist()
        return order

    def _has_left(self, step: str, round_: int, party: int) -> bool:
        """Whether the party left this round at this step or at an earlier one."""
        steps = ("answer", "confirm", "reveal")
        step = "answer" if step == "ask" else step
        if self.dropouts is None or step not in steps:
            return False
        moment = self.dropouts.of(self.first_round + round_).get(party)
        return moment is not None and steps.index(moment) <= steps.index(step)
