"""Report of an exchange with the parties: what it cost, and what was not accepted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_REASONS = 16  # a party chooses its words: a server keeps so many of them
_OTHER = "other reasons"


def one_line(words: str) -> str:
    """What somebody else said, as it may be shown: a terminal obeys what is not printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All exchanges of one kind.

    Attributes:
        exchanges: How many.
        seconds: How long they took, parties' computing included.
        sent: Bytes of requests, all parties together.
        received: Bytes of replies, all parties together.
    """

    exchanges: int = 0
    seconds: float = 0.0
    sent: int = 0
    received: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            exchanges=self.exchanges + other.exchanges,
            seconds=self.seconds + other.seconds,
            sent=self.sent + other.sent,
            received=self.received + other.received,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a federation has done so far. Nothing in it is private.

    Attributes:
        sums: How many sums were formed.
        traffic: By the name of the exchange.
        rejected: How many replies were not accepted, by reason.
        refusals: How many steps parties refused, by what they said: rules, and no record.
    """

    sums: int = 0
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> Traffic:
        """All exchanges together."""
        return sum(self.traffic.values(), Traffic())

    @property
    def complaint(self) -> str:
        """What was not accepted so far, and what parties said when they refused."""
        counts = f"Not accepted so far: {dict(self.rejected)}."
        said = [f"{count} × {words}" for words, count in self.refusals.items()]
        return f"{counts} Parties refused: {' | '.join(said)}" if said else counts

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "sums": self.sums,
            "traffic": {
                step: {
                    "exchanges": one.exchanges,
                    "seconds": one.seconds,
                    "sent": one.sent,
                    "received": one.received,
                }
                for step, one in self.traffic.items()
            },
            "rejected": dict(self.rejected),
            "refusals": dict(self.refusals),
        }


class Tally:
    """Adds up to a `Report`."""

    def __init__(self) -> None:
        self._sums = 0
        self._traffic: dict[str, Traffic] = {}
        self._rejected: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    def exchange(self, step: str, traffic: Traffic) -> None:
        """Count an exchange."""
        self._traffic[step] = self._traffic.get(step, Traffic()) + traffic

    def reject(self, reason: str, count: int = 1) -> None:
        """Count replies that were not accepted."""
        if count:
            self._rejected[reason] += count

    def refused(self, words: str) -> None:
        """Count a refusal, by its kind and by what the party said, on one line."""
        kind = words.partition(":")[0]
        reason = f"refused: {kind}" if kind.isidentifier() else "refused"
        many = reason not in self._rejected and len(self._rejected) >= _MOST_REASONS
        self.reject("refused" if many else reason)
        line = one_line(words)
        known = line in self._refusals or len(self._refusals) < _MOST_REASONS
        self._refusals[line if known else _OTHER] += 1

    def summed(self) -> None:
        """Count a sum."""
        self._sums += 1

    def report(self) -> Report:
        """All of it so far."""
        return Report(
            sums=self._sums,
            traffic=MappingProxyType(dict(self._traffic)),
            rejected=MappingProxyType(dict(sorted(self._rejected.items()))),
            refusals=MappingProxyType(dict(sorted(self._refusals.items()))),
        )
