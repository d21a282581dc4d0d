"""The privacy profile δ(ε) of objective perturbation with Gaussian b, exact up to a union bound.

The release is the minimiser θ of F(θ) + bᵀθ, F = Σ ℓ(xᵀθ) + (nΛ/2)‖θ‖², with b ~ N(0, σ²I). Let G
bound every |ℓ′|·‖x‖ and β every ℓ″·‖x‖², μ = G/σ, c = ln(1 + β/(nΛ)), and H(μ, ε) the exact profile
of μ-GDP (`fedpriv.privacy.gaussian`).

**Theorem.** For ε ≥ c the release is (ε, δ)-DP with δ = h(ε - c), where

    slope of one sign:  H(μ, ·)  (add-remove);    H(2μ, ·) + 2H(μ, ·)      (replace-one)
    any slope:          2H(μ, ·) (add-remove);    2H(2μ, ·) + 2H(√2·μ, ·)  (replace-one)

and for any slope under add-remove, where ε - c < μ²/2, h(e) = 1 - 2e^e·Φ(-μ), which is less. For
0 ≤ ε < c, δ = 1 - e^(ε-c)·(1 - h(0)).

*Assumptions.* Every ℓ is convex, with a Lipschitz derivative that is smooth except at finitely many
kinks, and G holds at every θ. A record has one score: its Hessian has rank one. n, Λ and σ are the
same on both sides: where a record joins or leaves, n is a declared constant. *One sign*: whatever θ
is, ℓ′ of a record is never positive, or never negative. This holds for decreasing losses of a
margin y·xᵀθ: logistic, Huber's hinge.

*Proof.* θ ↦ b(θ) = -∇F(θ) is one to one and Lipschitz both ways, so θ has the density
φ_σ(b(θ))·det ∇²F(θ). With b as it is under one data set, the privacy loss is
(‖u‖² + 2bᵀu)/(2σ²) + ln(ratio of determinants), u being the difference of the gradient sums at θ.
The Hessians are H₀ + ℓ″xxᵀ and H₀ + ℓ″′x′x′ᵀ (or H₀ alone) with H₀ ≽ nΛ, so the last term is at
most c. u depends on b, by way of θ, but it lies in a fixed polytope: {s·x} or {s·x - s′·x′} with
s, s′ in [-G′, G′], or in [-G′, 0] up to the sign of x if slopes have one sign. ‖u‖²/2 + bᵀu is
convex in u, and so at most its maximum over the vertices v, which do not depend on b. Hence
δ = E(1 - e^(ε - loss))₊ ≤ E max_v (1 - e^(ε - c - L_v))₊, L_v ~ N(m²/2, m²), m = ‖v‖/σ, and each
expectation is H(m, ε - c). A vertex 0 adds nothing to the sum over them. Squared lengths of x + x′
and x - x′ add up to at most 4B², hence 2 and √2. Under add-remove the vertices are ±Gx, and where
ε - c ≥ μ²/2 the two events exclude one another; otherwise m²/2 + m|Z| > ε - c always, and the
expectation is 1 - 2e^(ε - c)·Φ(-μ). For ε < c: max_v L_v ≥ 0, as 0 is in the polytope, so that
δ ≤ 1 - e^(ε-c)·E e^(-max L) and E e^(-max L) ≥ 1 - h(0). ∎

**Persons.** Let neighbours differ in all records of a person: at most k at one party, at no more
than p parties, each counted 1/k′ if the person has k′ ≤ k there. For slopes of one sign

    δ = h(ε - c),  h = Σ_{j=1…K} C(K, j)·H(jμ/k, ·),  c = kp·ln(1 + β/(k·nΛ)),

K = kp (add-remove) or 2kp (replace-one). *Proof.* The person's part of the Hessian has rank at most
r = kp and a trace of at most pβ, so that its factor of the determinant is at most (1 + pβ/(r·nΛ))^r
by the inequality of means, and this grows with r. u is a sum of one term from each of the segments
[0, G/k′]·x, with K of them at most, so the vertices are sums over subsets, and one of j₁ records of
k₁, j₂ of k₂, … is no longer than G·(j₁/k₁ + j₂/k₂ + …). More records cost no less: with k + 1 of
them for k, j ↦ j + 1 (0 ↦ 0) takes subsets to subsets that are no fewer, for C(k, j) ≤
C(k + 1, j + 1), and no shorter, for j/k ≤ (j + 1)/(k + 1), and H grows with its first argument. ∎
With k = p = 1 it is the theorem above.

Source: the change of variables is that of Chaudhuri, Monteleoni and Sarwate 2011 and of Kifer,
Smith and Thakurta 2012; Redberg, Koskela and Wang 2023 have the add-remove form for any slope, with
another c. The forms for one sign and for replace-one, and this c, are derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, exp, expm1, hypot, log1p, sqrt

from scipy.special import erf, erfcx, ndtr

from fedpriv._validate import require_count, require_non_negative, require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.gaussian import gdp_delta

_ROUNDING = 1e-14  # relative, many times that of the formulas below

_MOST_SEGMENTS = 1000  # their subsets are fewer than 2¹⁰²⁴, the largest float64

# Slopes of any sign, one record: how many vertices have which length, in units of G.
_BOTH_WAYS: dict[Adjacency, tuple[tuple[int, float], ...]] = {
    Adjacency.ADD_REMOVE: ((2, 1.0),),
    Adjacency.REPLACE_ONE: ((2, 2.0), (2, sqrt(2))),
}


def jacobian_cost(relative_curvature: float, *, records: int = 1, parties: int = 1) -> float:
    """c for β/(nΛ) = ``relative_curvature``, of a person's mean over k records at p parties."""
    rank = records * parties
    return rank * log1p(relative_curvature / records)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveProfile:
    """δ(ε) of the exact minimiser of an objective with b ~ N(0, σ²I), alone or beside a Gaussian.

    Attributes:
        mu: G/σ.
        jacobian: c.
        one_sided: Whether a record's slope has one sign.
        adjacency: Which data sets are compared.
        records: k: in how many records neighbours differ at one party, which count as their mean.
        parties: p: at how many parties they differ.
    """

    mu: float
    jacobian: float
    one_sided: bool
    adjacency: Adjacency
    records: int = 1
    parties: int = 1

    def __post_init__(self) -> None:
        require_positive(mu=self.mu)
        require_non_negative(jacobian=self.jacobian)
        require_count(records=self.records, parties=self.parties)
        if not self.one_sided and self.records * self.parties > 1:
            raise ValueError(
                "the slope of a record must have one sign where neighbours differ in several "
                "records: only then is their joint effect bounded. Use logistic, or huber-hinge."
            )
        if self._segments > _MOST_SEGMENTS:
            raise ValueError(
                f"persons.records times persons.parties must be at most {_MOST_SEGMENTS}, or half "
                f"of that under replace-one adjacency, got {self.records} times {self.parties}: "
                "so many records have more subsets than a number can represent."
            )

    def delta(self, epsilon: float) -> float:
        """δ for any real ε, for either order of the two data sets.

        For ε < 0 by the identity δ(ε) = 1 - e^ε + e^ε·δ′(-ε), δ′ that of the other order.
        """
        if epsilon < 0:
            return _swapped(self.delta(-epsilon), epsilon)
        left = epsilon - self.jacobian
        return self._beyond(left) if left >= 0 else _swapped(self._beyond(0.0), left)

    def delta_beside(self, epsilon: float, *, mu: float) -> float:
        """δ at ε ≥ 0 together with a μ-GDP release, which may depend on θ.

        A bound on δ(ε) = E_Z h̄(ε - μ²/2 - μZ), Z ~ N(0, 1), h̄ being `delta`: the privacy losses
        add up, and that of the Gaussian is N(μ²/2, μ²). Where the argument is at least c, h̄ is at
        most a sum of H(m, · - c), and E H(m, ε - c - μ²/2 - μZ) = H(√(m² + μ²), ε - c) in closed
        form. Between -c and c, h̄ is at most h̄(0), and it is at most 1 below. These two cases have
        a probability of about Φ(-(ε - c)/μ): negligible, if the release costs little. With a
        hundredth of the squared μ the bound equals the integral to 12 digits at δ ≤ 1e-3.
        """
        require_non_negative(epsilon=epsilon, mu=mu)
        if mu == 0:
            return self.delta(epsilon)
        left = epsilon - self.jacobian
        main = sum(k * _gaussian(hypot(r * self.mu, mu), left) for k, r in self._vertices)
        below = (
            float(ndtr((limit + mu * mu / 2 - epsilon) / mu))
            for limit in (self.jacobian, -self.jacobian)
        )
        rest = sum(p * most for p, most in zip(below, (self.delta(0.0), 1.0), strict=True))
        return min(1.0, main + rest * (1 + _ROUNDING))

    @property
    def _vertices(self) -> tuple[tuple[int, float], ...]:
        """How many vertices have which length, in units of G."""
        if not self.one_sided:
            return _BOTH_WAYS[self.adjacency]
        most = self._segments
        return tuple((comb(most, j), j / self.records) for j in range(most, 0, -1))

    @property
    def _segments(self) -> int:
        """K: in how many records neighbours differ, counting both sides."""
        return int(self.adjacency.sum_sensitivity) * self.records * self.parties

    def _beyond(self, left: float) -> float:
        """h(ε - c), for the part of ε that the Jacobian leaves: at least 0."""
        both_ways = not self.one_sided and self.adjacency is Adjacency.ADD_REMOVE
        if both_ways and left < self.mu**2 / 2:
            # 1 - 2e^left·Φ(-μ), in whichever form does not cancel.
            if left <= 1:
                return _swapped(float(erf(self.mu / sqrt(2))), left)
            kept = exp(left - self.mu**2 / 2) * float(erfcx(self.mu / sqrt(2)))
            return min(1.0, 1 - kept * (1 - _ROUNDING * (1 + self.mu**2)))
        return min(1.0, sum(k * _gaussian(r * self.mu, left) for k, r in self._vertices))


def _swapped(delta: float, epsilon: float) -> float:
    """1 - e^ε·(1 - δ), rounded up."""
    return min(1.0, (exp(epsilon) * delta - expm1(epsilon)) * (1 + _ROUNDING))


def _gaussian(mu: float, epsilon: float) -> float:
    """H(μ, ε) for any real ε."""
    if epsilon < 0:
        return _swapped(gdp_delta(mu=mu, epsilon=-epsilon), epsilon)
    return gdp_delta(mu=mu, epsilon=epsilon)
