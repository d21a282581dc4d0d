"""The noise table of Jayaraman, Wang, Evans and Gu 2018, drawn from the strategies.

m = 100 parties of 500 records, λ = 0.01, ε = 0.5, G = 1, T = 100, δ = 1e-3. The paper's Laplace
noise is coordinate-wise, the form that is called unsound-laplace here; its objective perturbation
leaves the Jacobian out, which a loss without curvature makes true.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.party.draws import draw
from fedpriv.learning.losses import HuberHinge
from fedpriv.privacy.budget import BudgetExceeded
from tests.federation.worlds import SilentFederation, build, linear_task, streams, train

M, SIZE, LAMBDA = 100, 500, 0.01
WIDTH = 1000
BUDGET: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-3}
TASK = linear_task((SIZE,) * M, WIDTH, regulariser=LAMBDA)
SEEDS = 20
GRADIENT: dict[str, Any] = {"clip": 1.0, "rounds": 100, "learning_rate": 1.0}
LAPLACE: dict[str, Any] = {"law": "unsound-laplace"}

GAUSSIAN_KURTOSIS, LAPLACE_KURTOSIS = 3.0, 6.0

# strategy, options, published standard deviation, kurtosis of the noise. Of m Laplace variables
# averaged, the excess kurtosis is divided by m.
TABLE: list[tuple[str, dict[str, Any], float, float]] = [
    ("pathak", LAPLACE, 1.131, LAPLACE_KURTOSIS),
    ("local-output-perturbation", LAPLACE, 0.1131, 3 + 3 / M),
    ("output-perturbation", LAPLACE, 0.01131, LAPLACE_KURTOSIS),
    (
        "local-gradient-perturbation",
        GRADIENT | {"calibration": "unsound-textbook"},
        0.00566,
        GAUSSIAN_KURTOSIS,
    ),
    (
        "gradient-perturbation",
        GRADIENT | {"calibration": "unsound-textbook"},
        0.000566,
        GAUSSIAN_KURTOSIS,
    ),
    ("gradient-perturbation", GRADIENT | {"calibration": "textbook"}, 0.002974, GAUSSIAN_KURTOSIS),
    ("gradient-perturbation", GRADIENT | {"calibration": "exact"}, 0.001844, GAUSSIAN_KURTOSIS),
]


def first_release(name: str, options: dict[str, Any], seed: int) -> np.ndarray:
    strategy = build(name, TASK, seed=seed, **BUDGET, **options)
    query = strategy.ask()
    assert query is not None
    strategy.learn(SilentFederation(TASK, sampling=streams(seed, "parties")).sum(query))
    return strategy.theta


def assert_stddev(noise: np.ndarray, published: float, kurtosis: float, *, slack: float) -> None:
    """The mean square is within 7 standard errors, plus what rounding and printing may shift.

    7 standard errors are 3e-12 by the central limit theorem, for sums of 20 000 terms.
    """
    error = 7 * sqrt((kurtosis - 1) / noise.size) + 2 * slack
    ratio = float(np.square(noise).mean()) / published**2
    assert abs(ratio - 1) <= error, f"{sqrt(ratio):.4f} of the published {published:g}"


@pytest.mark.parametrize(
    ("name", "options", "published", "kurtosis"),
    TABLE,
    ids=[f"{name}-{options.get('calibration', 'laplace')}" for name, options, *_ in TABLE],
)
def test_a_line_of_the_noise_table_is_reproduced(
    name: str, options: dict[str, Any], published: float, kurtosis: float
) -> None:
    noise = np.concatenate([first_release(name, options, seed) for seed in range(SEEDS)])
    assert_stddev(noise, published, kurtosis, slack=2e-3)
    with pytest.raises(AssertionError):  # teeth: 15 % less is caught
        assert_stddev(0.85 * noise, published, kurtosis, slack=2e-3)


def test_the_line_of_local_objective_perturbation_is_reproduced() -> None:
    """b_j/n_j on one coordinate. As the paper has it, without the Jacobian: c → 0."""
    straight = linear_task((SIZE,) * M, 1, loss=HuberHinge(smoothing=1e6), regulariser=LAMBDA)
    strategy = build(
        "local-objective-perturbation",
        straight,
        epsilon=0.5,
        delta=0.0,
        solver_share=1e-6,
    )
    query = strategy.ask()
    assert query is not None
    drawn = [
        draw(query, straight, straight.sizes, streams(seed, "p")(0), units=0).linear
        for seed in range(200)
    ]
    noise = np.concatenate([each for each in drawn if each is not None]).ravel() / SIZE
    assert noise.size == 200 * M
    assert_stddev(noise, 0.01131, LAPLACE_KURTOSIS, slack=2e-3)


def test_with_its_jacobian_local_objective_perturbation_needs_more_noise() -> None:
    """ε′ = 0.5 - 2·ln(1 + 0.25/(500·0.01)) = 0.4024: a quarter more than in the paper."""
    task = linear_task((SIZE,) * M, 1, regulariser=LAMBDA)
    plan = build(
        "local-objective-perturbation", task, epsilon=0.5, delta=0.0, solver_share=1e-6
    ).plan
    assert plan is not None
    assert plan.mechanisms[0].noise_stddev / SIZE == pytest.approx(0.01406, rel=1e-3)


def test_the_printed_gradient_noise_is_really_epsilon_2() -> None:
    plan = build(
        "gradient-perturbation", TASK, **BUDGET, **GRADIENT | {"calibration": "unsound-textbook"}
    ).plan
    assert plan is not None
    assert plan.epsilon == pytest.approx(2.05, abs=0.01)


def test_the_textbook_rule_wastes_noise_under_exact_accounting() -> None:
    plan = build("gradient-perturbation", TASK, **BUDGET, rounds=100, calibration="textbook").plan
    assert plan is not None
    assert plan.epsilon < 0.33
    assert plan.budget.epsilon == 0.5


def test_the_textbook_rule_exceeds_its_epsilon_under_the_simple_conversion() -> None:
    """By ε²/(4·ln(1/δ)): 0.5 + 0.25/27.6."""
    with pytest.raises(BudgetExceeded, match=r"epsilon = 0\.509"):
        build(
            "gradient-perturbation",
            TASK,
            **BUDGET,
            rounds=100,
            calibration="textbook",
            accountant="zcdp-simple",
        )


def test_noise_falls_in_the_published_order() -> None:
    """Pathak, local output, aggregated output; and gradients: local above aggregated."""
    spread = {
        (name, options.get("calibration")): float(first_release(name, options, 0).std())
        for name, options, *_ in TABLE
    }
    output = [spread[name, None] for name in ("pathak", "local-output-perturbation")]
    assert output[0] > 5 * output[1] > 25 * spread["output-perturbation", None]
    printed = "unsound-textbook"
    assert (
        spread["local-gradient-perturbation", printed]
        > 5 * spread["gradient-perturbation", printed]
    )


def test_the_streams_of_two_seeds_give_two_tables() -> None:
    one, two = (first_release("pathak", LAPLACE, seed) for seed in (0, 1))
    assert (one != two).all()


def test_unsound_forms_are_refused_where_something_is_really_released() -> None:
    class AnyLedger:
        pass

    for name, options in (
        ("output-perturbation", LAPLACE),
        ("pathak", LAPLACE),
        ("local-output-perturbation", LAPLACE),
        ("local-objective-perturbation", LAPLACE),
        ("gradient-perturbation", {"calibration": "unsound-textbook"}),
    ):
        with pytest.raises(ValueError, match="for study in a simulation"):
            build(name, TASK, ledger=AnyLedger(), **options)  # type: ignore[arg-type]


def test_a_run_of_all_hundred_rounds_ends() -> None:
    small = linear_task((SIZE,) * M, 2, regulariser=LAMBDA)
    strategy = build("gradient-perturbation", small, **BUDGET, rounds=100)
    train(strategy, SilentFederation(small, sampling=streams(0, "p")))
    assert strategy.round == 100
