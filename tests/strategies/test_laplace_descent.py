"""Laplace gradient descent: pure differential privacy, round by round."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.events import PoissonPureEvent, PureEvent
from tests.federation.worlds import build
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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delta": 1e-6, "law": "l2-laplace"}, "delta must be 0"),
        ({"schedule": "dynamic"}, "schedule must be 'uniform'"),
        ({"calibration": "textbook"}, "calibration must be 'exact'"),
        ({"accountant": "rdp"}, "accountant must be 'auto' or 'basic'"),
        ({"law": "gaussian"}, "gradient-perturbation has it"),
        ({"rounds": 10**9, "epsilon": 1e-6}, "noise_stddev must lie between"),
    ],
)
def test_what_laplace_descent_cannot_do_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build("gradient-perturbation", TASK, **{"rounds": 4, "delta": 0.0, **options})
