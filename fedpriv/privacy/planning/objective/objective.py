"""Objective perturbation: a random linear term in the objective instead of noise on the answer.

The minimiser of  (1/n)Σ f(θ) + (Λ/2)‖θ‖² + bᵀθ/n + (Δ/2)‖θ‖²  is private if b is random enough. The
map from b to the minimiser is a change of variables, and its Jacobian is part of the privacy loss:
forms that omit it claim too much when nΛ is small. Both rules of
`fedpriv.privacy.planning.objective.objective_rules` include it.

No solver finds the exact minimiser that the theorems are about. *Approximate minima perturbation*
(Iyengar, Near, Song, Thakkar, Thakurta and Wang 2019): a point with gradient norm at most γ lies
within γ/Λ of the minimiser. So, given an exact minimiser that nobody sees, the points found on the
two data sets lie within 2γ/Λ of one another, and a little output noise hides which of the two it
was: a second release, composed with the first. The same noise hides that b is drawn on a grid,
whereas the theorems assume a density: rounding b moves the minimiser by at most √d·step/(2nΛ), in
each of the two. With the Gaussian law both releases share one (ε, δ) by the integral of
`fedpriv.privacy.objective_profile`, and the second has a fixed share of the squared μ; with the
Laplace law their ε add up.

**By coordinates**, for study ("unsound-laplace"; Jayaraman, Wang, Evans and Gu 2018): ε′ and Δ of
the pure rule, but every coordinate of b is a Laplace variable of scale 2G/ε′, as if 2G were an L1
sensitivity; likewise for the noise on the resulting point. The gradients of neighbours differ by
√d·2G in L1, so that b costs √d·ε′ instead of ε′, and the noise on the point √d times its share of
ε. The rest of ε is the cost of the Jacobian. Together that is ε + (√d - 1)·(ε′ + share·ε).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from scipy.optimize import minimize_scalar

from fedpriv._validate import (
    require_choice,
    require_delta,
    require_open_unit,
    require_positive,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import ApproximateEvent, Event, PureEvent
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L2LaplaceMechanism,
    Mechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.planning.objective.objective_rules import gaussian_rule, pure_rule, solver_mu
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
    from fedpriv.privacy.randomness import RandomStream

ObjectiveLaw = Literal["l2-laplace", "gaussian", "unsound-laplace"]
OBJECTIVE_LAWS: tuple[ObjectiveLaw, ...] = ("l2-laplace", "gaussian", "unsound-laplace")
_LAPLACE = {kind.name: kind for kind in (L2LaplaceMechanism, UnsoundLaplaceMechanism)}

_FINE = 2.0**-32  # the grid of b, relative to its standard deviation
_REACH_BITS = 60  # b is longer than `linear_reach` with a probability of 2⁻⁶⁰


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveMechanism(Mechanism):
    """What objective perturbation adds: b to the objective, Δ to Λ, and noise to the solution.

    Guarantee. The solver's solution, plus ``output`` noise, is (``epsilon``, ``delta``)-DP.

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
        """(ε, δ)-DP, as a whole."""
        if self.delta == 0:
            return PureEvent(adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon)
        return ApproximateEvent(
            adjacency=self.adjacency, unit=self.unit, epsilon=self.epsilon, delta=self.delta
        )

    @property
    def precision(self) -> str:
        """The precision of b, and of the noise on the solution, which has the same law."""
        return self.linear.precision

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of one coordinate of b."""
        return self.linear.noise_stddev

    def draw_linear(self, shape: tuple[int, ...], stream: RandomStream) -> NDArray[np.float64]:
        """b, or one b for each party, on the grid that ``output`` is calibrated to."""
        step = linear_step(self.linear)
        return self.linear.noise(shape, step=step, stream=stream).astype(float) * step

    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        return self.output.noise(shape, step=step, stream=stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsoundObjectiveMechanism(ObjectiveMechanism):
    """Objective perturbation without its Jacobian, or by coordinates. **Not what it claims**.

    For study only. Guarantee. (``epsilon``, ``delta``)-DP, ``epsilon`` being what it really costs.
    """

    name: ClassVar[str] = "unsound-objective"
    sound: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveNoise:
    """What objective perturbation may spend, and its noise distribution; the rest follows from n.

    Sizes of neighbours. Under replace-one adjacency both have n records; under add-remove they
    differ in their number, and share the declared n.

    Attributes:
        law: "l2-laplace" for pure ε, "gaussian" for (ε, δ); "unsound-laplace" for study.
        epsilon: ε of the release; what is claimed, if the law is unsound: see `cost`.
        delta: δ of the release; 0 with the Laplace laws.
        adjacency: "add-remove" with the Gaussian law only.
        solver_share: The share that pays for an inexact minimiser: of ε with Laplace laws, and of
            the squared μ of both releases with "gaussian". A hundredth costs half a hundredth more
            noise on b, and the noise it pays for is small compared with the effect of b even where
            the curvature of the records, not Λ, holds the minimiser in place.
        unit: Whose presence is hidden: a record's, or a person's by the facts of the problem.
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
        if self.law != "gaussian" and self.delta != 0:
            raise ValueError(f"delta must be 0 with law = {self.law}, got {self.delta!r}.")
        if self.law != "gaussian" and self.adjacency is not Adjacency.REPLACE_ONE:
            raise ValueError(
                "adjacency must be 'replace-one' for pure objective perturbation (Chaudhuri et al. "
                "2011), got 'add-remove'. Use the Gaussian law with delta > 0."
            )

    def mechanism(
        self, problem: ObjectiveProblem, *, step: float, weight: float = 1.0
    ) -> ObjectiveMechanism:
        """The noise for one problem whose answer is ``weight``·θ on a grid of width ``step``."""
        linear, extra = self.perturbation(problem)
        rounding = sqrt(problem.dimension) * linear_step(linear) / problem.records
        apart = weight * (2 * problem.tolerance + rounding) / (problem.regulariser + extra)
        apart += sqrt(problem.dimension) * step
        kind = ObjectiveMechanism if linear.sound else UnsoundObjectiveMechanism
        return kind(
            adjacency=self.adjacency,
            unit=self.unit,
            epsilon=self.cost(problem),
            delta=self.delta,
            linear=linear,
            extra_regulariser=extra,
            output=self._output(linear, apart, problem.dimension),
        )

    def cost(self, problem: ObjectiveProblem) -> float:
        """What the release really costs: ε, or more for an unsound law."""
        if self.law != "unsound-laplace":
            return self.epsilon
        rate, _ = pure_rule(self._exact_epsilon, problem)
        by_coordinates = rate + (self.epsilon - self._exact_epsilon)
        return self.epsilon + (sqrt(problem.dimension) - 1) * by_coordinates

    @property
    def _exact_epsilon(self) -> float:
        """The part of ε for the exact minimiser, with a Laplace law."""
        return (1 - self.solver_share) * self.epsilon

    def perturbation(self, problem: ObjectiveProblem) -> tuple[Mechanism, float]:
        """The law of b, and Δ: neither depends on the solver's tolerance."""
        if self.law != "gaussian":
            rate, extra = pure_rule(self._exact_epsilon, problem)
            pure = _LAPLACE[self.law](
                sensitivity=2 * problem.lipschitz,
                epsilon=rate,
                dimension=problem.dimension,
                adjacency=self.adjacency,
                unit=self.unit,
            )
            return pure, extra
        stddev, extra = gaussian_rule(
            self.epsilon, self.delta, problem, self.adjacency, solver_share=self.solver_share
        )
        gaussian = GaussianMechanism(
            sensitivity=self.adjacency.sum_sensitivity * problem.person_parties * problem.lipschitz,
            stddev=stddev,
            adjacency=self.adjacency,
            unit=self.unit,
        )
        return gaussian, extra

    def _output(self, linear: Mechanism, sensitivity: float, dimension: int) -> Mechanism:
        if not isinstance(linear, GaussianMechanism):
            return _LAPLACE[self.law](
                sensitivity=sensitivity,
                epsilon=self.epsilon - self._exact_epsilon,
                dimension=dimension,
                adjacency=self.adjacency,
                unit=self.unit,
            )
        mu = solver_mu(linear.sensitivity / linear.stddev, share=self.solver_share)
        return GaussianMechanism(
            sensitivity=sensitivity,
            stddev=sensitivity / mu,
            adjacency=self.adjacency,
            unit=self.unit,
        )


