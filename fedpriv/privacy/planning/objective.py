"""Objective perturbation: a random linear term in the objective instead of noise on the answer.

The minimiser of  (1/n)Σ f(θ) + (Λ/2)‖θ‖² + bᵀθ/n + (Δ/2)‖θ‖²  is private if b is random enough. The
map from b to the minimiser is a change of variables, and its Jacobian is part of the privacy loss:
forms that omit it claim too much when nΛ is small. Both rules below include it.

What the rules demand of a loss, and `ObjectiveProblem` refuses to do without:

- *Lipschitz everywhere.* b is unbounded, and so is the minimiser: a G that holds inside a ball only
  says nothing about the neighbour of a minimiser outside, and no ε holds.
- *Smooth, with a Hessian of rank one per record*: the Jacobians of neighbours then differ by a
  factor of at most 1 + c/(nΛ).
- *The same n on both sides*, in nΛ, in b/n and in the calibration. Where a record joins or leaves,
  n is a declared constant and not the number of records: with that, the gradients would differ by
  Λθ as well, which no bound covers.

No solver finds the exact minimiser that the theorems speak of. *Approximate minima perturbation*
(Iyengar, Near, Song, Thakkar, Thakurta and Wang 2019): a point with gradient norm at most γ lies
within γ/Λ of the minimiser, so two of them lie within 2γ/Λ of one another when the minimisers
agree, and a little output noise, paid for by a share of the budget, hides the difference. The same
noise hides that b is drawn on a grid, where the theorems speak of a density: rounding b moves the
minimiser by at most √d·step/(2nΛ), in each of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log, log1p, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from scipy.optimize import brentq
from scipy.special import ndtr

from fedpriv._validate import (
    require_choice,
    require_count,
    require_delta,
    require_open_unit,
    require_positive,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import ApproximateEvent, Event, PureEvent
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms import GaussianMechanism, L2LaplaceMechanism, Mechanism
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.randomness import RandomStream

ObjectiveLaw = Literal["l2-laplace", "gaussian"]
OBJECTIVE_LAWS: tuple[ObjectiveLaw, ...] = ("l2-laplace", "gaussian")

_FINE = 2.0**-32  # the grid of b, relative to its standard deviation
_REACH_BITS = 60  # a longer b than `linear_reach` has a probability of 2⁻⁶⁰


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveProblem:
    """The public facts of one problem, twice differentiable but at kinks.

    Attributes:
        lipschitz: G, the bound on a record's gradient.
        lipschitz_everywhere: Whether G holds for every θ; it must.
        curvature: c, the bound on a record's curvature, features included.
        curvature_rank: The largest rank of a record's Hessian; it must be 1.
        records: n, a public constant: under add-remove adjacency a declared one.
        regulariser: Λ.
        dimension: d.
        tolerance: γ, the gradient norm to which the solver certifies its point.
    """

    lipschitz: float
    lipschitz_everywhere: bool
    curvature: float
    curvature_rank: int
    records: int
    regulariser: float
    dimension: int
    tolerance: float

    def __post_init__(self) -> None:
        require_positive(
            lipschitz=self.lipschitz,
            curvature=self.curvature,
            regulariser=self.regulariser,
            tolerance=self.tolerance,
        )
        require_count(records=self.records, dimension=self.dimension)
        if not self.lipschitz_everywhere:
            raise ValueError(
                "objective perturbation needs a loss that is Lipschitz everywhere: its random term "
                "moves the minimiser out of any ball that a bound on gradients is stated for. Use "
                "a Huber loss, or output-perturbation."
            )
        if self.curvature_rank != 1:
            raise ValueError(
                "objective perturbation needs a loss of one score a record: its Jacobian is "
                f"bounded for Hessians of rank 1, and this loss has {self.curvature_rank} scores. "
                "Use output-perturbation."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveMechanism(Mechanism):
    """What objective perturbation adds: b to the objective, Δ to Λ, and noise to the point found.

    Guarantee. The point found, plus ``output`` noise, is (``epsilon``, ``delta``)-DP.

    Attributes:
        epsilon: ε of the whole release.
        delta: δ of the whole release; 0 with the Laplace law.
        linear: The law of b, on the scale of a *sum* of gradients.
        extra_regulariser: Δ.
        output: The noise that hides how far the solver stopped from the minimiser.
    """

    name: ClassVar[str] = "objective-perturbation"
    epsilon: float
    delta: float
    linear: Mechanism
    extra_regulariser: float
    output: Mechanism

    def event(self) -> Event:
        """(ε, δ)-DP, whole."""
        if self.delta == 0:
            return PureEvent(adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon)
        return ApproximateEvent(
            adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon, delta=self.delta
        )

    @property
    def precision(self) -> str:
        """That of b, and of the noise on the point found, which has the same law."""
        return self.linear.precision

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of one coordinate of b."""
        return self.linear.noise_stddev

    def draw_linear(self, shape: tuple[int, ...], stream: RandomStream) -> NDArray[np.float64]:
        """b, or one for each party, on the grid that ``output`` is calibrated to."""
        step = linear_step(self.linear)
        return self.linear.noise(shape, step=step, stream=stream).astype(float) * step

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return self.output.noise(shape, step=step, stream=stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveNoise:
    """How much objective perturbation may spend, and by which law; the rest follows from n.

    Sizes of neighbours. Under replace-one adjacency both have n records; under add-remove they
    differ in their number, and share the n that is declared.

    Attributes:
        law: "l2-laplace" for pure ε, "gaussian" for (ε, δ).
        epsilon: ε of the release.
        delta: δ of the release; 0 with "l2-laplace".
        adjacency: "add-remove" with the Gaussian law only.
        solver_share: The share of ε, and of δ, that pays for an inexact minimiser.
        unit: Whose presence is hidden; the rules here are those of one record.
    """

    law: ObjectiveLaw
    epsilon: float
    delta: float
    adjacency: Adjacency
    solver_share: float = 0.01
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        require_choice(OBJECTIVE_LAWS, law=self.law)
        require_positive(epsilon=self.epsilon)
        require_delta(delta=self.delta)
        require_open_unit(solver_share=self.solver_share)
        if self.law == "gaussian" and self.delta == 0:
            raise ValueError("delta must be positive with the Gaussian law. Use law = l2-laplace.")
        if self.law == "l2-laplace" and self.delta != 0:
            raise ValueError(f"delta must be 0 with law = l2-laplace, got {self.delta!r}.")
        if self.law == "l2-laplace" and self.adjacency is not Adjacency.REPLACE_ONE:
            raise ValueError(
                "adjacency must be 'replace-one' for pure objective perturbation (Chaudhuri et al. "
                "2011), got 'add-remove'. Use the Gaussian law with delta > 0."
            )

    def mechanism(
        self, problem: ObjectiveProblem, *, step: float, weight: float = 1.0
    ) -> ObjectiveMechanism:
        """The noise for one problem, its answer being ``weight``·θ on a grid of width ``step``."""
        linear, extra = self.perturbation(problem)
        left = self.epsilon - (1 - self.solver_share) * self.epsilon
        rounding = sqrt(problem.dimension) * linear_step(linear) / problem.records
        apart = weight * (2 * problem.tolerance + rounding) / (problem.regulariser + extra)
        apart += sqrt(problem.dimension) * step
        return ObjectiveMechanism(
            adjacency=self.adjacency,
            unit=self.unit,
            epsilon=self.epsilon,
            delta=self.delta,
            linear=linear,
            extra_regulariser=extra,
            output=self._output(left, apart, problem.dimension),
        )

    def perturbation(self, problem: ObjectiveProblem) -> tuple[Mechanism, float]:
        """The law of b, and Δ: neither depends on the solver's tolerance."""
        paid = (1 - self.solver_share) * self.epsilon
        if self.law == "l2-laplace":
            rate, extra = pure_rule(paid, problem)
            pure = L2LaplaceMechanism(
                sensitivity=2 * problem.lipschitz,
                epsilon=rate,
                dimension=problem.dimension,
                adjacency=self.adjacency,
                unit=self.unit,
            )
            return pure, extra
        stddev, extra = gaussian_rule(
            paid, (1 - self.solver_share) * self.delta, problem, self.adjacency
        )
        gaussian = GaussianMechanism(
            sensitivity=self.adjacency.sum_sensitivity * problem.lipschitz,
            stddev=stddev,
            adjacency=self.adjacency,
            unit=self.unit,
        )
        return gaussian, extra

    def _output(self, epsilon: float, sensitivity: float, dimension: int) -> Mechanism:
        if self.law == "l2-laplace":
            return L2LaplaceMechanism(
                sensitivity=sensitivity,
                epsilon=epsilon,
                dimension=dimension,
                adjacency=self.adjacency,
                unit=self.unit,
            )
        mu = gdp_mu(epsilon=epsilon, delta=self.solver_share * self.delta)
        return GaussianMechanism(
            sensitivity=sensitivity,
            stddev=sensitivity / mu,
            adjacency=self.adjacency,
            unit=self.unit,
        )


def linear_step(linear: Mechanism) -> float:
    """The width of the grid that b is drawn on."""
    return linear.noise_stddev * _FINE


def linear_reach(linear: Mechanism, dimension: int) -> float:
    """A length that b, drawn on its grid, exceeds with a probability of at most 2⁻⁶⁰.

    With x = 60·ln 2, so that e^-x = 2⁻⁶⁰. Gaussian: ‖b‖/σ exceeds √d + √(2x) no more often, because
    the norm is 1-Lipschitz and its mean at most √d. Laplace: ‖b‖·ε/Δ₂ is a Gamma(d, 1), which
    exceeds d + √(2dx) + x no more often (Boucheron, Lugosi and Massart 2013, Thm. 5.6 and §2.4).
    Rounding to the grid adds at most √d/2 of its steps.
    """
    d, x = dimension, _REACH_BITS * log(2)
    match linear:
        case GaussianMechanism():
            length = linear.stddev * (sqrt(d) + sqrt(2 * x))
        case L2LaplaceMechanism():
            length = linear.sensitivity / linear.epsilon * (d + sqrt(2 * d * x) + x)
        case _:
            raise ValueError(
                f"linear must be a law of objective perturbation, got {linear.name!r}."
            )
    return length + sqrt(d) / 2 * linear_step(linear)


def pure_rule(epsilon: float, problem: ObjectiveProblem) -> tuple[float, float]:
    """(ε′, Δ) of Chaudhuri, Monteleoni and Sarwate 2011, Alg. 2: density of b ∝ exp(-ε′‖b‖/2G).

    ε′ = ε - 2·ln(1 + c/(nΛ)) is left after the Jacobian. If nothing is left, so much more
    regularisation, Δ = c/(n(e^(ε/4) - 1)) - Λ, makes the Jacobian cost ε/2, and ε′ = ε/2.
    Replace-one adjacency.
    """
    require_positive(epsilon=epsilon)
    n, c = problem.records, problem.curvature
    rate = epsilon - 2 * log1p(c / (n * problem.regulariser))
    if rate > 0:
        return rate, 0.0
    return epsilon / 2, c / (n * expm1(epsilon / 4)) - problem.regulariser


def gaussian_rule(
    epsilon: float, delta: float, problem: ObjectiveProblem, adjacency: Adjacency
) -> tuple[float, float]:
    """(σ, Δ) for b ~ N(0, σ²I), for a loss of one score a record.

    Two Hessians differ by one rank-1 term each, and without it both are at least n(Λ + Δ), with one
    n: so the Jacobian costs at most c₀ = ln(1 + c/(n(Λ + Δ))); Δ is the least that makes c₀ ≤ ε/2.
    The rest of the privacy loss is
    |bᵀu|/σ² + ‖u‖²/(2σ²) with u = slope·x - slope′·x′ (replace-one) or slope·x (add-remove), and
    exceeds ε - c₀ with probability at most

        4Φ(-[(ε - c₀)σ/(2G) - G/σ])   or   2Φ(-[(ε - c₀)σ/G - G/(2σ)]),

    by a union bound over the two directions, which do not depend on b. σ makes it δ.
    """
    require_positive(epsilon=epsilon)
    require_open_unit(delta=delta)
    n, c, G = problem.records, problem.curvature, problem.lipschitz
    extra = max(0.0, c / (n * expm1(epsilon / 2)) - problem.regulariser)
    left = epsilon - log1p(c / (n * (problem.regulariser + extra)))

    def tail(stddev: float) -> float:
        if adjacency is Adjacency.REPLACE_ONE:
            return float(4 * ndtr(-(left * stddev / (2 * G) - G / stddev)))
        return float(2 * ndtr(-(left * stddev / G - G / (2 * stddev))))

    high = G
    while tail(high) > delta:
        high *= 2
    low = high / 2
    while tail(low) <= delta:
        low /= 2
    root = exp(brentq(lambda s: tail(exp(s)) - delta, log(low), log(high), xtol=1e-14))
    while tail(root) > delta:  # land on the private side
        root *= 1 + 1e-12
    return root, extra
