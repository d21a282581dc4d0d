"""Plans with noise in shares: proved, not wasteful, and with the minimum that drop-outs leave."""

from math import floor, sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms.shares import SHARE_LAWS, ShareLaw
from fedpriv.privacy.planning.filters import RdpFilter
from fedpriv.privacy.planning.shares import Sharing, shared_noise
from tests.privacy.mechanisms.share_laws import every_law

R = Adjacency.REPLACE_ONE


@given(
    parties=st.integers(1, 500),
    dropout=st.floats(0, 0.99),
    colluding=st.floats(0, 0.99),
)
def test_n_min_is_what_is_left_of_the_worst_case(
    parties: int, dropout: float, colluding: float
) -> None:
    gone, false = floor(dropout * parties + 1e-9), floor(colluding * parties + 1e-9)
    false = max(false, 1 if parties > 1 else 0)  # a party knows its own share
    if parties - gone - false < 1:
        with pytest.raises(ValueError, match="at least one honest party"):
            Sharing(parties=parties, dropout=dropout, colluding=colluding)
        return
    sharing = Sharing(parties=parties, dropout=dropout, colluding=colluding)
    assert (sharing.minimum, sharing.colluders) == (parties - gone, false)


def test_decimal_fractions_mean_what_they_say() -> None:
    assert Sharing(parties=100, dropout=0.29).minimum == 71


PLAN: dict[str, Any] = {
    "l1_sensitivity": 3000.0,
    "l2_sensitivity": 1000.0,
    "dimension": 9,
    "step": 2.0**-10,
    "adjacency": R,
}


@given(
    law=st.sampled_from(SHARE_LAWS),
    epsilon=st.floats(0.05, 8),
    shape=st.lists(st.floats(0.2, 5), min_size=1, max_size=5),
    dropout=st.sampled_from([0.0, 0.1, 0.5]),
)
@settings(max_examples=40)
def test_a_plan_is_proved_and_wastes_nothing(
    law: ShareLaw, epsilon: float, shape: list[float], dropout: float
) -> None:
    budget = Budget(epsilon=epsilon, delta=0.0 if law == "polya" else 1e-6)
    sharing = Sharing(parties=20, dropout=dropout, colluding=0.1, law=law)
    made = shared_noise(budget=budget, sharing=sharing, shape=shape, **PLAN)
    spent = account([(m.event(), 1) for m in made], delta=budget.delta).epsilon
    assert spent is not None
    assert spent <= epsilon
    assert spent >= epsilon * (1 - 1e-6)
    # Inverse law: the noise follows the shape, whatever the law.
    noise = [m.noise_stddev / part for m, part in zip(made, shape, strict=True)]
    assert noise == pytest.approx([noise[0]] * len(noise), rel=1e-3 if law == "polya" else 1e-9)


@given(law=st.sampled_from(SHARE_LAWS), factor=st.floats(1.01, 4))
@settings(max_examples=20)
def test_a_larger_budget_never_needs_more_noise(law: ShareLaw, factor: float) -> None:
    delta = 0.0 if law == "polya" else 1e-6
    noise = [
        shared_noise(
            budget=Budget(epsilon=epsilon, delta=delta),
            sharing=Sharing(parties=10, law=law),
            **PLAN,
        )[0].noise_stddev
        for epsilon in (0.5, 0.5 * factor)
    ]
    assert noise[1] < noise[0]


@every_law
def test_drop_outs_and_colluders_change_the_share_and_not_the_noise_that_is_sure(
    law: ShareLaw,
) -> None:
    budget = Budget(epsilon=1.0, delta=0.0 if law == "polya" else 1e-6)
    full, worst = (
        shared_noise(
            budget=budget,
            sharing=Sharing(parties=20, dropout=lost, colluding=lost, law=law),
            **PLAN,
        )[0]
        for lost in (0.0, 0.25)
    )
    assert (full.share.honest, worst.share.honest) == (19, 10)
    assert worst.noise_stddev == pytest.approx(full.noise_stddev, rel=1e-6)
    assert worst.share.variance == pytest.approx(1.9 * full.share.variance, rel=1e-6)
    # Over-noise if nobody drops out: √(survivors/n_min).
    assert worst.stddev_of(20) / worst.noise_stddev == pytest.approx(sqrt(2))


def test_shares_cost_little_more_noise_than_a_gaussian_of_the_server() -> None:
    """100 rounds at (1, 1e-6): 7.3 % more, all of it for Rényi accounting instead of exact."""
    (mechanism, *_) = shared_noise(
        budget=Budget(epsilon=1.0, delta=1e-6),
        sharing=Sharing(parties=20),
        shape=(1.0,) * 100,
        **PLAN,
    )
    gaussian = 1000.0 * 2.0**-10 * sqrt(100) / gdp_mu(epsilon=1.0, delta=1e-6)
    assert 1.0 < mechanism.noise_stddev / gaussian < 1.08


def test_shares_cost_a_party_what_the_document_says() -> None:
    """One order, chosen for the budget: what it shows of a smaller run is above the best order."""
    page = (Path(__file__).parents[3] / "docs" / "party-policy.md").read_text(encoding="utf-8")
    used = []
    for budget in (2.0, 3.0, 4.0):
        mechanisms = shared_noise(
            budget=Budget(epsilon=2.0, delta=1e-6),
            sharing=Sharing(parties=20),
            shape=(1.0,) * 100,
            **PLAN,
        )
        filled = RdpFilter.for_releases(
            budget=Budget(epsilon=budget, delta=1e-6), event=mechanisms[0].event()
        )
        for mechanism in mechanisms:
            filled = filled.admit(mechanism.event())
        used.append(filled.epsilon)
    said = "show as {:.2f} of a budget of 2, but as {:.2f} of one of 3 and {:.2f} of one of 4"
    assert said.format(*used) in " ".join(page.split())


def test_the_default_law_follows_from_delta() -> None:
    assert Sharing(parties=5).law_for(1e-6) == "skellam"
    assert Sharing(parties=5).law_for(0.0) == "polya"
    with pytest.raises(ValueError, match="only Pólya shares are pure"):
        Sharing(parties=5, law="skellam").law_for(0.0)


def test_a_grid_too_coarse_for_discrete_gaussians_is_refused() -> None:
    with pytest.raises(ValueError, match=r"too narrow.*Choose Skellam"):
        shared_noise(
            budget=Budget(epsilon=8.0, delta=1e-3),
            sharing=Sharing(parties=2000, law="discrete-gaussian"),
            **{**PLAN, "l2_sensitivity": 50.0},
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"colluding": -0.1}, "colluding must lie in"),
        ({"dropout": 0.5, "colluding": 0.5}, "at least one honest party of 10"),
        ({"law": "laplace"}, "law must be one of"),
        ({"parties": 0}, "parties must be an integer"),
    ],
)
def test_a_sharing_that_leaves_nobody_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sharing(**{"parties": 10, **changes})
