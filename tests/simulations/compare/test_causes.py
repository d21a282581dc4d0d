"""Noise or training, guessing and fairness: said only where the seeds decide it."""

from __future__ import annotations

from typing import Any

import pytest

from fedpriv.simulations.compare.cells import cells
from fedpriv.simulations.compare.findings import findings
from fedpriv.simulations.experiment.file import parse_experiment
from tests.simulations.compare.rows import GOOD, row

EXACT = row("pooled", [0.776] * 5)
WIDE = [0.70, 0.82, 0.69, 0.83, 0.76]
"""Whatever it is near to, the seeds do not tell it from that."""


def shifted(by: float, values: list[float] = GOOD) -> list[float]:
    return [value - by for value in values]


def twin(values: list[float], **other: Any) -> Any:
    return row("gradient-perturbation", values, epsilon=float("inf"), **other)


def noisy(values: list[float], epsilon: float = 0.1, **other: Any) -> Any:
    return row("gradient-perturbation", values, epsilon=epsilon, **other)


def said(*rows: Any) -> str:
    (sentence,) = [f for f in findings(rows) if "without noise" in f]
    return sentence


def test_noise_is_what_a_good_twin_does_not_lose() -> None:
    sentence = said(EXACT, twin([0.776] * 5), noisy(shifted(0.1)))
    assert "without noise cannot be distinguished from the exact joint model (77.6 %)" in sentence
    assert "noise costs it accuracy at ε = 0.1 (10.16 points, 95 % CI" in sentence
    assert sentence.endswith("it loses by noise.")


@pytest.mark.parametrize(
    ("clipped", "why"),
    [
        (0.0, "too little training: nothing was clipped"),
        (0.25, "too little training, or clipping: 25.0 % was clipped"),
        (None, "models are averaged, instead of one being fitted"),
    ],
)
def test_what_a_twin_loses_is_no_noise(clipped: float | None, why: str) -> None:
    bad = shifted(0.05)
    sentence = said(EXACT, twin(bad, clip_fraction=clipped), noisy(bad))
    assert "is below the exact joint model (77.6 %) by 5.16 points, 95 % CI" in sentence
    assert f"({why})" in sentence
    assert "noise costs it nothing that the seeds can show at ε = 0.1:" in sentence
    assert sentence.endswith("it does not lose by noise.")


def test_both_can_cost_and_budgets_are_told_apart() -> None:
    bad = shifted(0.05)
    sentence = said(EXACT, twin(bad), noisy(shifted(0.2)), noisy(bad, 1.0))
    assert "noise costs it accuracy at ε = 0.1 (15.00 points" in sentence
    assert "and nothing that the seeds can show at ε = 1: it loses by both." in sentence


def test_what_the_seeds_leave_open_is_not_said_to_be_nothing() -> None:
    """An interval of ten points around zero is no proof that noise costs nothing."""
    sentence = said(EXACT, twin(shifted(0.05)), noisy(WIDE))
    assert sentence.endswith("the seeds leave open how much of what it loses is noise.")
    sentence = said(EXACT, twin(WIDE), noisy(shifted(0.2)))
    assert sentence.endswith("the seeds leave open how much of what it loses is noise.")


def test_a_loss_of_nothing_is_said_to_be_less_than_a_point() -> None:
    assert said(EXACT, twin([0.776] * 5), noisy([0.776] * 5)).endswith(
        "it loses less than a point."
    )


def test_a_network_has_its_twin_and_no_exact_model() -> None:
    (sentence,) = [f for f in findings([twin(GOOD), noisy(shifted(0.1))]) if "Noise" in f]
    assert sentence == (
        "Noise costs gradient-perturbation accuracy at ε = 0.1 (10.00 points), against its twin "
        "without noise."
    )


def test_a_twin_alone_is_held_against_the_exact_model() -> None:
    assert "is below the exact joint model" in said(EXACT, twin(shifted(0.05)))


def test_twins_take_no_part_in_other_findings() -> None:
    """A model without noise is not praised for being near one without noise."""
    with_twin = findings([row("non-private", [0.776] * 5), noisy(shifted(0.1)), twin(GOOD)])
    assert not [f for f in with_twin if "within 1 point" in f]


def axes(epsilons: list[Any], **study: Any) -> list[str]:
    values = {
        "data": {"name": "synthetic"},
        "strategy": {"name": "gradient-perturbation", "learning_rate": 0.1},
        "compare": {"epsilons": epsilons, "seeds": 1},
        **study,
    }
    return [cell.experiment.strategy.title for cell in cells(parse_experiment(values))]


def twins(*, at: dict[str, Any] | None = None, **strategy: Any) -> list[float | None]:
    """Whose settings the runs without noise have."""
    study = {
        "data": {"name": "synthetic"},
        "strategy": {"name": "gradient-perturbation", **strategy},
        "compare": {"epsilons": [0.1, 1, "inf"], "seeds": 1, "at": at or {}},
    }
    runs = [cell.experiment for cell in cells(parse_experiment(study))]
    free = [run for run in runs if run.strategy.name == strategy.get("name", GRADIENT)]
    return [run.privacy.twin_of for run in free if run.privacy.noise_free]


