"""Drop-outs: which simulated parties leave a round, and when; the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedpriv._collusion import count_of
from fedpriv._validate import require_count, require_delta
from fedpriv.privacy.randomness import RandomStream

Moment = Literal["answer", "confirm", "reveal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropouts:
    """⌊fraction·m⌋ parties leave every second round, each at one step of it, and come back.

    Half of them, on average, leave before they answer, and are not in the sum; the others leave
    when their shares are needed. A party that leaves a round may also miss the key set-up of the
    next one, and sits that out; as nobody leaves the next one, no sum lacks more than the fraction.

    Attributes:
        parties: m.
        fraction: δ.
        seed: Decides who leaves, and when.
    """

    parties: int
    fraction: float
    seed: int

    def __post_init__(self) -> None:
        require_count(parties=self.parties)
        require_delta(fraction=self.fraction)

    def of(self, round_: int) -> dict[int, Moment]:
        """Who leaves round ``round_``, counted from 0, and at which step.

        Without a confirming step, whoever would leave there leaves at the next one.
        """
        count = count_of(self.fraction, self.parties)
        if not count or round_ % 2:
            return {}
        stream = RandomStream.seeded(self.seed, "dropouts", round_)
        leaving = stream.permutation(self.parties)[:count].tolist()
        moments: tuple[Moment, ...] = ("answer", "answer", "confirm", "reveal")
        chosen = stream.integers(len(moments), count).tolist()
        return {party: moments[place] for party, place in zip(leaving, chosen, strict=True)}

    def silent(self, round_: int) -> frozenset[int]:
        """Who does not answer in round ``round_``."""
        return frozenset(party for party, moment in self.of(round_).items() if moment == "answer")
