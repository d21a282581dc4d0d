"""Sampled runs in real processes: planned by loss distributions, and paid for to the digit.

Real SuperLink, SuperNodes and workers on the loopback, with TLS and node keys, and answers masked
in active mode. The server departs from its plan by more noise, which costs less and which no policy
forbids: parties that are held to a plan refuse it, and pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import NAMES
from tests.simulations.deploy.standing import Standing, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.privacy.ledger import Spend

BUDGET: dict[str, Any] = {
    "epsilon": 4.0,
    "delta": 2e-6,
    "adjacency": "add-remove",
    "composition": "basic",
}
SAMPLED: dict[str, Any] = {
    "strategy": {"rounds": 2, "sampling_rate": 0.5},
    "privacy": {"epsilon": 2.0, "delta": 1e-6, "adjacency": "add-remove"},
}


@pytest.fixture(scope="module")
def live() -> Iterator[Standing]:
    with standing(NAMES, budget=BUDGET, stated=100, min_noise=0.001) as made:
        yield made


def spent(live: Standing) -> list[Spend]:
    """By every party, if its ledger is sound."""
    found = []
    for folder in live.parties:
        with Ledger.open(read_party(folder.policy).ledger, read_only=True) as ledger:
            ledger.verify()
            found.append(ledger.spent())
    return found


def test_a_sampled_run_is_paid_for_as_planned_and_one_that_departs_is_not(live: Standing) -> None:
    fates.patience(live.server.root, attempts=1)
    result = live.end(live.begin(live.written("clinics", **SAMPLED)).directory)
    assert result is not None
    for each in spent(live):
        assert (each.guarantee.epsilon, each.guarantee.delta) == (result["epsilon"], 1e-6)

    for folder in live.parties:
        fates.lie(folder.root, "more noise")
    assert live.end(live.begin(live.written("departs", **SAMPLED)).directory) is None
    for folder, each in zip(live.parties, spent(live), strict=True):
        assert each.guarantee.epsilon == result["epsilon"]  # and no more
        assert "another event for release 0 than the plan" in live.log(folder)