def linear_step(linear: Mechanism) -> float:
    """The grid step on which b is drawn."""
    return linear.noise_stddev * _FINE


def linear_reach(linear: Mechanism, dimension: int) -> float:
    """A length that b, drawn on its grid, exceeds with a probability of at most 2⁻⁶⁰.

    With x = 60·ln 2, so that e^-x = 2⁻⁶⁰. Gaussian: ‖b‖/σ exceeds √d + √(2x) no more often, because
    the norm is 1-Lipschitz and its mean at most √d. Laplace: ‖b‖·ε/Δ₂ is a Gamma(d, 1), which
    exceeds d + √(2dx) + x no more often (Boucheron, Lugosi and Massart 2013, Thm. 5.6 and §2.4); by
    coordinates ‖b‖₁·ε/Δ₂ is, and ‖b‖₂ is no longer.
    Rounding to the grid adds at most √d/2 of its steps.
    """
    d, x = dimension, _REACH_BITS * log(2)
    match linear:
        case GaussianMechanism():
            length = linear.stddev * (sqrt(d) + sqrt(2 * x))
        case L2LaplaceMechanism() | UnsoundLaplaceMechanism():
            length = linear.sensitivity / linear.epsilon * (d + sqrt(2 * d * x) + x)
        case _:
            raise ValueError(
                f"linear must be a law of objective perturbation, got {linear.name!r}."
            )
    return length + sqrt(d) / 2 * linear_step(linear)


