"""Findings are computed from the numbers, and said only if the seeds support them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.simulations.compare.findings import findings
from fedpriv.simulations.compare.intervals import mean_interval, paired_difference
from fedpriv.simulations.compare.panels import panel
from fedpriv.simulations.compare.plots import save_plot, text_plot
from fedpriv.simulations.compare.rows import Row, sorted_rows
from tests.simulations.compare.rows import ALONE, EXACT, GOOD, NOISY, row


def test_an_interval_is_students() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    interval = mean_interval(values)
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx(expected, rel=1e-12)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """4000 intervals of 5 normals: a right coverage of 95 % fails with probability < 1e-9."""
    rng = np.random.default_rng(5)
    hits = sum(
        abs(interval.mean) <= (interval.half_width or 0)
        for interval in (mean_interval(list(draw)) for draw in rng.normal(size=(4000, 5)))
    )
    low, high = stats.binom.ppf([5e-10, 1 - 5e-10], 4000, 0.95)
    assert low <= hits <= high
    # Teeth: intervals by the normal quantile, which forget that s is estimated, cover 88 %.
    assert not low <= stats.binom.mean(4000, 0.8782) <= high


def test_one_seed_has_no_interval_and_no_findings() -> None:
    assert mean_interval([0.7]).bounds is None
    (only,) = findings([row("non-private", [0.7]), row("pathak", [0.6], epsilon=1.0)])
    assert "One seed" in only


def test_what_no_seed_changes_is_exact() -> None:
    assert mean_interval([0.1, 0.1, 0.1]).bounds == [0.1, 0.1]
    assert paired_difference([0.3, 0.3], [0.1, 0.1]).half_width == 0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.floats(-1, 1))
def test_pairing_removes_what_seeds_share(values: list[float], shift: float) -> None:
    interval = paired_difference([value + shift for value in values], values)
    assert interval.mean == pytest.approx(shift, abs=1e-12)
    assert (interval.half_width or 0) < 1e-12


def test_the_best_strategy_of_a_budget_is_named_with_its_lead_over_the_next() -> None:
    rows = [
        row("own", GOOD, epsilon=1.0),
        row("rival", [value - 0.02 for value in GOOD], epsilon=1.0),
        row("noisy", NOISY, epsilon=1.0),
        row("own", NOISY, epsilon=0.1),
        row("rival", NOISY[::-1], epsilon=0.1),
    ]
    undecided, decided = findings(rows)[:2]
    assert undecided == "At ε = 0.1 own and rival cannot be told apart."
    assert decided == "At ε = 1 own is ahead of rival, the next of 2, by 2.00 points."
    close = [*rows[:1], row("rival", GOOD[::-1], epsilon=1.0), rows[2]]
    assert findings(close)[0] == (
        "At ε = 1 own and rival cannot be told apart, and own is ahead of noisy."
    )
    fourth = [*close, row("noisier", NOISY, epsilon=1.0)]
    assert findings(fourth)[0].endswith("and own is ahead of the other 2.")
    assert not any("ahead" in finding for finding in findings(rows[:1]))


def test_regressions_are_led_by_the_smallest_error() -> None:
    def regression(label: str, rmse: float, loss: float) -> Row:
        errors = [rmse, rmse + 0.01, rmse - 0.01]
        one = row(label, [0.0] * 3, epsilon=1.0, loss=loss)
        results = [
            {**result, "accuracy": None, "rmse": error}
            for result, error in zip(one.results, errors, strict=True)
        ]
        return Row.of(results)

    # Losses of different kinds say nothing about each other.
    (sentence,) = findings([regression("huber", 0.5, 0.1), regression("squared", 0.4, 0.2)])
    assert sentence == "At ε = 1 squared is ahead of huber, by 0.1 of RMSE."


def test_close_to_non_private_is_said_with_the_interval_of_the_loss() -> None:
    sentences = findings([EXACT, row("gradient-perturbation", GOOD, epsilon=1.0)])
    (sentence,) = [f for f in sentences if "within 1 point" in f]
    assert "gradient-perturbation" in sentence
    low, high = map(float, re.findall(r"CI (-?[\d.]+) to (-?[\d.]+)", sentence)[0])
    losses = [100 * (0.776 - value) for value in GOOD]
    expected = stats.t.interval(0.95, 4, loc=np.mean(losses), scale=stats.sem(losses))
    assert (low, high) == pytest.approx(expected, abs=0.005)


def test_what_is_better_than_without_noise_gains_and_loses_nothing_negative() -> None:
    better = [value + 0.005 for value in GOOD]
    sentences = findings([EXACT, row("gradient-perturbation", better, epsilon=1.0)])
    (sentence,) = [f for f in sentences if "within 1 point" in f]
    gain = 100 * (np.mean(better) - 0.776)
    assert f"(it gains {gain:.2f} points" in sentence
    assert "loses" not in sentence


def test_close_is_not_said_when_the_seeds_leave_it_open() -> None:
    """The mean is within a point, the interval is not."""
    wide = [0.79, 0.75, 0.77, 0.79, 0.76]
    assert np.mean(wide) > 0.766
    assert not [
        f
        for f in findings([EXACT, row("gradient-perturbation", wide, epsilon=1.0)])
        if "within 1 point" in f or "more than 1 point" in f
    ]


def test_a_loss_of_more_than_a_point_is_said() -> None:
    sentences = findings([EXACT, row("pathak", NOISY, epsilon=0.5)])
    assert any(
        "pathak loses more than 1 point to non-private averaging (77.6 %) at ε = 0.5" in f
        for f in sentences
    )


def test_twins_are_compared_at_every_epsilon_and_only_where_it_is_decided() -> None:
    rows = [
        row("gradient-perturbation", GOOD, epsilon=0.5),
        row("local-gradient-perturbation", [0.6, 0.61, 0.6, 0.62, 0.6], epsilon=0.5),
        row("gradient-perturbation", GOOD, epsilon=1.0),
        row("local-gradient-perturbation", GOOD[::-1], epsilon=1.0),
    ]
    sentences = findings(rows)
    assert any("is above local-gradient-perturbation at ε = 0.5" in f for f in sentences)
    assert any(
        "cannot be distinguished from local-gradient-perturbation at ε = 1." in f for f in sentences
    )
    assert not any("every ε" in f for f in sentences)
    higher = [
        row("gradient-perturbation", GOOD, epsilon=1.0),
        row("local-gradient-perturbation", [0.7, 0.71, 0.7, 0.72, 0.7], epsilon=1.0),
    ]
    assert any("at every ε" in f for f in findings([*rows[:2], *higher]))


def test_a_twin_that_wins_is_reported_against_the_story() -> None:
    sentences = findings(
        [
            row("output-perturbation", NOISY, epsilon=1.0),
            row("local-output-perturbation", GOOD, epsilon=1.0),
        ]
    )
    assert any(
        "output-perturbation is below local-output-perturbation at ε = 1" in f for f in sentences
    )


def test_equal_weights_are_explained_by_the_smallest_party() -> None:
    fair = row(
        "output-perturbation",
        GOOD,
        epsilon=1.0,
        label="proportional",
        options={"weights": "proportional"},
        noise_stddev=0.34,
    )
    even = row(
        "output-perturbation",
        NOISY,
        epsilon=1.0,
        label="equal",
        options={"weights": "equal"},
        noise_stddev=8.06,
    )
    (sentence,) = [f for f in findings([fair, even]) if "Equal weights cost" in f]
    assert "8 of 24866 records" in sentence
    assert "records, which makes the noise 23.7 times as large" in sentence
    ruled = [
        replace(
            each,
            results=tuple(
                {
                    **result,
                    "options": {**result["options"], "regulariser": "auto"},
                    "noise_stddev": 0.33,
                    "regulariser": regulariser,
                }
                for result in each.results
            ),
        )
        for each, regulariser in ((fair, 0.01), (even, 0.2))
    ]
    (sentence,) = [f for f in findings(ruled) if "Equal weights cost" in f]
    assert "records, which asks for a λ that is 20 times as large" in sentence
    undecided = row(
        "output-perturbation", GOOD[::-1], epsilon=1.0, label="equal", options={"weights": "equal"}
    )
    assert any("cannot be distinguished" in f for f in findings([fair, undecided]))


def test_joining_is_weighed_against_training_alone() -> None:
    sentences = findings(
        [
            ALONE,
            row("gradient-perturbation", GOOD, epsilon=1.0),
            row("pathak", [0.5, 0.51, 0.52, 0.5, 0.5], epsilon=1.0),
        ]
    )
    assert any(
        "does better than by training alone (72.9 % on average over the parties) with: gradient"
        in f
        for f in sentences
    )
    assert any(
        "does worse than by training alone (72.9 % on average over the parties) with: pathak" in f
        for f in sentences
    )
    assert any(
        "Worse than always predicting the majority class (56.0 %): pathak" in f for f in sentences
    )


def test_numbers_of_parties_are_told_apart() -> None:
    rows = [EXACT, row("gradient-perturbation", GOOD, epsilon=1.0)]
    rows += [
        row("non-private", [0.77] * 5, parties=20),
        row("gradient-perturbation", NOISY, epsilon=1.0, parties=20),
    ]
    sentences = findings(rows)
    assert sentences
    assert all(f.startswith(("With 20 parties", "With 131 parties")) for f in sentences)


def test_a_row_reports_the_keys_of_a_run_with_mean_and_interval() -> None:
    values = row("gradient-perturbation", GOOD, epsilon=1.0).to_dict()
    for key in (
        "accuracy", "loss", "epsilon", "delta", "adjacency", "strategy", "rounds", "parties",
        "seconds", "simulated", "mean", "confidence_interval", "noise_stddev", "clip_fraction",
        "bytes",
    ):  # fmt: skip
        assert key in values
    assert values["mean"] == values["accuracy"] == pytest.approx(np.mean(GOOD))
    low, high = values["confidence_interval"]
    assert low < values["mean"] < high


def test_rows_are_in_the_order_of_the_table() -> None:
    rows = [
        row("b", GOOD, epsilon=1.0),
        row("a", GOOD, epsilon=1.0),
        row("a", GOOD, epsilon=0.5),
        EXACT,
    ]
    order = [(r.epsilon_budget, r.label) for r in sorted_rows(rows, ["non-private", "a", "b"])]
    assert order == [(None, "non-private"), (0.5, "a"), (1.0, "a"), (1.0, "b")]


def test_the_plot_puts_higher_accuracy_higher_and_names_everything() -> None:
    rows = [
        EXACT,
        row("good", GOOD, epsilon=0.1),
        row("good", GOOD, epsilon=1.0),
        row("bad", NOISY, epsilon=1.0),
    ]
    drawn = text_plot(panel(rows)).splitlines()
    area = [line for line in drawn if "┤" in line]
    height = {mark: next(i for i, line in enumerate(area) if mark in line) for mark in "●■─"}
    assert height["─"] <= height["●"] < height["■"]
    text = "\n".join(drawn)
    assert all(word in text for word in ("● good", "■ bad", "─ non-private", "0.1", "77.6 %"))
    marks = [line.index("●") for line in area if "●" in line]
    assert text_plot(panel([EXACT])) == ""
    assert marks


@pytest.mark.parametrize("middle", [0.6887, 0.9999])
def test_a_plot_of_accuracies_that_hardly_differ_has_another_number_at_every_row(
    middle: float,
) -> None:
    rows = [row("near", [middle + eps / 1e5] * 2, epsilon=eps) for eps in (1.0, 3.0)]
    area = [line for line in text_plot(panel(rows)).splitlines() if "┤" in line]
    numbers = [line.partition("%")[0] for line in area]
    assert len(set(numbers)) == len(numbers) == 16
    assert "●" in "".join(area)


def test_marks_that_fall_together_stand_side_by_side() -> None:
    rows = [row(label, GOOD, epsilon=e) for label in "abc" for e in (0.1, 1.0)]
    area = [line for line in text_plot(panel(rows)).splitlines() if "┤" in line]
    assert sum(line.count("●■▲") for line in area) == 2


def test_lines_that_fall_together_take_turns() -> None:
    rows = [EXACT, row("party-alone", list(EXACT.values)), row("good", GOOD, epsilon=1.0)]
    lines = text_plot(panel(rows)).splitlines()
    (drawn,) = (line for line in lines if "─┄─┄" in line)
    assert "┤" in drawn
    assert any("─ non-private" in line for line in lines)
    assert any("┄ party-alone" in line for line in lines)


def test_the_same_numbers_make_the_same_pictures(tmp_path: Path) -> None:
    rows = [EXACT, row("good", GOOD, epsilon=0.1), row("bad", NOISY, epsilon=1.0)]
    first = [path.read_bytes() for path in save_plot(panel(rows), tmp_path / "a")]
    second = [path.read_bytes() for path in save_plot(panel(rows), tmp_path / "b")]
    assert len(first) == 2
    assert first == second


def test_the_order_of_a_paper_is_counted_pair_by_pair() -> None:
    rows = [
        row("a", GOOD, epsilon=1.0),
        row("b", GOOD[::-1], epsilon=1.0),
        row("c", NOISY, epsilon=1.0),
    ]
    published = {"a": 0.1, "b": 0.2, "c": 0.3}
    assert findings(rows, published)[-1] == (
        "Of 3 pairs with different published losses, 2 are in the published order, 0 in the "
        "opposite one, 1 are undecided."
    )
    reverse = {"a": 0.3, "b": 0.3, "c": 0.1}
    assert "0 are in the published order, 2 in the opposite one" in findings(rows, reverse)[-1]
