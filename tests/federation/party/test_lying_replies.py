"""Lying replies: an answer of another length, type, party or round is as good as none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.party.host import PartyHost
from fedpriv.federation.protocol.wire import ClearAnswer, Reply, pack
from fedpriv.secagg.messages import MaskedAnswer, Reveal, Share
from tests.federation.engines.grids import SIZES, WIDTH, Stage, gradient_query, host, ideal, who

if TYPE_CHECKING:
    from fedpriv.federation.protocol.level import Level
    from fedpriv.secagg.numbers.fixed_point import Ring

COHORT = tuple(range(len(SIZES)))


def lying(number: int, level: Level, make: Any) -> PartyHost:
    honest = host(number, level)

    class Lying(PartyHost):
        def handle(self, data: bytes) -> bytes:
            return bytes(make(Reply.from_bytes(PartyHost.handle(self, data))))

    return Lying(number=number, party=honest.party, protection=honest.protection, keys=honest.keys)


def _altered(change: Any) -> Any:
    """A reply whose answer is changed, in its bytes if it must be."""

    def make(reply: Reply) -> bytes:
        parts = [reply.refusal.encode()]
        for record in reply.messages:
            if isinstance(record, MaskedAnswer | ClearAnswer):
                parts.append(change(record))
            else:
                parts.append(record.to_bytes())
        return pack(parts)

    return make


def _as(record: MaskedAnswer | ClearAnswer, vector: Ring) -> bytes:
    return replace(record, vector=vector).to_bytes()


def _floats(record: MaskedAnswer | ClearAnswer) -> bytes:
    """NaN where ring elements should be, with the element size of a float64 of another kind."""
    nan = np.full(WIDTH, np.nan, dtype="<f2")
    head = record.to_bytes()[: 2 + 32 + 4 + 2]
    return head + b"\x02" + WIDTH.to_bytes(4, "big") + nan.tobytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda record: _as(record, record.vector[:-1]),
        lambda record: _as(record, np.zeros(WIDTH + 1, "<u4")),
        lambda record: _as(record, record.vector.astype("<u8")),
        lambda record: _as(record, np.zeros(0, "<u4")),
        _floats,
        lambda record: record.to_bytes()[:-1],
        lambda record: record.to_bytes() + b"\0",
        lambda record: b"",
        lambda record: b"\x01",
        lambda record: replace(record, party=1).to_bytes(),
        lambda record: replace(record, round=7).to_bytes(),
        lambda record: replace(record, run=b"z" * 32).to_bytes(),
        lambda record: Reveal(
            run=record.run, round=record.round, party=4, seed_shares={}, key_shares={}
        ).to_bytes(),
        lambda record: Share(
            run=record.run,
            round=record.round,
            party=4,
            commitment=b"c" * 32,
            salt=b"s" * 16,
            ciphertexts={},
        ).to_bytes(),
    ],
)
@pytest.mark.parametrize("level", ["off", "semi-honest", "active"])
def test_an_answer_of_another_length_type_party_round_or_form_is_as_good_as_none(
    level: Level, change: Any
) -> None:
    stage = Stage(level, other_hosts={4: lying(4, level, _altered(change))})
    (answer,) = stage.sums(1)
    assert who(answer) == set(COHORT) - {4}
    assert (answer.total == ideal(gradient_query(0), answer.sizes)).all()
    assert sum(stage.federation.report.rejected.values()) >= 1


@pytest.mark.parametrize("level", ["off", "semi-honest"])
def test_two_answers_in_one_reply_count_once(level: Level) -> None:
    def twice(reply: Reply) -> bytes:
        answers = [r for r in reply.messages if isinstance(r, MaskedAnswer | ClearAnswer)]
        return Reply(messages=(*reply.messages, *answers)).to_bytes()

    stage = Stage(level, other_hosts={4: lying(4, level, twice)})
    (answer,) = stage.sums(1)
    assert (answer.total == ideal(gradient_query(0), SIZES)).all()
    assert sum(stage.federation.report.rejected.values()) == 1