def excess_risk_bound(noise: ObjectiveNoise, problem: ObjectiveProblem, *, radius: float) -> float:
    """E R(θ) - R(θ₀) ≤ ΛD²/2 + E‖b‖²/(2ΛN²), for every θ₀ with ‖θ₀‖ ≤ D; Λ includes Δ.

    R is the mean loss, and θ the exact minimiser of J + bᵀθ/N, J = R + (Λ/2)‖θ‖². Proof: J is
    Λ-strongly convex, so J(θ) - min J ≤ ‖∇J(θ)‖²/(2Λ) = ‖b‖²/(2ΛN²); and R(θ) ≤ J(θ), while
    min J ≤ J(θ₀) ≤ R(θ₀) + ΛD²/2. The small noise for the solver is not counted.
    """
    require_positive(radius=radius)
    linear, extra = noise.perturbation(problem)
    strong = problem.regulariser + extra
    length = problem.dimension * linear.noise_stddev**2
    return strong * radius**2 / 2 + length / (2 * strong * problem.records**2)


def optimal_objective_regulariser(
    noise: ObjectiveNoise, problem: ObjectiveProblem, *, radius: float
) -> float:
    """λ for which `excess_risk_bound` is least; from public facts, so it costs no privacy.

    Without the Jacobian it would be √d·σ/(ND); with it, it is no less than a part of that. A grid
    search first, because where so little of ε is left that Λ is raised anyway, the bound is flat.
    """

    def bound(log_regulariser: float) -> float:
        at = replace(problem, regulariser=exp(log_regulariser))
        return excess_risk_bound(noise, at, radius=radius)

    flat = replace(problem, regulariser=problem.curvature)  # its Jacobian costs about 1/N
    linear, _ = noise.perturbation(flat)
    centre = log(sqrt(problem.dimension) * linear.noise_stddev / (problem.records * radius))
    places = [centre + step / 4 for step in range(-40, 41)]
    best = min(places, key=bound)
    found = minimize_scalar(bound, bounds=(best - 0.25, best + 0.25), method="bounded")
    return exp(found.x if found.fun <= bound(best) else best)
