"""The rule of a deployed ledger: one that prices all that a federation releases, and its price."""

from __future__ import annotations

from contextlib import suppress
from math import sqrt
from typing import TYPE_CHECKING

import dp_accounting
import pytest
from dp_accounting import pld, rdp

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import (
    DistributedGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SkellamEvent,
)
from fedpriv.privacy.ledger import (
    BudgetRefusal,
    Cost,
    Ledger,
    deployed_composition,
    fixed_composition,
)
from tests.privacy.ledger.ledgers import gaussian

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.privacy.ledger import Composition

A = Adjacency.ADD_REMOVE
DELTA = 1e-6


def rule(epsilon: float, name: str | None = None) -> Composition:
    budget = Budget(epsilon=epsilon, delta=DELTA)
    found = fixed_composition(name or deployed_composition(budget), budget=budget, adjacency=A)
    assert found is not None
    return found


def least(fits: Callable[[float], bool]) -> float:
    low, high = 0.1, 100.0
    while high > low * (1 + 1e-9):
        middle = sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def test_without_delta_only_sums_of_epsilon_are_left() -> None:
    assert deployed_composition(Budget(epsilon=1.0, delta=0.0)) == "basic"
    assert deployed_composition(Budget(epsilon=1.0, delta=DELTA)) == "rdp"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0, 20.0])
def test_what_it_costs_against_the_exact_rule_for_gaussian_noise(epsilon: float) -> None:
    """5 to 8 % more noise for a run that fills the budget; docs/ledger.md says so."""
    ours, exact = rule(epsilon), rule(epsilon, "gdp")
    needed = least(lambda noise: ours.admits(ours.price(gaussian(noise))))
    ratio = needed / least(lambda noise: exact.admits(exact.price(gaussian(noise))))
    assert 1.04 < ratio < 1.08
    oracle = pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(needed))
    assert oracle.get_epsilon(DELTA) < epsilon  # an upper bound, by somebody else's accountant


@pytest.mark.parametrize(("rate", "rounds"), [(0.01, 1000), (0.1, 100)])
def test_what_it_costs_against_loss_distributions_for_sampled_rounds(
    rate: float, rounds: int
) -> None:
    ours = rule(1.0)

    def fits(noise: float) -> bool:
        event = PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)
        return ours.admits(Cost(amount=rounds * ours.price(event).amount))

    needed = least(fits)

    def oracle(noise: float) -> float:
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        return float(pld.PLDAccountant().compose(event, rounds).get_epsilon(DELTA))

    assert oracle(needed) < 1.0
    assert oracle(needed / 1.09) > 1.0  # within 9 %


def test_gaussian_noise_shares_and_samples_fit_one_ledger_and_never_exceed_it(
    tmp_path: Path,
) -> None:
    budget = Budget(epsilon=2.0, delta=DELTA)
    sigma = 400.0
    ledger = Ledger.create(
        tmp_path / "f.ledger",
        data_name="f",
        budget=budget,
        adjacency=A,
        composition=deployed_composition(budget),
    )
    shares = {"l1_sensitivity": 20.0, "l2_sensitivity": 10.0, "adjacency": A}
    events = [
        gaussian(12.0),
        SkellamEvent(variance=sigma**2, **shares),  # type: ignore[arg-type]
        DistributedGaussianEvent(shares=16, share_stddev=sigma / 4, dimension=4, **shares),  # type: ignore[arg-type]
        PoissonGaussianEvent(relative_noise=2.0, sampling_rate=0.1, adjacency=A),
    ]
    granted = 0
    with ledger, suppress(BudgetRefusal):
        for round_ in range(10_000):
            ledger.reserve(events[round_ % 4], run="mixed", round=round_)
            granted += 1
    assert 40 < granted < 10_000
    # Gaussians of the same variance as the shares cost less than they do: still within the budget.
    oracle = rdp.RdpAccountant([ledger_order(budget)])
    for index in range(granted):
        match events[index % 4]:
            case PoissonGaussianEvent() as event:
                oracle.compose(
                    dp_accounting.PoissonSampledDpEvent(
                        event.sampling_rate, dp_accounting.GaussianDpEvent(event.relative_noise)
                    )
                )
            case GaussianEvent() as event:
                oracle.compose(dp_accounting.GaussianDpEvent(event.relative_noise))
            case _:
                oracle.compose(dp_accounting.GaussianDpEvent(sigma / 10.0))
    assert 0.95 * budget.epsilon < oracle.get_epsilon(DELTA) <= budget.epsilon


def ledger_order(budget: Budget) -> float:
    return float(rule(budget.epsilon).to_dict()["order"])
