"""Work of parties and server: counts that can be told by hand, and units that are all measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, fields
from typing import Any

import pytest

from fedpriv.federation.cost import unit_costs
from fedpriv.federation.cost.prediction import predict
from fedpriv.federation.cost.setting import Setting
from fedpriv.federation.cost.unit_costs import RECORDED_COSTS, calibrated
from fedpriv.federation.cost.work import OPERATIONS, Work, party_work, server_work
from fedpriv.secagg import Mode
from fedpriv.secagg.primitives import keys
from fedpriv.secagg.primitives.public_keys import PublicKeys
from tests.federation.cost.measured import measured, stated


class Counted(PublicKeys):
    """Counts what parties do."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def agree(self, private: Any, public: bytes) -> bytes:
        self.calls["agree"] += 1
        return super().agree(private, public)

    def require_signature(self, *arguments: Any, signer: int) -> None:
        self.calls["verify"] += 1
        super().require_signature(*arguments, signer=signer)


@pytest.mark.parametrize("mode", ["active", "semi-honest"])
def test_public_key_operations_are_those_of_the_protocol(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are nearly all of a party's time with short answers."""
    asked = stated(Setting(parties=12, dimension=4, mode=Mode(mode), rounds=3))
    counted, derived = Counted(), Counter[str]()
    kept = vars(keys)["HKDF"]
    monkeypatch.setattr(
        keys, "HKDF", lambda **values: (derived.update(["derive"]), kept(**values))[1]
    )
    measured(asked, operations=counted)
    party, server = party_work(asked), server_work(asked)
    assert counted.calls["verify"] == 12 * party.verify
    own = 12 * 4 * (asked.rounds + 1)  # a party's own public keys, made anew at two steps
    assert counted.calls["agree"] + own == 12 * party.agree
    assert derived["derive"] == pytest.approx(12 * party.derive + server.derive, rel=0.05)


def test_time_is_counts_times_units() -> None:
    units = Work(**dict.fromkeys(OPERATIONS, 0.0) | {"verify": 2.0, "sign": 3.0})
    assert Work(verify=5.0, sign=1.0, agree=9.0).seconds(units) == 13.0
    assert Work(verify=5.0) + Work(verify=1.0, sign=1.0) == Work(verify=6.0, sign=1.0)


def test_longer_answers_cost_masks_and_noise_of_the_parties_costs_draws() -> None:
    few = Setting(parties=50, dimension=10, mode=Mode("active"))
    many = Setting(parties=50, dimension=10_010, mode=Mode("active"), noise_at="parties")
    grown = party_work(many)
    assert grown.mask_byte - party_work(few).mask_byte == 10 * 50 * 4 * 10_000
    assert (party_work(few).draw, grown.draw) == (0.0, 10 * 10_010)
    assert grown.verify == party_work(few).verify


def test_who_leaves_costs_the_server_and_no_party() -> None:
    quiet, leaving = (
        Setting(parties=100, dimension=1000, mode=Mode("active"), dropout=share)
        for share in (0.0, 0.1)
    )
    assert server_work(leaving).mask > 3 * server_work(quiet).mask
    assert party_work(leaving).mask <= party_work(quiet).mask


def test_every_unit_is_recorded_and_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_costs, "_SECONDS", 0.0)
    here = asdict(calibrated())
    assert set(here) == set(OPERATIONS) == {field.name for field in fields(Work)}
    for name, seconds in here.items():
        recorded = getattr(RECORDED_COSTS, name)
        assert 0 < recorded < 1e-3
        assert recorded / 100 < seconds < recorded * 100, name


def test_memory_grows_with_answers_at_a_party_and_with_the_cohort_at_the_server() -> None:
    small, long, wide = (
        predict(Setting(parties=m, dimension=d, mode=Mode("semi-honest")), RECORDED_COSTS)
        for m, d in ((10, 10), (10, 10**6), (1000, 10))
    )
    assert long.party.memory > small.party.memory + 3 * 4e6
    assert wide.server.memory > 50 * small.server.memory


@pytest.mark.deep
@pytest.mark.parametrize(
    ("parties", "dimension", "mode", "rounds", "dropout"),
    [
        (10, 4, "active", 6, 0.0),
        (50, 4, "active", 4, 0.0),
        (50, 4, "semi-honest", 4, 0.1),
        (50, 100_000, "active", 4, 0.1),
        (150, 1000, "semi-honest", 3, 0.0),
        (10, 1_000_000, "semi-honest", 3, 0.0),
    ],
)
def test_processor_time_is_within_a_factor_of_two(
    parties: int, dimension: int, mode: str, rounds: int, dropout: float
) -> None:
    """Of all parties and the server, beyond what the same rounds take in the clear."""
    asked = Setting(
        parties=parties, dimension=dimension, mode=Mode(mode), rounds=rounds, dropout=dropout
    )
    asked, units = stated(asked), calibrated()
    measured(asked, masked=False)  # loads what is compiled
    (_, masked), (_, clear) = measured(asked), measured(asked, masked=False)
    predicted = parties * party_work(asked).seconds(units) + server_work(asked).seconds(units)
    assert 0.5 < (masked - clear) / predicted < 2
