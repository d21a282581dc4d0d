"""Prediction of what secure aggregation costs: bytes, exchanges, processor time and memory.

**What is predicted how well.** Bytes are exact where everybody holds shares of everybody and nobody
leaves; with parties that leave, or holders that are drawn, they are means, from which a run is off
by about one percent. Processor time is within a factor of two of what was measured, of the
same machine; it is what comes on top of the same rounds in the clear. Memory counts the buffers
that are held at once: not the interpreter (some 100 MB), not the records, not what Flower holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.federation.cost.traffic import exchanges
from fedpriv.federation.cost.work import party_work, server_work
from fedpriv.secagg.party_state import LINK_BYTES
from fedpriv.secagg.round import IDENTITY_BYTES

if TYPE_CHECKING:
    from fedpriv.federation.cost.setting import Setting
    from fedpriv.federation.cost.traffic import Exchange
    from fedpriv.federation.cost.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a whole run costs one side, a party that is always there or the server.

    Attributes:
        sent: Bytes.
        received: Bytes.
        seconds: Of one processor.
        memory: Bytes at once.
    """

    sent: float
    received: float
    seconds: float
    memory: float

    def to_dict(self) -> dict[str, float]:
        """JSON-ready values; bytes are whole numbers."""
        return {
            "sent_bytes": round(self.sent),
            "received_bytes": round(self.received),
            "processor_seconds": self.seconds,
            "memory_bytes": round(self.memory),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a run of `setting` costs.

    Attributes:
        setting: Of the run.
        exchanges: How many there are, joining and the first set-up among them.
        party: One party that is always there.
        server: The server.
        steps: Exchanges of each kind, and their bytes for all parties together.
    """

    setting: Setting
    exchanges: int
    party: Side
    server: Side
    steps: dict[str, dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        """The prediction as JSON-ready values."""
        setting = self.setting
        return {
            "parties": setting.parties,
            "dimension": setting.dimension,
            "mode": setting.mode.value,
            "rounds": setting.rounds,
            "dropout": setting.dropout,
            "noise_at": setting.noise_at,
            "bits": setting.bits,
            "colluders": setting.colluders,
            "holders": setting.holders,
            "threshold": setting.threshold,
            "beyond_the_protocol": setting.limit or None,
            "exchanges": self.exchanges,
            "party": self.party.to_dict(),
            "server": self.server.to_dict(),
            "steps": self.steps,
        }


def predict(setting: Setting, units: Work) -> Prediction:
    """What a run costs, with the unit costs of a machine.

    Sizes at which the protocol as it is takes no round are computed by the same rules: see
    `Setting.limit`. From 65,536 parties on, numbers of parties would need a third byte, too.
    """
    all_of_them = list(exchanges(setting))
    steps: dict[str, dict[str, float]] = {}
    for one in all_of_them:
        step = steps.setdefault(one.step, {"exchanges": 0, "sent": 0, "received": 0})
        step["exchanges"] += 1
        step["sent"] += one.sent
        step["received"] += one.received
    return Prediction(
        setting=setting,
        exchanges=len(all_of_them),
        party=Side(
            sent=sum(one.reply for one in all_of_them),
            received=sum(one.request for one in all_of_them),
            seconds=party_work(setting).seconds(units),
            memory=_party_memory(setting, all_of_them),
        ),
        server=Side(
            sent=sum(one.sent for one in all_of_them),
            received=sum(one.received for one in all_of_them),
            seconds=server_work(setting).seconds(units),
            memory=_server_memory(setting, all_of_them),
        ),
        steps={
            name: {key: round(value) for key, value in step.items()} for name, step in steps.items()
        },
    )


def _party_memory(setting: Setting, all_of_them: list[Exchange]) -> float:
    """The largest request and reply as bytes and as messages, vectors, secrets, and the roster."""
    largest = max(one.request + one.reply for one in all_of_them)
    vectors = 3 * setting.answer_bytes + 8 * setting.dimension  # plain, masked, kept; the point
    links = LINK_BYTES * setting.partners(setting.parties)
    return 2 * largest + vectors + 2 * links + IDENTITY_BYTES * setting.parties


def _server_memory(setting: Setting, all_of_them: list[Exchange]) -> float:
    """All requests of an exchange, which are made before the first one leaves, and what came.

    Answers are added up as they come, and are not held.
    """
    held = 0.0
    for one in all_of_them:
        replies = one.reply if one.step == "answer" else one.received
        held = max(held, 2 * one.sent + replies)
    return held + 2 * setting.answer_bytes + IDENTITY_BYTES * setting.parties
