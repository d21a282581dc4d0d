"""Attribute inference: a feature is told without protection, hardly with it, by nothing else."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.simulations.attack.attack import allowed, allowed_of_a_value
from fedpriv.simulations.attack.attribute import column_of, infer_attribute, two_values
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.records.data import every_record
from fedpriv.simulations.run.prepare import check, prepare
from tests.simulations.attack.test_attack import STUDY


def _told(records: int, models: int, **changes: Any) -> Any:
    experiment = read_experiment({**STUDY, **changes})
    own = prepare(experiment)
    return infer_attribute(experiment, own, feature=None, records=records, models=models)


def test_a_value_is_told_by_a_model_without_noise_and_not_with_it() -> None:
    """960 guesses for each curve: AUC of chance has a standard deviation of 0.019."""
    found = _told(20, 48)
    assert found.curves["none", "loss"].area > 0.57
    assert found.curves["none", "loss"].advantage > 0.1
    assert found.baseline == pytest.approx(0.5, abs=0.01)
    for attack in ("loss", "lira"):
        assert found.curves["planned", attack].area < 0.56
        assert found.accuracy["planned", attack] < 0.56


def test_a_value_is_told_by_an_answer_unless_it_has_noise() -> None:
    found = _told(40, 2)
    assert not isinstance(found.sent, str)
    assert found.sent["raw"].area == found.sent["clipped"].area == 1.0
    assert found.sent["noisy"].area < 0.65  # of 200 against 200: chance is 0.5 ± 0.03
    assert found.sent["noisy"].false_positives.size > 100  # ten draws of noise for every record
    assert found.sent["secure sum"].area < 0.85  # of 40 records: chance is 0.5 ± 0.09


def test_without_the_coin_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins that are not in the records are guessed by nobody: nothing else gives them away."""
    module = "fedpriv.simulations.attack.attribute"
    monkeypatch.setattr(f"{module}._with", lambda records, *_: replace(records))
    found = _told(20, 16)
    for curve in found.curves.values():
        assert curve.area == 0.5


def test_what_is_asked_is_the_column_whose_values_vary_most() -> None:
    data = every_record(read_experiment(STUDY))
    column = column_of(data, None)
    assert column_of(data, data.feature_names[3]) == 3
    spreads = []
    for each in data.train.X.T:
        (low, high), share = two_values(each)
        spreads.append(share * (1 - share) * (high - low) ** 2)
    assert column == int(np.argmax(spreads))
    with pytest.raises(ValueError, match="feature must be one of 'x0'"):
        column_of(data, "age")


@pytest.mark.parametrize(
    ("column", "values", "share"),
    [([0, 0, 0, 1], (0, 1), 0.25), ([0, 1, 1, 1], (0, 1), 0.75), ([1, 2, 3, 9], (1.5, 6), 0.5)],
)
def test_two_values_stand_for_a_column(
    column: list[float], values: tuple[float, float], share: float
) -> None:
    assert two_values(np.array(column, np.float32)) == (values, share)
    with pytest.raises(ValueError, match="constant"):
        two_values(np.zeros(3, np.float32))


def test_another_value_is_two_steps_away_where_records_join_or_leave() -> None:
    declared = {"data": {**STUDY["data"], "records": 4000}}
    joining = {"privacy": {**STUDY["privacy"], "adjacency": "add-remove"}}
    for changes in ({}, {**declared, **joining}):
        strategy = check(prepare(read_experiment({**STUDY, **changes})))
        assert strategy is not None
        plan = strategy.plan
        assert plan is not None
        one, value = allowed(plan), allowed_of_a_value(plan)
        if plan.adjacency is Adjacency.REPLACE_ONE:
            assert value.advantage == one.advantage
        else:
            assert plan.gdp_mu is not None
            assert value.advantage == pytest.approx(allowed(plan, steps=2).advantage)
            assert one.advantage < value.advantage < 2 * one.advantage


def test_two_steps_of_a_point_are_those_of_group_privacy() -> None:
    """(ε, δ) twice is (2ε, (1 + e^ε)·δ): at no false alarm that is all that is allowed."""
    study = {**STUDY, "privacy": {"epsilon": 1.0, "delta": 1e-3, "adjacency": "add-remove"}}
    study |= {"data": {**STUDY["data"], "records": 4000}}
    study |= {"strategy": {"name": "objective-perturbation"}, "model": {"l2": 0.1}}
    strategy = check(prepare(read_experiment(study)))
    assert strategy is not None
    plan = strategy.plan
    assert plan is not None
    assert plan.gdp_mu is None
    curve = allowed(plan, steps=2)
    delta = plan.budget.delta * (1 + exp(plan.epsilon))
    assert curve.true_positives[0] == pytest.approx(delta)
