"""Traffic of a run: bytes of every exchange, from the layouts of the messages on the wire.

What is counted is what `fedpriv.federation.exchange_report` counts: requests and replies of the
protocol. In a deployment signatures come on top (200 bytes for each), and what Flower and TLS add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.federation.cost.attendance import Attendance, attendances
from fedpriv.federation.protocol.wire import Announce, Join, Joined, packed_width
from fedpriv.secagg import messages
from fedpriv.secagg.thresholds import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.federation.cost.attendance import Leavers
    from fedpriv.federation.cost.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange with all parties.

    Attributes:
        step: Its name.
        sent: Bytes of requests, all parties together.
        received: Bytes of replies, all parties together.
        request: Bytes of the largest request to one party.
        reply: Bytes of the largest reply of one party.
    """

    step: str
    sent: float
    received: float
    request: float
    reply: float


def exchanges(
    setting: Setting, leavers: Callable[[int], Leavers] | None = None
) -> Iterator[Exchange]:
    """Every exchange of a run, in their order: joining, the first set-up, and the rounds."""
    widths = _Widths(setting=setting)
    everybody = setting.parties
    yield _exchange("join", [(everybody, [Join.width()])], [(everybody, [Joined.width()])])
    yield _exchange(
        "advertise", [(everybody, [widths.announce])], [(everybody, [widths.advertise])]
    )
    yield _exchange(
        "share",
        [(everybody, [widths.key_list(everybody)])],
        [(everybody, [widths.share(everybody)])],
    )
    for there in attendances(setting, leavers):
        yield from _round(setting, widths, there)


def _round(setting: Setting, widths: _Widths, there: Attendance) -> Iterator[Exchange]:
    active = setting.mode is Mode.ACTIVE
    ahead = there.next_keyed > 0
    announce = [widths.announce] if ahead else []
    advertise = [widths.advertise] if ahead else []
    key_list = [widths.key_list(there.next_keyed)] if ahead else []
    share = [widths.share(there.next_keyed)] if ahead else []
    # Who sits this round out takes part in the set-up of the next one.
    aside = setting.parties - there.sharers if ahead else 0.0
    early = ([], []) if active else (announce, advertise)
    yield _exchange(
        "answer",
        [(there.sharers, [widths.delivery(there.sharers), *early[0]]), (aside, early[0])],
        [(there.answers, [widths.answer, *early[1]]), (aside, early[1])],
        first=setting.query_bytes + 8 * setting.dimension,
    )
    opening = widths.survivors(there.answers)
    if active:
        absent = setting.parties - there.answers if ahead else 0.0
        yield _exchange(
            "confirm",
            [(there.answers, [opening, *announce]), (absent, announce)],
            [(there.signers, [messages.Confirm.width(), *advertise]), (aside, advertise)],
        )
        opening = messages.Confirmations.width(signatures=there.signers)
    rest = there.next_keyed - there.signers if ahead else 0.0
    revealed = widths.reveal(there)
    yield _exchange(
        "reveal",
        [(there.signers, [opening, *key_list]), (rest, key_list)],
        [(there.revealers, [revealed, *share]), (rest, share)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widths:
    """Bytes of the messages of a round; means, where who keeps whose shares is drawn."""

    setting: Setting

    @property
    def announce(self) -> float:
        return Announce.width(cohort=self.setting.parties)

    @property
    def advertise(self) -> float:
        return messages.Advertise.width(holders=self.setting.holders)

    @property
    def answer(self) -> float:
        return messages.MaskedAnswer.width(vector=self.setting.answer_bytes)

    def key_list(self, keyed: float) -> float:
        return messages.KeyList.width(keys=self.setting.partners(keyed))

    def share(self, keyed: float) -> float:
        return messages.Share.width(ciphertexts=self.setting.kept(keyed))

    def delivery(self, sharers: float) -> float:
        kept = self.setting.kept(sharers)
        return messages.Delivery.width(sharers=sharers, ciphertexts=kept)

    def survivors(self, answers: float) -> float:
        return messages.Survivors.width(survivors=answers)

    def reveal(self, there: Attendance) -> float:
        held = self.setting.kept(there.sharers) + self.setting.own_share
        return messages.Reveal.width(seed_shares=held)


def _exchange(
    step: str,
    requests: list[tuple[float, list[float]]],
    replies: list[tuple[float, list[float]]],
    *,
    first: float = 0.0,
) -> Exchange:
    """An exchange, from how many parties get, or send, messages of these widths.

    ``first`` is what goes beside the messages of the first kind of request: the query.
    """
    asked = [(count, widths) for count, widths in requests if widths]
    heard = [(count, widths) for count, widths in replies if widths]
    sizes = [
        packed_width(first if place == 0 else 0.0, *widths)
        for place, (_, widths) in enumerate(asked)
    ]
    answers = [packed_width(0.0, *widths) for _, widths in heard]
    return Exchange(
        step=step,
        sent=sum(count * size for (count, _), size in zip(asked, sizes, strict=True)),
        received=sum(count * size for (count, _), size in zip(heard, answers, strict=True)),
        request=sizes[0],
        reply=answers[0],
    )
