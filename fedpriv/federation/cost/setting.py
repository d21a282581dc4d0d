"""Setting of a cost prediction: parties, coordinates, rounds, and the graph that follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fedpriv._collusion import DEFAULT_COLLUDING, count_of
from fedpriv._validate import require_choice, require_count, require_delta, require_non_negative
from fedpriv.secagg.numbers.fixed_point import MAX_PARTIES
from fedpriv.secagg.thresholds import MOST_ACTIVE, Mode, graph_sizes

NoiseAt = Literal["server", "parties"]
_MOST_PARTIES, _MOST_ROUNDS = 10_000_000, 100_000  # what is computed in seconds
_ROOM = 0.1  # of drop-outs: the least that a simulation plans for, as parties fail untold


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a cost is predicted for.

    Attributes:
        parties: m; all of them are announced in every round.
        dimension: d, the numbers of an answer.
        mode: What the server is trusted with.
        rounds: How many sums.
        dropout: δ: ⌊δ·m⌋ parties leave every second round and come back, as with `run.dropout`:
            half of them before they answer. A tenth may be missing at the least, as planned.
        colluding: The fraction of the parties that colludes with the server.
        noise_at: Who adds the noise: parties draw an integer for every number of their answer.
        bits: The ring, 32 or 64.
        query_bytes: A query, beside the 8 bytes of each coordinate of the point that it has.
        colluders: c.
        holders: k, how many keep shares of one party's secrets; m if everybody does.
        threshold: t, how many shares open a secret.
    """

    parties: int
    dimension: int
    mode: Mode
    rounds: int = 10
    dropout: float = 0.0
    colluding: float = DEFAULT_COLLUDING
    noise_at: NoiseAt = "server"
    bits: int = 32
    query_bytes: int = 500
    colluders: int = field(init=False)
    holders: int = field(init=False)
    threshold: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", Mode(self.mode))
        require_count(parties=self.parties, dimension=self.dimension, rounds=self.rounds)
        require_delta(dropout=self.dropout, colluding=self.colluding)
        require_choice(("server", "parties"), noise_at=self.noise_at)
        require_non_negative(query_bytes=self.query_bytes)
        if self.bits not in (32, 64):
            raise ValueError(f"bits must be 32 or 64, got {self.bits!r}.")
        if not 2 <= self.parties <= _MOST_PARTIES:
            raise ValueError(
                f"parties must lie between 2 and {_MOST_PARTIES:,}, got {self.parties:,}."
            )
        if self.rounds > _MOST_ROUNDS:
            raise ValueError(
                f"rounds must be at most {_MOST_ROUNDS:,}, got {self.rounds:,}: costs grow in "
                "proportion beyond."
            )
        sizes = graph_sizes(
            mode=self.mode,
            parties=self.parties,
            roster=self.parties,
            corrupt=self.colluding,
            dropout=max(_ROOM, self.dropout),
        )
        object.__setattr__(self, "colluders", sizes.colluders)
        object.__setattr__(self, "holders", sizes.holders)
        object.__setattr__(self, "threshold", sizes.threshold)

    @property
    def complete(self) -> bool:
        """Whether everybody holds shares of everybody."""
        return self.holders == self.parties

    def leavers(self, round_: int) -> tuple[float, float, float]:
        """How many parties leave a round before each of its steps, in the mean."""
        leaving = 0 if round_ % 2 else count_of(self.dropout, self.parties)
        return leaving / 2, leaving / 4, leaving / 4

    @property
    def answer_bytes(self) -> int:
        """The elements of an answer."""
        return self.dimension * self.bits // 8

    @property
    def limit(self) -> str:
        """Why the protocol as it is takes no round of this size; empty if it does."""
        if self.mode is Mode.ACTIVE and self.parties > MOST_ACTIVE:
            return f"active mode ends at {MOST_ACTIVE} parties"
        if self.parties > MAX_PARTIES:
            return f"party numbers end at {MAX_PARTIES}"
        return ""

    def partners(self, present: float) -> float:
        """With how many of so many parties one shares masks; the mean, in a sparse graph."""
        others = present - 1
        return others if self.complete else others * (2 - self._drawn) * self._drawn

    def kept(self, present: float) -> float:
        """For how many others of so many parties one keeps shares, or they for it."""
        return (present - 1) * (1.0 if self.complete else self._drawn)

    @property
    def own_share(self) -> int:
        """Whether a party holds a share of its own secrets, too: 1 if it does."""
        return int(self.complete)

    @property
    def _drawn(self) -> float:
        """The probability that one party draws another as a holder."""
        return self.holders / (self.parties - 1)
