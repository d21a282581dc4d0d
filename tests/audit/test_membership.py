"""Membership inference: curves by hand, LiRA on models whose memory is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedpriv.audit.membership import confidence_scores, lira_scores, roc


def test_a_curve_by_hand() -> None:
    curve = roc(np.array([0.9, 0.8, 0.3]), np.array([0.7, 0.3, 0.1, 0.0]))
    assert curve.false_positives.tolist() == [0, 0, 0, 0.25, 0.5, 0.75, 1]
    assert curve.true_positives.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3, 1, 1, 1])
    # Of 12 pairs the member is ahead in 10, and level in one.
    assert curve.area == pytest.approx(10.5 / 12)
    assert curve.advantage == pytest.approx(2 / 3)
    assert curve.at(0.3) == pytest.approx(2 / 3)
    assert curve.at(0.0) == pytest.approx(2 / 3)


def test_guessing_is_a_half() -> None:
    """2 × 4,000 scores: the area has a standard deviation of 0.0065."""
    rng = np.random.default_rng(0)
    assert abs(roc(rng.normal(size=4000), rng.normal(size=4000)).area - 0.5) < 0.03


def test_confidence_falls_with_the_loss() -> None:
    losses = np.array([0.0, 1e-6, 0.1, 0.6931472, 5.0, 1e4])
    scores = confidence_scores(losses)
    assert (np.diff(scores) < 0).all()
    assert scores[3] == pytest.approx(0, abs=1e-6)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.4), (1.5, 0.8)])
def test_lira_finds_what_the_loss_hides(memory: float, least: float) -> None:
    """Records differ in how hard they are by ten times what a model remembers of one."""
    rng = np.random.default_rng(1)
    members = rng.random((40, 200)) < 0.5
    hard = rng.normal(0, 15, 200)
    confidence = hard + memory * members + rng.normal(0, 1, members.shape)
    losses = np.logaddexp(0, -confidence)
    lira = lira_scores(losses, members)
    by_lira, by_loss = (
        roc(scores[members & np.isfinite(scores)], scores[~members & np.isfinite(scores)]).area
        for scores in (lira, -losses)
    )
    assert least < by_lira < (0.6 if memory == 0 else 0.95)
    assert by_loss < 0.6


def test_a_score_needs_shadows_of_both_kinds() -> None:
    members = np.array([[True], [True], [True], [False]])
    assert np.isnan(lira_scores(np.ones((4, 1)), members)).all()


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        roc(np.empty(0), np.ones(3))
