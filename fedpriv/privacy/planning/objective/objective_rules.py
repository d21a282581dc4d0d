"""The two rules of objective perturbation: how long b must be, and how much Λ must grow.

Their conditions on a loss, without which `ObjectiveProblem` refuses it:

- *Lipschitz everywhere.* b is unbounded, and so is the minimiser: a G that holds inside a ball only
  says nothing about the neighbour of a minimiser outside, and no ε holds.
- *Smooth, with a Hessian of rank one per record*: the Jacobians of neighbours then differ by a
  factor of at most 1 + c/(nΛ).
- *The same n on both sides*, in nΛ, in b/n and in the calibration. Where a record joins or leaves,
  n is a declared constant and not the number of records: with the latter, the gradients would
  differ by Λθ as well, which no bound covers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log1p, sqrt
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.privacy.objective_profile import ObjectiveProfile, jacobian_cost

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveProblem:
    """The public facts of one problem, twice differentiable except at kinks.

    Attributes:
        lipschitz: G, the bound on a record's gradient.
        lipschitz_everywhere: Whether G holds for every θ; it must.
        curvature: c, the bound on a record's curvature, features included.
        curvature_rank: The largest rank of a record's Hessian; it must be 1.
        one_sided: Whether a record's slope has one sign at every θ: the Gaussian rule then needs
            less noise.
        records: n, a public constant: under add-remove adjacency, and for persons, a declared one.
        regulariser: Λ.
        dimension: d.
        tolerance: γ, the gradient norm to which the solver certifies its solution.
        person_records: k: most records of a person at a party, which count as their mean.
        person_parties: p: at how many parties a person has records.
    """

    lipschitz: float
    lipschitz_everywhere: bool
    curvature: float
    curvature_rank: int
    one_sided: bool = False
    records: int
    regulariser: float
    dimension: int
    tolerance: float
    person_records: int = 1
    person_parties: int = 1

    def __post_init__(self) -> None:
        require_positive(
            lipschitz=self.lipschitz,
            curvature=self.curvature,
            regulariser=self.regulariser,
            tolerance=self.tolerance,
        )
        require_count(records=self.records, dimension=self.dimension)
        require_count(person_records=self.person_records, person_parties=self.person_parties)
        if not self.lipschitz_everywhere:
            raise ValueError(
                "objective perturbation needs a loss that is Lipschitz everywhere: its random term "
                "moves the minimiser out of any ball that a bound on gradients is stated for. Use "
                "a Huber loss, or output-perturbation."
            )
        if self.curvature_rank != 1:
            raise ValueError(
                "objective perturbation needs a loss of one score per record: its Jacobian is "
                f"bounded for Hessians of rank 1, and this loss has {self.curvature_rank} scores. "
                "Use output-perturbation."
            )


def pure_rule(epsilon: float, problem: ObjectiveProblem) -> tuple[float, float]:
    """(ε′, Δ) of Chaudhuri, Monteleoni and Sarwate 2011, Alg. 2: density of b ∝ exp(-ε′‖b‖/2G).

    ε′ = ε - 2·ln(1 + c/(nΛ)) is left after the Jacobian. If nothing is left, enough extra
    regularisation, Δ = c/(n(e^(ε/4) - 1)) - Λ, makes the Jacobian cost ε/2, and ε′ = ε/2.
    Replace-one adjacency.
    """
    require_positive(epsilon=epsilon)
    if problem.person_records * problem.person_parties > 1:
        raise ValueError(
            "law must be 'gaussian' for persons with several records: the rule of the Laplace law "
            "is that of one record."
        )
    n, c = problem.records, problem.curvature
    rate = epsilon - 2 * log1p(c / (n * problem.regulariser))
    if rate > 0:
        return rate, 0.0
    return epsilon / 2, c / (n * expm1(epsilon / 4)) - problem.regulariser


def gaussian_rule(
    epsilon: float,
    delta: float,
    problem: ObjectiveProblem,
    adjacency: Adjacency,
    *,
    solver_share: float = 0.0,
) -> tuple[float, float]:
    """(σ, Δ): the least σ for which b ~ N(0, σ²I) is (ε, δ)-DP, together with the solver's noise.

    δ(ε) is that of `ObjectiveProfile`, which has theorem and proof, and falls as σ grows. The noise
    on the solution is Gaussian of μ₂ = `solver_mu`. Δ is the least that makes the Jacobian cost
    kp·ln(1 + c/(kn(Λ + Δ))) ≤ ε/2, with k = p = 1 for records; where it costs more than ε/10, a
    larger Λ is worth a try.
    """
    require_positive(epsilon=epsilon)
    require_open_unit(delta=delta)
    k, p = problem.person_records, problem.person_parties
    n, c, each = problem.records, problem.curvature, epsilon / (2 * k * p)
    # 1/(e^each - 1), without the overflow of a large ε.
    extra = max(0.0, c * exp(-each) / (k * n * -expm1(-each)) - problem.regulariser)
    steep = c / (n * (problem.regulariser + extra))
    jacobian = jacobian_cost(steep, records=k, parties=p)

    def spent(stddev: float) -> float:
        profile = ObjectiveProfile(
            mu=problem.lipschitz / stddev,
            jacobian=jacobian,
            one_sided=problem.one_sided,
            adjacency=adjacency,
            records=k,
            parties=p,
        )
        moved = p * adjacency.sum_sensitivity * problem.lipschitz / stddev
        return profile.delta_beside(epsilon, mu=solver_mu(moved, share=solver_share))

    low = high = problem.lipschitz
    while spent(high) > delta:
        low, high = high, high * 2
    while spent(low) <= delta:
        low, high = low / 2, low
    # Not on logarithmic scales: e^(ln high) may lie below high, on the other side of the root.
    root = brentq(lambda s: spent(s) - delta, low, high, xtol=1e-14 * low, rtol=1e-14)
    while spent(root) > delta:  # land on the private side
        root *= 1 + 1e-12
    return root, extra


def solver_mu(moved: float, *, share: float) -> float:
    """μ₂ of the noise that hides the solver: ``share`` of μ² + μ₂², for μ = ``moved``.

    A share fixed beforehand. The least total variance would have
    μ₂²/μ² = solver's sensitivity/that of the minimiser; but the tolerance that a solver can reach
    depends on the length of b, so the law of b must not depend on the tolerance.
    """
    return moved * sqrt(share / (1 - share))
