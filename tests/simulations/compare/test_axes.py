"""`compare.over`: any key as an axis of a comparison, its curves, and the keys that it refuses."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.compare.axes import parse_axes
from fedpriv.simulations.compare.cells import cells
from fedpriv.simulations.compare.over import best_points
from fedpriv.simulations.compare.panels import panel
from fedpriv.simulations.compare.plots import text_plot
from fedpriv.simulations.compare.rows import Row
from fedpriv.simulations.experiment.file import Experiment, parse_experiment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def study(over: dict[str, list[Any]], **tables: dict[str, Any]) -> Experiment:
    values: dict[str, dict[str, Any]] = {
        "data": {"name": "synthetic", "partition": "iid", "parties": 4},
        "model": {"l2": 0.01},
        "strategy": {"name": "gradient-perturbation", "rounds": 5},
    }
    listed = ["gradient-perturbation", "output-perturbation"]
    compare = {"strategies": listed, "seeds": 2, "over": over, **tables.pop("compare", {})}
    return parse_experiment({**values, **tables, "compare": compare})


def tried(experiment: Experiment, strategy: str, key: str) -> list[Any]:
    table, _, name = key.partition(".")
    values = [
        cell.experiment.to_dict()[table][name]
        for cell in cells(experiment)
        if cell.experiment.strategy.name == strategy
    ]
    return list(dict.fromkeys(values))


def test_an_option_is_an_axis_of_the_strategies_that_know_it() -> None:
    swept = study({"rounds": [3, 9]})
    assert tried(swept, "gradient-perturbation", "strategy.rounds") == [3, 9]
    by_name: dict[str, set[str]] = {}
    for cell in cells(swept):
        by_name.setdefault(cell.experiment.strategy.name, set()).add(str(dict(cell.point)))
    assert by_name["gradient-perturbation"] == {"{'strategy.rounds': 3}", "{'strategy.rounds': 9}"}
    assert by_name["output-perturbation"] == by_name["non-private"] == {"{}"}
    assert len({cell.key for cell in cells(swept)}) == len(cells(swept)) == 2 * (2 + 1 + 2)


@pytest.mark.parametrize(
    ("key", "full", "values"),
    [
        ("clip", "strategy.clip", [0.5, 2.0]),
        ("parties", "data.parties", [2, 8]),
        ("model.l2", "model.l2", [0.01, 0.1]),
        ("strategy.optimiser", "strategy.optimiser", ["sgd", "adam"]),
        ("delta", "privacy.delta", [1e-6, 1e-4]),
        ("adjacency", "privacy.adjacency", ["add-remove", "replace-one"]),
    ],
)
def test_a_key_may_be_bare_or_full_and_of_any_table(key: str, full: str, values: list[Any]) -> None:
    swept = study({key: values}, compare={"strategies": ["gradient-perturbation"]})
    assert tried(swept, "gradient-perturbation", full) == values
    points = {str(v) for c in cells(swept) for v in c.point.values()}
    assert points == set(map(str, values))


def test_the_axis_wins_over_an_entry_and_a_budget() -> None:
    entry = {"name": "gradient-perturbation", "rounds": 50, "override": {"model.l2": 0.5}}
    axes = {"strategies": [entry], "epsilons": [1.0], "at": {"1": {"rounds": 70}}}
    swept = study({"rounds": [3, 9], "model.l2": [0.01, 0.1]}, compare=axes)
    chosen = [c.experiment for c in cells(swept) if c.experiment.strategy.label is None]
    noisy = [e for e in chosen if e.strategy.name == "gradient-perturbation"]
    assert {(e.strategy.options["rounds"], e.model.l2) for e in noisy} == {
        (rounds, l2) for rounds in (3, 9) for l2 in (0.01, 0.1)
    }


def test_the_frame_is_where_there_are_minimisers() -> None:
    found = {
        (cell.experiment.strategy.name, cell.experiment.model.l2)
        for cell in cells(
            study({"model.l2": [0, 0.1]}, compare={"strategies": ["gradient-perturbation"]})
        )
    }
    assert ("non-private", 0.1) in found
    assert ("non-private", 0.0) not in found
    assert ("gradient-perturbation", 0.0) in found


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"roundz": [1]}, "'roundz' is not a known key. Did you mean 'rounds'?"),
        ({"model.l3": [1]}, "Did you mean 'model.l2'?"),
        ({"planet.size": [1]}, "'planet.size' is not a known key"),
        ({"epsilon": [1]}, "list budgets in compare.epsilons"),
        ({"run.seed": [1]}, "compare.seeds"),
        ({"strategy.name": ["agd"]}, "compare.strategies"),
        ({"rounds": []}, "at least one value"),
        ({"rounds": [1], "clip": [1.0], "l2": [0.1]}, "one key, or two different ones"),
        ({"rounds": [1], "strategy.rounds": [2]}, "one key, or two different ones"),
        ({"rounds": [0]}, "strategy.rounds must be at least 1, got 0"),
        ({"l2": ["much"]}, "model.l2 must be a number"),
    ],
)
def test_what_cannot_be_an_axis_is_refused_before_anything_runs(
    over: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        cells(study(over))


def test_numbers_of_parties_are_named_once() -> None:
    with pytest.raises(ValueError, match="must not both"):
        cells(study({"parties": [2, 4]}, compare={"parties": [3]}))


def test_axes_of_a_command_are_lists_whose_words_need_no_quotes() -> None:
    assert parse_axes(["rounds=10,30", "schedule=uniform,dynamic", "clip=0.1"]) == {
        "rounds": [10, 30],
        "schedule": ["uniform", "dynamic"],
        "clip": [0.1],
    }
    assert parse_axes(['schedule={name="exponential",decay=0.9},{name="step",every=2,factor=2}'])
    for wrong in ("rounds", "rounds=", "=3"):
        with pytest.raises(ValueError, match="--over must be written"):
            parse_axes([wrong])


def row(value: int, accuracies: tuple[float, ...], **point: Any) -> Row:
    results = [
        {
            "label": "noisy",
            "strategy": "gradient-perturbation",
            "epsilon_budget": 1.0,
            "seed": seed,
            "accuracy": accuracy,
            "parties": 4,
        }
        for seed, accuracy in enumerate(accuracies)
    ]
    return Row.of(results, point={"strategy.rounds": value, **point})


def test_findings_name_the_highest_point_and_what_the_seeds_cannot_decide() -> None:
    rows = [
        row(1, (0.50, 0.51, 0.52)),
        row(10, (0.80, 0.82, 0.84)),
        row(100, (0.83, 0.79, 0.82)),
    ]
    best, warning = best_points(rows)
    assert best.startswith("noisy at ε = 1 is highest at strategy.rounds = 10 (82.0 %)")
    assert "above strategy.rounds = 1 (" in best
    assert "undecided against strategy.rounds = 100" in best
    assert "on private records such a choice would be a release" in warning


def test_a_curve_is_drawn_against_its_key_with_one_column_for_each_value() -> None:
    rows = [
        row(rounds, (0.5 + rounds / 300,), clip=clip) for clip in (1, 2) for rounds in (1, 10, 100)
    ]
    drawn = text_plot(panel(rows, ("strategy.rounds", "clip")))
    ticks = next(line for line in drawn.splitlines() if line.split() == ["1", "10", "100"])
    assert ticks.index("100") - ticks.index("10") == pytest.approx(
        ticks.index("10") - ticks.index("1"), abs=2
    )  # a factor of ten is as wide as another
    assert "noisy, clip = 1" in drawn
    assert "noisy, clip = 2" in drawn
    assert "strategy.rounds" in drawn


def test_a_command_writes_curves_tables_and_findings(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(
        '[data]\nname = "synthetic"\n[strategy]\nname = "gradient-perturbation"\n'
        "[run]\ntraining_metrics = true\n[compare]\nseeds = 2\n"
    )
    done = fedpriv(
        "compare", file, "--over", "rounds=2,8", "--workers", 1, "--out", out
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "accuracy against strategy.rounds" in done.out
    assert "excess risk against strategy.rounds" in done.out
    assert "is highest at strategy.rounds" in done.out
    with (out / "rows.csv").open() as table:
        rows = [r for r in csv.DictReader(table) if r["label"] == "gradient-perturbation"]
    assert [r["strategy.rounds"] for r in rows] == ["2", "8"]
    assert all(float(r["excess_risk"]) > 0 for r in rows)
    assert "strategy.rounds" in (out / "report.md").read_text()
    again = fedpriv("compare", "--resume", out, "--workers", 1, "--json").json()
    assert [r["over"] for r in again if r["private"]] == [
        {"strategy.rounds": 2},
        {"strategy.rounds": 8},
    ]
    other = fedpriv("compare", file, "--over", "rounds=3", "--resume", out)
    assert "this is another comparison" in other.message
