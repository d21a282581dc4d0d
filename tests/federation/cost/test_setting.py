"""Settings of a cost prediction: the graph is that of the protocol; what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fedpriv.federation.cost.setting import Setting
from fedpriv.secagg.thresholds import MOST_ACTIVE, Mode, Parameters


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("parties", [3, 10, 128, 129, 1000])
def test_the_graph_is_the_one_that_the_protocol_plans(mode: Mode, parties: int) -> None:
    dropout = 0.0 if parties == 3 else 0.1
    planned = Parameters.plan(mode=mode, parties=parties, dropout=0.1 if parties > 3 else 0.0)
    if parties == 3:
        with pytest.raises(ValueError, match="no threshold"):
            Setting(parties=3, dimension=1, mode=mode, dropout=0.4)
        return
    asked = Setting(parties=parties, dimension=1, mode=mode, dropout=dropout)
    assert (asked.holders, asked.threshold, asked.colluders) == (
        planned.holders,
        planned.threshold,
        planned.colluders,
    )
    assert not asked.limit


def test_what_the_protocol_does_not_take_is_said_where_it_does_not() -> None:
    for mode, most in ((Mode.ACTIVE, MOST_ACTIVE), (Mode.SEMI_HONEST, 65_536)):
        assert not Setting(parties=most, dimension=1, mode=mode).limit
        Parameters.plan(mode=mode, parties=most)
        assert str(most) in Setting(parties=most + 1, dimension=1, mode=mode).limit
        with pytest.raises(ValueError, match=str(most)):
            Parameters.plan(mode=mode, parties=most + 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"parties": 1}, "parties must lie between 2 and 10,000,000, got 1"),
        ({"parties": 10**7 + 1}, "got 10,000,001"),
        ({"dimension": 0}, "dimension"),
        ({"rounds": 10**5 + 1}, "rounds must be at most 100,000"),
        ({"dropout": 1.0}, "dropout"),
        ({"mode": "passive"}, "passive"),
        ({"bits": 16}, "bits must be 32 or 64"),
        ({"noise_at": "nowhere"}, "noise_at"),
        ({"query_bytes": -1}, "query_bytes"),
        ({"dropout": 0.6, "mode": "active"}, "no threshold is secure"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Setting(**{"parties": 20, "dimension": 3, "mode": "semi-honest", **values})
