"""How a run splits its records and states its noise: by the seed, the sizes and the plan."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.accountants import account
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.metrics.noise import acting_noise
from fedpriv.simulations.run.prepare import build_strategy, prepare
from fedpriv.simulations.run.summary import simulate


def test_a_split_of_another_size_pools_and_cuts_anew(short_file: Path) -> None:
    own = prepare(read_experiment(short_file))
    cut = prepare(read_experiment(short_file, ["data.test_fraction=0.4"]))
    total = own.task.records + len(own.data.dataset.test)
    assert len(cut.data.dataset.train) + len(cut.data.dataset.test) == total
    assert cut.task.sizes == (150,) * 20  # 250 records each, of which 0.6 are counted on
    assert len(cut.data.dataset.test) == pytest.approx(0.4 * total, abs=200)
    kept = prepare(read_experiment(short_file, ["data.test_fraction=0.2"]))
    np.testing.assert_array_equal(kept.data.dataset.test.X, own.data.dataset.test.X)
    whole = prepare(read_experiment(short_file, ["data.test_fraction=0"]))
    assert (len(whole.data.dataset.train), len(whole.data.dataset.test)) == (total, 0)
    assert (whole.task.records, whole.task.headroom) == (total, 1)


def test_a_seed_changes_the_split_and_nothing_else_does(short_file: Path) -> None:
    def tested(*settings: str) -> set[bytes]:
        data = ("data.name=breast_cancer", "data.partition=hashed", "data.parties=3")
        prepared = prepare(
            read_experiment(short_file, [*data, "data.test_fraction=0.4", *settings])
        )
        return {row.tobytes() for row in prepared.data.dataset.test.X}

    first = tested()
    assert tested("privacy.epsilon=3", "strategy.name=output-perturbation") == first
    other = tested("run.seed=1")
    assert 0.3 < len(first & other) / len(first) < 0.5


def test_some_natural_parties_are_among_more_of_them(short_file: Path) -> None:
    def names(parties: int) -> set[str]:
        prepared = prepare(read_experiment(short_file, [f"data.parties={parties}"]))
        assert prepared.task.parties == parties
        return set(prepared.data.dataset.party_names)

    assert names(3) < names(7) < names(20)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["strategy.name=gradient-perturbation"], lambda plan, m, n: plan / (m * n)),
        (["strategy.name=local-gradient-perturbation"], lambda plan, m, n: plan / (m**0.5 * n)),
        (["strategy.name=output-perturbation"], lambda plan, m, n: plan),
        (["strategy.name=local-output-perturbation"], lambda plan, m, n: plan * m**0.5),
        (["strategy.name=objective-perturbation"], lambda plan, m, n: plan / (m * n)),
        (["strategy.name=local-objective-perturbation"], lambda plan, m, n: plan / (m**0.5 * n)),
        (["strategy.name=pathak"], lambda plan, m, n: plan),
    ],
)
def test_noise_is_stated_where_it_acts(
    short_file: Path, settings: list[str], expected: Callable[[float, int, int], float]
) -> None:
    """At m parties of n records each: on the mean gradient, or on the averaged model."""
    strategy = build_strategy(prepare(read_experiment(short_file, settings)), run="x")
    query, plan = strategy.ask(), strategy.plan
    assert query is not None
    assert plan is not None
    m, n = strategy.task.parties, strategy.task.smallest
    stated = expected(plan.mechanisms[0].noise_stddev, m, n)
    assert acting_noise(query, plan, strategy.task) == pytest.approx(stated, rel=1e-3)


def test_the_published_noise_of_output_perturbation_is_the_textbook_one(short_file: Path) -> None:
    """√2 · 2G/(m·n·λ·ε), coordinate by coordinate, at λ = 0.01 and ε = 0.5."""
    overrides = ["strategy.name=output-perturbation", "strategy.law=unsound-laplace"]
    prepared = prepare(read_experiment(short_file, [*overrides, "privacy.epsilon=0.5"]))
    strategy = build_strategy(prepared, run="x")
    query, plan = strategy.ask(), strategy.plan
    assert query is not None
    assert plan is not None
    textbook = 2**0.5 * 2 / (prepared.task.records * 0.01 * 0.5)
    assert acting_noise(query, plan, prepared.task) == pytest.approx(textbook, rel=0.02)
    assert plan.epsilon == pytest.approx(0.5 * prepared.task.dimension**0.5)


@pytest.mark.parametrize(
    "settings", [[], ["strategy.sampling_rate=0.1", "privacy.adjacency=add-remove"]]
)
def test_spend_on_the_way_is_a_bound_and_ends_at_the_plans(
    short_file: Path, settings: list[str]
) -> None:
    prepared = prepare(read_experiment(short_file, ["strategy.rounds=130", *settings]))
    strategy = build_strategy(prepared, run="x")
    plan = strategy.plan
    assert plan is not None
    spent = plan.spending()
    curve = [spent(t) for t in range(131)]
    assert curve[0] == 0
    assert curve == sorted(curve)
    assert curve[-1] == plan.epsilon
    for t in (1, 2, 64, 129):
        events = [(plan.event(0), t)]
        exact = account(events, delta=plan.budget.delta, accountant=plan.accountant).epsilon
        assert exact is not None
        assert exact * (1 - 1e-9) <= curve[t] <= plan.epsilon


def test_all_records_may_be_for_training(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    whole = ("--set", "data.test_fraction=0")
    done = fedpriv("run", short_file, *whole, "--out", tmp_path / "out")
    assert done.code == 0
    assert "metrics: none" in done.out
    alone = ("--set", "strategy.name=party-alone")
    result = fedpriv(
        "run", short_file, *whole, *alone, "--out", tmp_path / "alone", "--json"
    ).json()
    assert result["accuracy"] is result["loss"] is result["majority_accuracy"] is None
    with pytest.raises(ValueError, match="nothing to compare them by"):
        simulate(read_experiment(short_file, ["data.test_fraction=0"]))