GRADIENT = "gradient-perturbation"


def test_there_is_a_twin_for_each_budget_that_settings_follow_from() -> None:
    assert twins() == twins(clip=0.5) == [0.1, 1.0]
    assert twins(name="output-perturbation") == [0.1, 1.0]
    assert twins(name="output-perturbation", regulariser="model") == [None]
    assert twins(clip=0.5, learning_rate=0.1) == [None]
    assert twins(clip=0.5, learning_rate=0.1, at={"1": {"rounds": 7}}) == [0.1, 1.0]
    assert twins(at={"inf": {"rounds": 7}}) == [None]


def test_every_twin_is_held_against_its_own_private_run() -> None:
    good = [0.776] * 5
    rows = [
        EXACT,
        twin(shifted(0.05), twin_of=0.1, clip_fraction=None),
        noisy(shifted(0.2)),
        twin(good, twin_of=1.0),
        noisy(good, 1.0),
    ]
    assert [each.budget for each in rows] == ["", "∞, as at 0.1", "0.1", "∞, as at 1", "1"]
    one, other = [f for f in findings(rows) if "without noise" in f]
    assert "95 % CI 5.02 to 5.30 (λ is made for noise, or models are averaged," in one
    assert "without noise, with its settings of ε = 0.1, is below the exact joint model" in one
    assert "noise costs it accuracy at ε = 0.1 (15.00 points" in one
    assert "with its settings of ε = 1, cannot be distinguished from the exact" in other
    assert "nothing that the seeds can show at ε = 1: it loses less than a point" in other


def test_the_exact_model_joins_the_frame_with_the_first_twin() -> None:
    assert "pooled" not in axes([0.1, 1])
    assert axes([0.1, "inf"]).count("pooled") == 1
    named = {"strategies": ["pooled", "agd"], "epsilons": [1, "inf"], "seeds": 1}
    assert axes([], compare=named).count("pooled") == 1
    assert "pooled" not in axes([0.1, "inf"], model={"name": "mlp", "hidden": [3]})


# Guessing


def test_what_is_no_better_than_the_majority_is_told_from_what_is_worse() -> None:
    sentences = findings(
        [
            noisy(GOOD, 1.0, label="good"),
            noisy([0.55, 0.56, 0.57, 0.56, 0.55], 1.0, label="same"),
            noisy([0.50, 0.51, 0.50, 0.52, 0.51], 1.0, label="worse"),
        ]
    )
    worse = "Worse than always predicting the majority class (56.0 %): worse (ε = 1)."
    same = (
        "No better than always predicting the majority class (56.0 %), as far as the seeds can "
        "tell: same (ε = 1)."
    )
    assert worse in sentences
    assert same in sentences


def test_the_majority_is_that_of_each_seeds_test_records() -> None:
    """Seeds draw other test records: an accuracy is held against the majority of its own."""
    from fedpriv.simulations.compare.rows import Row

    shares = [0.50, 0.60, 0.55, 0.65, 0.52]
    results = [
        {**noisy([share + 0.01]).results[0], "seed": seed, "majority_accuracy": share}
        for seed, share in enumerate(shares)
    ]
    assert not [f for f in findings([Row.of(results)]) if "majority" in f]
    unpaired = [{**result, "majority_accuracy": 0.564} for result in results]
    assert [f for f in findings([Row.of(unpaired)]) if "majority" in f]  # teeth


# Fairness


def served(worst: float, gap: float) -> dict[str, Any]:
    return {"worst_party": worst, "fairness_gap": gap}


def test_the_worst_served_party_is_told_and_where_noise_costs_it_more() -> None:
    sentences = findings(
        [
            row("non-private", GOOD, **served(0.54, 0.34)),
            noisy(GOOD, 0.1, **served(0.40, 0.45)),
            noisy(GOOD, 1.0, **served(0.54, 0.34)),
        ]
    )
    assert sentences[-1] == (
        "With non-private averaging the worst-served party has 54.0 %, 34.0 points less than the "
        "best-served one; the worst-served has less with: gradient-perturbation (ε = 0.1); the gap "
        "is wider with: gradient-perturbation (ε = 0.1)."
    )


def test_a_gap_that_shrinks_because_all_is_bad_is_no_praise() -> None:
    rows = [row("non-private", GOOD, **served(0.54, 0.34)), noisy(GOOD, **served(0.30, 0.1))]
    assert "gap is" not in findings(rows)[-1]


def test_networks_tell_their_own_numbers() -> None:
    sentences = findings([noisy(GOOD, 1.0, **served(0.4, 0.3)), twin(GOOD, **served(0.5, 0.2))])
    assert sentences[-1] == (
        "The worst-served party has 40.0 % with gradient-perturbation (ε = 1; 30.0 points less "
        "than the best-served); 50.0 % with gradient-perturbation (without noise; 20.0 points less "
        "than the best-served)."
    )


def test_without_parties_that_were_measured_nothing_is_said() -> None:
    rows = [row("non-private", GOOD), noisy(GOOD)]
    assert not [f for f in findings(rows) if "worst-served" in f]
