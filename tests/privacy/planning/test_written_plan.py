"""A written plan tells what its noise costs, to the digit; other noise has other events."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    SkellamMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.written_plan import events_of, least_rate_of, require_written
from fedpriv.privacy.schedules.growing import GrowingPlan
from tests.federation.deployed.statement_scenes import gaussian_plan, shares_plan

if TYPE_CHECKING:
    from fedpriv.privacy.mechanisms import Mechanism

SAME: dict[str, Any] = {"adjacency": Adjacency.REPLACE_ONE}
GAUSSIAN = GaussianMechanism(**SAME, sensitivity=2.0, stddev=9.0)
LAPLACE = L2LaplaceMechanism(**SAME, sensitivity=2.0, epsilon=0.1, dimension=5)


def written(plan: FixedPlan) -> dict[str, Any]:
    """As it is read back from a file."""
    values: dict[str, Any] = json.loads(json.dumps(plan.to_dict()))
    return values


def planned(*mechanisms: Mechanism, **changes: Any) -> FixedPlan:
    budget = Budget(epsilon=100.0, delta=1e-6)
    return replace(
        gaussian_plan(), budget=budget, accountant="auto", mechanisms=mechanisms, **changes
    )


@pytest.mark.parametrize(
    "mechanism",
    [
        GAUSSIAN,
        LAPLACE,
        L1LaplaceMechanism(**SAME, sensitivity=2.0, epsilon=0.1, dimension=5),
        L2LaplaceMechanism(**SAME, sensitivity=2.0, epsilon=0.1, dimension=1),
        DiscreteLaplaceMechanism(**SAME, sensitivity=2, epsilon=0.1),
        DiscreteGaussianMechanism(**SAME, sensitivity=2.0, stddev=30.0),
        SkellamMechanism(**SAME, l1_sensitivity=4.0, l2_sensitivity=2.0, variance=900.0),
        ObjectiveMechanism(
            **SAME, epsilon=0.5, delta=1e-7, linear=GAUSSIAN, extra_regulariser=0.1, output=GAUSSIAN
        ),
        ObjectiveMechanism(
            **SAME, epsilon=0.5, delta=0.0, linear=LAPLACE, extra_regulariser=0.1, output=LAPLACE
        ),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_the_events_of_every_mechanism_are_found_again(mechanism: Mechanism) -> None:
    plan = planned(mechanism, mechanism)
    require_written(written(plan))
    assert events_of(written(plan)) == Counter(dict(plan.releases))


@pytest.mark.parametrize("plan", [gaussian_plan(), shares_plan()], ids=["server", "shares"])
def test_the_events_of_a_plan_are_found_again(plan: FixedPlan) -> None:
    assert events_of(written(plan)) == Counter(dict(plan.releases))


def test_sampling_is_part_of_an_event() -> None:
    noise = replace(GAUSSIAN, adjacency=Adjacency.ADD_REMOVE)
    plan = planned(noise, noise, sampling_rate=0.25)
    assert events_of(written(plan)) == Counter(dict(plan.releases))
    facts = {name: getattr(plan, name) for name in FixedPlan.__dataclass_fields__}
    del facts["epsilon"]
    growing = GrowingPlan(**{**facts, "accountant": "auto"}, rates=(0.1, 0.25))
    require_written(written(growing))
    assert least_rate_of(written(growing)) == growing.least_rate == 0.1
    assert events_of(written(growing)) == Counter(dict(growing.releases))
    several = replace(growing, mechanisms=(noise, replace(noise, stddev=10.0)), accountant="auto")
    assert events_of(written(several)) is None


@pytest.mark.parametrize("change", [{"stddev": 4.5}, {"sensitivity": 4.0}, {"count": 3}])
def test_other_noise_has_other_events(change: dict[str, Any]) -> None:
    plan = planned(GAUSSIAN, GAUSSIAN)
    values = written(plan)
    values["mechanisms"][0] |= change
    assert events_of(values) != Counter(dict(plan.releases))


@pytest.mark.parametrize(
    "change",
    [{"made": []}, {"rates": [1.0], "made": []}, {"limit": 1.0}, {"note": ""}, {"budget": {}}],
    ids="-".join,
)
def test_a_plan_has_the_keys_of_its_kind(change: dict[str, Any]) -> None:
    """One of another kind would decide which noise is looked at."""
    values = written(planned(GAUSSIAN))
    with pytest.raises(ValueError, match="plan"):
        require_written({**values, **change})
    for mechanism in ({**values["mechanisms"][0], "note": ""}, {"name": "gaussian", "count": 1}):
        with pytest.raises(ValueError, match="another key"):
            require_written({**values, "mechanisms": [mechanism]})
    del values["released"]
    with pytest.raises(ValueError, match="lacks one: 'released'"):
        require_written(values)


def test_noise_that_promises_nothing_is_refused() -> None:
    noise = UnsoundLaplaceMechanism(**SAME, sensitivity=2.0, epsilon=0.1, dimension=5)
    values = {**written(planned(GAUSSIAN)), "mechanisms": [{"name": noise.name, "count": 1}]}
    with pytest.raises(ValueError, match="not a mechanism"):
        events_of(values)
