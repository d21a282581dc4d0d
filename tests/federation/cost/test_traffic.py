"""Predicted bytes against those that the real protocol sends on the engine `local`."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.cost.prediction import predict
from fedpriv.federation.cost.setting import Setting
from fedpriv.federation.cost.traffic import exchanges
from fedpriv.federation.cost.work import Work
from fedpriv.federation.engines.dropouts import Dropouts
from fedpriv.federation.protocol.wire import Announce, Join, Joined, Reply, Request, packed_width
from fedpriv.secagg.primitives.public_keys import SharedPublicKeys
from tests.federation.cost.measured import measured, stated

if TYPE_CHECKING:
    from fedpriv.federation.cost.attendance import Leavers
    from fedpriv.federation.exchange_report import Traffic
    from fedpriv.secagg.round import Bound


HERE: dict[str, Any] = {"run": bytes(32), "round": 1, "party": 2}


def of(**values: Any) -> Setting:
    return stated(Setting(**{"dimension": 4, "rounds": 3, **values}))


def leavers(setting: Setting, round_: int) -> Leavers:
    """Who really leaves a round of `measured`, by step."""
    leaving = Dropouts(parties=setting.parties, fraction=setting.dropout, seed=0)
    steps = Counter(leaving.of(round_).values())
    return steps["answer"], steps["confirm"], steps["reveal"]


def predicted(setting: Setting, *, exactly: bool = False) -> dict[str, tuple[int, float, float]]:
    """By exchange: how many, bytes sent and received."""
    found: dict[str, tuple[int, float, float]] = {}
    known = (lambda round_: leavers(setting, round_)) if exactly else None
    for one in exchanges(setting, known):
        count, sent, received = found.get(one.step, (0, 0.0, 0.0))
        found[one.step] = count + 1, sent + one.sent, received + one.received
    return found


def counted(setting: Setting) -> dict[str, Traffic]:
    report, _ = measured(setting, operations=SharedPublicKeys())
    assert report.sums == setting.rounds
    return dict(report.traffic)


@pytest.mark.parametrize(
    "setting",
    [
        {"parties": 5, "mode": "active"},
        {"parties": 5, "mode": "semi-honest", "dimension": 70, "bits": 64},
        {"parties": 12, "mode": "active", "dimension": 1000, "rounds": 1},
        {"parties": 12, "mode": "semi-honest", "rounds": 1},
        {"parties": 20, "mode": "active", "dropout": 0.2, "rounds": 4},
        {"parties": 20, "mode": "semi-honest", "dropout": 0.2, "rounds": 4, "dimension": 33},
    ],
)
def test_bytes_are_exact_where_everybody_holds_shares_of_everybody(
    setting: dict[str, Any],
) -> None:
    asked = of(**setting)
    assert asked.complete
    found = predicted(asked, exactly=True)
    assert {
        step: (one.exchanges, one.sent, one.received) for step, one in counted(asked).items()
    } == found


def test_bytes_are_one_percent_off_where_holders_are_drawn() -> None:
    """Numbers of partners are means: over 130 parties a run is 0.3 % off at one deviation."""
    asked = of(parties=130, mode="semi-honest", rounds=2)
    assert not asked.complete
    found = predicted(asked)
    for step, one in counted(asked).items():
        count, sent, received = found[step]
        assert count == one.exchanges
        assert one.sent == pytest.approx(sent, rel=0.01)
        assert one.received == pytest.approx(received, rel=0.01)


def test_mean_drop_outs_are_those_of_many_runs() -> None:
    """Half of those who leave do so before they answer, a quarter at each later step."""
    asked = of(parties=1000, mode="active", dropout=0.3)
    real = [leavers(asked, round_) for round_ in (0, 1)]
    assert sum(real[1]) + sum(asked.leavers(1)) == 0
    assert (sum(real[0]), sum(asked.leavers(0))) == (300, 300)
    for found, mean in zip(real[0], asked.leavers(0), strict=True):
        assert abs(found - mean) < 6 * (300 * 0.25) ** 0.5  # of a binomial: 1e-9


def test_a_prediction_adds_up_and_goes_to_json() -> None:
    asked = of(parties=20, mode="active")
    once = Work(**{field.name: 1.0 for field in fields(Work)})
    found = predict(asked, once).to_dict()
    report = counted(asked)
    assert found["exchanges"] == sum(one.exchanges for one in report.values())
    assert found["server"]["sent_bytes"] == sum(one.sent for one in report.values())
    assert found["server"]["received_bytes"] == sum(one.received for one in report.values())
    assert found["server"]["sent_bytes"] == 20 * found["party"]["received_bytes"]
    assert found["steps"]["answer"]["sent"] == report["answer"].sent
    assert found["beyond_the_protocol"] is None


def test_envelopes_are_as_wide_as_they_say() -> None:
    join, joined = Join(**HERE, plan=b"abc"), Joined(**HERE, size=7, level=1)
    announce = Announce(**HERE, cohort=(0, 3, 9), minimum=3)
    assert Join.width(plan=3) == len(join.to_bytes())
    assert Joined.width() == len(joined.to_bytes())
    assert Announce.width(cohort=3) == len(announce.to_bytes())
    both: tuple[Bound, ...] = (join, announce)
    wide = packed_width(5, *(len(message.to_bytes()) for message in both))
    assert wide == len(Request(messages=both, query=b"query").to_bytes())
    assert wide - 5 == len(Reply(messages=both).to_bytes())
