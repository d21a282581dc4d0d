"""The unit of a plan: one for all that it charges, and written with it."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.mechanisms.shares import SHARE_LAWS
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.calibration import MECHANISMS, calibrate
from fedpriv.privacy.planning.counts import counts_plan
from fedpriv.privacy.planning.filters import GdpFilter
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.privacy.planning.output import output_plan
from fedpriv.privacy.planning.plan import Plan
from fedpriv.privacy.planning.shares import Sharing, shared_noise
from fedpriv.privacy.planning.written_plan import events_of
from fedpriv.privacy.schedules.growing import GrowingBatch
from fedpriv.privacy.unit import Unit

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
every_unit = pytest.mark.parametrize("unit", Unit)


def units_of(plan: Plan) -> set[Unit]:
    """Every place of a plan that states a unit."""
    written = plan.to_dict()
    found = {plan.unit, Unit(written["unit"]), *(m.unit for m in plan.mechanisms)}
    found |= {plan.event(index).unit for index in range(plan.rounds)}
    found |= {event.unit for event, _ in (*plan.releases, *plan.needed)}
    made = written["made"] if isinstance(plan, AdaptivePlan) else written["mechanisms"]
    found |= {Unit(each["unit"]) for each in made}
    return found


@every_unit
@pytest.mark.parametrize("sampling_rate", [1.0, 0.5])
def test_a_plan_of_gradients_is_of_one_unit(unit: Unit, sampling_rate: float) -> None:
    plan = gradient_plan(
        budget=BUDGET,
        rounds=3,
        sensitivity=1.0,
        clip_norm=1.0,
        sizes=[50, 50],
        dimension=4,
        step=1e-6,
        adjacency=A,
        sampling_rate=sampling_rate,
        accountant="gdp" if sampling_rate == 1 else "rdp",
        unit=unit,
    )
    assert units_of(plan) == {unit}
    assert {event.unit for event in events_of(plan.to_dict()) or ()} == {unit}
    assert plan.spending()(1) > 0
    assert plan.gdp_mu is None or plan.gdp_mu > 0
    assert plan.zcdp_rho is None or plan.zcdp_rho > 0


@every_unit
@pytest.mark.parametrize("law", ["gaussian", "l2-laplace", "l1-laplace", "unsound-laplace"])
def test_a_plan_of_outputs_is_of_one_unit(unit: Unit, law: Any) -> None:
    plan = output_plan(
        budget=BUDGET if law == "gaussian" else Budget(epsilon=1.0, delta=0.0),
        sensitivity=1.0,
        sizes=[50, 50],
        dimension=4,
        step=1e-6,
        law=law,
        unit=unit,
    )
    assert units_of(plan) == {unit}


@every_unit
def test_a_plan_of_counts_is_of_one_unit(unit: Unit) -> None:
    plan = counts_plan(
        budget=BUDGET, sensitivity=1.0, counts=2, sizes=[9], step=1e-6, adjacency=R, unit=unit
    )
    assert units_of(plan) == {unit}


@every_unit
@pytest.mark.parametrize("law", SHARE_LAWS)
def test_noise_in_shares_is_of_one_unit(unit: Unit, law: Any) -> None:
    pure = law == "polya"
    made = shared_noise(
        budget=Budget(epsilon=1.0, delta=0.0 if pure else 1e-6),
        sharing=Sharing(parties=5, law=law),
        l1_sensitivity=2000.0,
        l2_sensitivity=1000.0,
        dimension=4,
        step=1e-3,
        adjacency=R,
        unit=unit,
    )
    assert {(each.unit, each.event().unit) for each in made} == {(unit, unit)}


@every_unit
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("sampling_rate", [1.0, 0.5])
def test_a_calibration_is_of_one_unit(unit: Unit, mechanism: str, sampling_rate: float) -> None:
    found = calibrate(
        epsilon=1.0,
        delta=1e-6,
        rounds=2,
        adjacency=A,
        mechanism=mechanism,
        sampling_rate=sampling_rate,
        unit=unit.value,
        accountant="rdp",
    )
    assert {found.unit, *(event.unit for event, _ in found.releases)} == {unit}


@every_unit
def test_growing_batches_are_of_one_unit(unit: Unit) -> None:
    growing = GrowingBatch(first=0.5, factor=2.0, every=1)
    releases = growing.releases(3, noise_multiplier=9.0, unit=unit)
    assert {event.unit for event, _ in releases} == {unit}
    assert growing.noise_multiplier(budget=BUDGET, rounds=3, unit=unit) > 0


@every_unit
def test_an_adaptive_plan_is_of_the_unit_of_its_filter(unit: Unit) -> None:
    empty = AdaptivePlan(
        strategy="any",
        query="a sum",
        released="a noisy sum",
        parties=1,
        records=9,
        smallest_party=9,
        dimension=1,
        step=1e-6,
        filter=GdpFilter(budget=BUDGET, adjacency=R, unit=unit),
    )
    quiet = GaussianMechanism(sensitivity=1.0, stddev=60.0, adjacency=R, unit=unit)
    plan = empty.admit(quiet)
    assert units_of(plan) == {unit}
    history = json.loads(json.dumps(plan.history()))
    assert empty.replayed(history) == plan
    wrong = Unit.RECORD if unit is Unit.PARTY else Unit.PARTY
    with pytest.raises(ValueError, match="unit of the event"):
        empty.admit(replace(quiet, unit=wrong))
    with pytest.raises(ValueError, match="unit of the event"):
        empty.replayed([{**history[0], "unit": wrong.value}])


def test_a_written_plan_without_a_unit_is_not_read() -> None:
    mechanism = GaussianMechanism(sensitivity=1.0, stddev=60.0, adjacency=R)
    entry = {"name": mechanism.name, **asdict(mechanism), "count": 1}
    plan: dict[str, Any] = {"mechanisms": [entry], "sampling_rate": 1.0, "parts": 1}
    assert events_of(plan)
    del entry["unit"]
    with pytest.raises(KeyError, match="unit"):
        events_of(plan)
