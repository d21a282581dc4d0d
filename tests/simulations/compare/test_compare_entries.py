"""Entries of a comparison that differ by more than options, and published curves beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.compare.cells import cells
from fedpriv.simulations.compare.findings import findings
from fedpriv.simulations.compare.report import table
from fedpriv.simulations.compare.rows import Row
from fedpriv.simulations.experiment.file import (
    parse_experiment,
    read_experiment,
)
from fedpriv.simulations.experiment.sources import built_in_experiments
from fedpriv.simulations.public.overlap import shares_records
from tests.simulations.compare.rows import GOOD, NOISY, row

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.file import Experiment


def study(**compare: Any) -> Experiment:
    return parse_experiment(
        {
            "data": {"name": "synthetic"},
            "model": {"l2": 0.01},
            "strategy": {"name": "gradient-perturbation", "rounds": 5},
            "compare": {
                "epsilons": [0.5, 2.0],
                "seeds": 2,
                "strategies": ["gradient-perturbation", "output-perturbation"],
                **compare,
            },
        }
    )


def experiment_at(experiment: Experiment, label: str, epsilon: float) -> Experiment:
    (one, *_) = [
        cell.experiment for cell in cells(experiment) if cell.setting[:2] == (label, epsilon)
    ]
    return one


def test_options_by_budget_reach_every_strategy_that_knows_them() -> None:
    changed = study(at={"2": {"rounds": 9}})
    assert experiment_at(changed, "gradient-perturbation", 0.5).strategy.options["rounds"] == 5
    assert experiment_at(changed, "gradient-perturbation", 2.0).strategy.options["rounds"] == 9
    assert "rounds" not in experiment_at(changed, "output-perturbation", 2.0).strategy.options


def test_an_entry_may_change_what_it_likes_at_a_budget() -> None:
    entry = {
        "name": "gradient-perturbation",
        "rounds": 7,
        "override": {"model.l2": 0.5, "privacy.adjacency": "add-remove"},
        "at": {"2": {"rounds": 8, "model.l2": 0.25}},
    }
    changed = study(strategies=["output-perturbation", entry], at={"2": {"rounds": 9}})
    small = experiment_at(changed, "gradient-perturbation", 0.5)
    large = experiment_at(changed, "gradient-perturbation", 2.0)
    assert (small.strategy.options["rounds"], small.model.l2) == (7, 0.5)
    assert (large.strategy.options["rounds"], large.model.l2) == (8, 0.25)
    assert small.privacy.adjacency == large.privacy.adjacency == "add-remove"
    other = experiment_at(changed, "output-perturbation", 0.5)
    assert (other.model.l2, other.privacy.adjacency) == (0.01, "replace-one")


@pytest.mark.parametrize(
    ("compare", "reason"),
    [
        ({"at": {"3": {"rounds": 1}}}, "'3' must be one of epsilons, 0.5, 2"),
        ({"at": {"much": {"rounds": 1}}}, "'much' must be one of epsilons"),
        ({"published": {"a": [0.9]}}, "'a' must have one accuracy a budget, 2; got 1"),
        (
            {"strategies": [{"name": "pathak", "override": {"compare.seeds": 1}}]},
            "'compare.seeds' must be an option of pathak, or a key of",
        ),
    ],
)
def test_what_no_budget_or_table_has_is_refused(compare: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cells(study(**compare))


CURVES = {"a": {0.5: 0.70, 2.0: 0.78}, "elsewhere": {0.5: 0.70, 2.0: 0.70}}
ROWS = [
    row("a", GOOD, epsilon=0.5),
    row("a", GOOD, epsilon=2.0),
    row("b", NOISY, epsilon=0.5),
    row("b", [v + 0.1 for v in GOOD], epsilon=2.0),
]


def test_accuracies_are_compared_with_published_ones_where_the_seeds_decide() -> None:
    own, best = findings(ROWS, None, CURVES)[-2:]
    assert own.startswith(
        "Against the published accuracy of a, a is above at ε = 0.5 and below at ε = 2; on average"
    )
    assert "+3.4 points, least at ε = 2" in own
    assert "the best strategy at each ε is above at every ε" in best
    assert "+12.4 points, least at ε = 0.5 (7.44 points" in best


def test_what_seeds_cannot_decide_is_not_said() -> None:
    (said,) = [
        finding
        for finding in findings([row("b", NOISY, epsilon=1.0)], None, {"b": {1.0: 0.68}})
        if "published" in finding
    ]
    assert "b is undecided at every ε" in said


def test_the_table_shows_accuracies_beside_ours_and_other_adjacencies_by_name() -> None:
    experiment = study(published={"a": [70.0, 78.0]})
    made = table([ROWS[0], row("b", NOISY, epsilon=0.5, adjacency="add-remove")], experiment)
    columns = {str(column.header): list(column.cells) for column in made.columns}
    assert columns["published %"] == ["70.0", "–"]
    assert columns["strategy"] == ["a", "b (add-remove)"]
    assert "lost" not in columns


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_what_is_lost_is_positive_for_the_worse_model(metric: str) -> None:
    """Published losses are of accuracy, or more error of a regression: both count as a loss."""

    def of(strategy: str, value: float) -> Row:
        values = {"accuracy": None, "loss": None, metric: value}
        return Row.of([{**each, **values} for each in row(strategy, [value], epsilon=0.5).results])

    best, worse = (0.9, 0.7) if metric == "accuracy" else (0.7, 0.9)
    made = table([of("pooled", best), of("a", worse)], study(published={"a": 0.25}))
    columns = {str(column.header): list(column.cells) for column in made.columns}
    assert columns["lost"] == ["0.0000", "0.2000"]
    assert columns["published"] == ["–", "0.25"]


@pytest.mark.parametrize(
    ("public", "private", "shared"),
    [
        ("mnist:4v6", "mnist:3v5", False),
        ("mnist:4v6", "mnist:6v8", True),
        ("mnist", "mnist:3v5", True),
        ("adult:workclass", "adult", True),
        ("digits:3v5", "mnist:3v5", False),
        ("mnist:4v6", None, False),
    ],
)
def test_two_pairs_of_digits_share_no_record(public: str, private: str, shared: bool) -> None:
    assert shares_records(public, private) is shared


@pytest.mark.parametrize("name", ["dynamic2022", "l2p2021"])
def test_the_papers_experiments_are_tuned_on_public_digits_and_know_what_was_published(
    name: str,
) -> None:
    experiment = read_experiment(built_in_experiments()[name])
    assert experiment.tuning is not None
    assert not shares_records(experiment.tuning.on, experiment.data.name)
    axes = experiment.compare
    assert axes is not None
    labels = {entry.title for entry in axes.strategies}
    assert {"agd", "objective", "output", "sgd-adv"} <= labels
    curves = axes.published_accuracies
    assert curves["L2P"][0.05] == pytest.approx(0.812)
    assert curves["agd"][0.8] == pytest.approx(0.922)
    assert experiment.privacy.delta == 1e-8
    assert {cell.experiment.privacy.adjacency for cell in cells(experiment)} == {"add-remove"}


@pytest.mark.parametrize(
    ("name", "epsilon", "published"), [("l2p2021_svm", 0.1, 0.888), ("l2p2021_mlp", 0.05, 0.714)]
)
def test_the_other_panels_of_learned_protection_know_what_was_published(
    name: str, epsilon: float, published: float
) -> None:
    experiment = read_experiment(built_in_experiments()[name])
    axes = experiment.compare
    assert axes is not None
    assert axes.published_accuracies["L2P"][epsilon] == pytest.approx(published)
    assert len(axes.published_accuracies["L2P"]) == len(axes.epsilons)
    titles = {entry.title for entry in axes.strategies}
    assert titles == {"gradient-perturbation", *axes.published_accuracies}
    assert {"L2P", "agd", "sgd-adv"} <= titles
    assert {cell.experiment.privacy.adjacency for cell in cells(experiment)} == {"add-remove"}
