"""Laplace gradient descent: pure differential privacy, round by round."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import CLIP_MARGIN, Clipping, clipped_gradient_sums
from fedpriv.privacy.events import PoissonPureEvent, PureEvent
from tests.federation.worlds import build
from tests.learning.differentiable import differentiable_scores
from tests.strategies.test_sensitivity_by_hand import (
    CLIP,
    EXACT,
    ONE,
    TASK,
    TWO,
    WIDTH,
    Drawn,
    clipped_sum,
    drawn,
    one_round,
)

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency

__all__ = ["drawn"]  # the fixture


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("law", ["auto", "l2-laplace", "l1-laplace"])
def test_laplace_descent_splits_epsilon_over_its_rounds(
    adjacency: Adjacency, law: str, drawn: list[Drawn]
) -> None:
    strategy = build(
        "gradient-perturbation",
        TASK,
        rounds=4,
        clip=CLIP,
        law=law,
        epsilon=2.0,
        delta=0.0,
        adjacency=adjacency.value,
    )
    one_round(strategy)
    plan: Any = strategy.plan
    ((mechanism, width),) = drawn
    moved = clipped_sum(CLIP, adjacency, 40) + sqrt(3) * plan.step
    spread = {"l1-laplace": sqrt(2 * WIDTH)}.get(law, sqrt(WIDTH + 1))
    assert mechanism.name == (law if law != "auto" else "l2-laplace")
    assert width == WIDTH
    assert mechanism.noise_stddev == pytest.approx(spread * moved / (2.0 / 4), rel=EXACT)
    event = PureEvent(adjacency=adjacency, epsilon=0.5)
    assert [plan.event(index) for index in range(plan.rounds)] == [event] * 4
    assert (plan.epsilon, plan.accountant) == (2.0, "basic")


def test_laplace_descent_on_samples_is_charged_what_sampling_leaves_of_it() -> None:
    strategy = build(
        "gradient-perturbation",
        TASK,
        rounds=4,
        sampling_rate=0.1,
        epsilon=2.0,
        delta=0.0,
        adjacency="add-remove",
    )
    plan: Any = strategy.plan
    event = plan.event(0)
    assert isinstance(event, PoissonPureEvent)
    assert (event.epsilon, event.sampling_rate) == (plan.mechanisms[0].epsilon, 0.1)
    assert event.epsilon == pytest.approx(log(1 + (exp(0.5) - 1) / 0.1))
    assert plan.epsilon == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize("adjacency", [ONE, TWO])
@pytest.mark.parametrize("law", ["auto", "l1-laplace"])
def test_clipped_in_l1_the_noise_is_for_an_l1_sensitivity(
    adjacency: Adjacency, law: str, drawn: list[Drawn]
) -> None:
    """2C or C, what float64 sums can add, and a step a coordinate for the grid: by hand."""
    options: dict[str, Any] = {"law": law, "clip": CLIP, "clip_in": "l1", "rounds": 4}
    strategy = build(
        "gradient-perturbation", TASK, epsilon=2.0, delta=0.0, adjacency=adjacency.value, **options
    )
    one_round(strategy)
    plan: Any = strategy.plan
    ((mechanism, width),) = drawn
    records = 40 if adjacency is ONE else 80
    rounding = 2 * (records * 129 + 2 * records * records) * 2.0**-53
    moved = CLIP * ((2 if adjacency is ONE else 1) + rounding) + WIDTH * plan.step
    assert (mechanism.name, width) == ("laplace", WIDTH)
    assert mechanism.noise_stddev == pytest.approx(sqrt(2) * moved / (2.0 / 4), rel=EXACT)
    assert [plan.event(index) for index in range(4)] == [
        PureEvent(adjacency=adjacency, epsilon=0.5)
    ] * 4
    assert WIDTH * plan.step < 0.011 * CLIP * adjacency.sum_sensitivity
    assert "clipped in L1" in plan.query


@pytest.mark.parametrize("model", ["linear", "softmax", "network"])
def test_no_record_moves_a_sum_by_more_than_c_in_l1(model: str) -> None:
    """Against gradients by autograd; clipped in L2 the same records move it further."""
    from fedpriv.learning import LinearModel, Logistic, MlpModel, Model, Softmax

    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.normal(size=(60, 6)) * rng.choice([0.1, 1, 9], (60, 1)))
    features[7, 2] = float("inf")
    labels = torch.from_numpy(rng.choice([-1.0, 1.0], 60))
    made: dict[str, tuple[Model, Any]] = {
        "linear": (LinearModel(width=6), Logistic()),
        "softmax": (LinearModel(width=6, classes=3), Softmax(classes=3)),
        "network": (MlpModel(widths=(6, 4, 1), activation="tanh"), Logistic()),
    }
    network, loss = made[model]
    if model == "softmax":
        labels = torch.from_numpy(rng.integers(0, 3, 60))
    theta = torch.from_numpy(rng.normal(size=network.dimension))
    clip = 0.7

    def contribution(record: int, norm: Any) -> tuple[Any, float]:
        """What one record adds, and its length before it was clipped."""
        batch = RecordBatch(features=features[[record]], labels=labels[[record]])
        sums = clipped_gradient_sums(
            network, loss, theta, batch, Clipping(clip_norm=clip, norm=norm)
        )
        return sums.value[0], float(sums.norms[0])

    lengths = []
    for record in range(60):
        added, before = contribution(record, "l1")
        length = float(added.abs().sum())
        assert length <= clip
        if record == 7:
            assert (length, before) == (0.0, float("inf"))
            continue
        point = theta.clone().requires_grad_()
        scores = differentiable_scores(network, point, features[[record]])
        value = loss.value(scores, labels[[record]]).sum()
        (exact,) = torch.autograd.grad(value, point)
        expected = exact * min(1.0, (1 - CLIP_MARGIN) * clip / float(exact.abs().sum()))
        np.testing.assert_allclose(added, expected, rtol=1e-6, atol=1e-9)
        assert before == pytest.approx(float(exact.abs().sum()), rel=1e-6)
        lengths.append((before, float(contribution(record, "l2")[0].abs().sum())))
    assert min(before for before, _ in lengths) < clip < max(before for before, _ in lengths)
    assert max(length for _, length in lengths) > 1.2 * clip  # what an L2 clip would let through


def test_gradients_in_l1_are_clipped_in_float64_alone() -> None:
    from fedpriv.learning import LinearModel, Logistic

    batch = RecordBatch(features=torch.zeros((1, 3)), labels=torch.ones(1))
    with pytest.raises(ValueError, match="float64"):
        clipped_gradient_sums(
            LinearModel(width=3),
            Logistic(),
            torch.zeros(3),
            batch,
            Clipping(clip_norm=1.0, norm="l1"),
        )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delta": 1e-6, "law": "l2-laplace"}, "delta must be 0"),
        ({"schedule": "dynamic"}, "schedule must be 'uniform'"),
        ({"calibration": "textbook"}, "calibration must be 'exact'"),
        ({"accountant": "rdp"}, "accountant must be 'auto' or 'basic'"),
        ({"law": "gaussian"}, "gradient-perturbation has it"),
        ({"clip_in": "l1", "law": "l2-laplace"}, "law must be l1-laplace"),
        ({"clip_in": "l1", "delta": 1e-6}, "clip_in must be 'l2' with Gaussian noise"),
        ({"rounds": 10**6, "epsilon": 1e-9}, "noise_stddev must lie between"),
    ],
)
def test_what_laplace_descent_cannot_do_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build("gradient-perturbation", TASK, **{"rounds": 4, "delta": 0.0, **options})
