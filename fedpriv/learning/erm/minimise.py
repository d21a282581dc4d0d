"""Minimise a smooth, strongly convex function that answers gradient queries only.

For the joint minimiser: every query is one round of secure sums, so queries are what costs, and
function values are not available. Limited-memory BFGS proposes a step; a proved condition decides
whether it is taken.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedpriv._validate import require_count, require_non_negative, require_positive
from fedpriv.learning.erm.certificate import ToleranceNotReachedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_PAIRS = 20


class Minimum(NamedTuple):
    """A minimum: a point, a bound on ‖∇J‖₂ there, and the number of gradients asked for."""

    theta: Vector
    gradient_norm: float
    queries: int


def minimise(
    gradient: Callable[[Vector], Vector],
    start: Vector,
    *,
    strong_convexity: float,
    smoothness: float,
    tolerance: float,
    oracle_error: float = 0.0,
    max_queries: int = 1000,
) -> Minimum:
    """Find θ with ‖∇J(θ)‖₂ ≤ ``tolerance``, from exact or nearly exact gradients alone.

    Guarantee. ‖g‖ + oracle_error ≤ tolerance at the θ returned, so ‖θ - θ*‖ ≤ tolerance/μ.

    Convergence. A proposal θ₊ is accepted if it halves the smallest gradient norm seen, or if
    g₊ᵀ(θ - θ₊) + ‖g - g₊‖²/(2L) ≥ ‖g‖²/(8L): the left side is a lower bound on J(θ) - J(θ₊) for
    every convex L-smooth J (Nesterov 2004, Thm. 2.1.5), so J provably falls, by at least
    (μ/4L)(J - J*). A refused proposal teaches the curvature along it and is shortened; once it is
    no longer than ‖g‖/L, the plain step -g/L is taken, for which the bound always holds. So
    progress is linear at worst; in practice the queries are about those of BFGS with function
    values. No randomness.

    Args:
        gradient: θ ↦ ∇J(θ).
        start: The first point.
        strong_convexity: μ > 0 with ∇²J ≽ μI.
        smoothness: L ≥ μ with ∇²J ≼ LI.
        tolerance: The bound on ‖∇J‖₂ to reach.
        oracle_error: A bound on the L2 error of an answer: rounding to fixed point, say.
        max_queries: Queries before giving up.

    Raises:
        ToleranceNotReachedError: Nothing is returned.
    """
    require_positive(strong_convexity=strong_convexity, tolerance=tolerance)
    require_positive(smoothness=smoothness)
    require_non_negative(oracle_error=oracle_error)
    require_count(max_queries=max_queries)
    if smoothness < strong_convexity:
        raise ValueError(
            f"smoothness must be at least strong_convexity = {strong_convexity:g}, "
            f"got {smoothness:g}."
        )
    if oracle_error >= tolerance:
        raise ValueError(
            f"oracle_error must be below tolerance = {tolerance:g}, got {oracle_error:g}: use a "
            "larger tolerance, or a finer fixed-point step."
        )
    theta = np.array(start, np.float64)
    pairs: deque[tuple[Vector, Vector]] = deque(maxlen=_PAIRS)
    g = _ask(gradient, theta)
    record = _norm(g)
    step, plain = -g / smoothness, True
    for queries in range(1, max_queries + 1):
        if _norm(g) + oracle_error <= tolerance:
            return Minimum(theta, _norm(g) + oracle_error, queries)
        if queries == max_queries:
            break
        g_next = _ask(gradient, theta + step)
        change = g_next - g
        curvature = change @ step
        # No function with these constants can show this: it is the oracle's error; learn nothing.
        if strong_convexity * (step @ step) <= 2 * curvature >= change @ change / smoothness:
            pairs.append((step, change))
        fall = change @ change / (2 * smoothness) - g_next @ step
        if plain or _norm(g_next) <= record / 2 or fall >= g @ g / (8 * smoothness):
            theta, g = theta + step, g_next
            record = min(record, _norm(g))
            plain = not pairs
            step = -g / smoothness if plain else -_inverse_product(g, pairs)
        else:
            # Where the derivative along the step, taken as linear, vanishes, and a little before.
            step = step * np.clip(-0.9 * (g @ step) / max(curvature, -(g @ step)), 0.1, 0.9)
            plain = _norm(step) <= _norm(g) / smoothness
            if plain:
                step = -g / smoothness
    raise ToleranceNotReachedError(tolerance)


def _ask(gradient: Callable[[Vector], Vector], theta: Vector) -> Vector:
    answer = np.asarray(gradient(theta), np.float64)
    if answer.shape != theta.shape or not np.isfinite(answer).all():
        raise ValueError(
            f"gradient must return a finite vector of shape {theta.shape}, "
            f"got shape {answer.shape}, or a number that is not finite."
        )
    return answer


def _inverse_product(g: Vector, pairs: Sequence[tuple[Vector, Vector]]) -> Vector:
    """The inverse Hessian estimate of L-BFGS times g: the two-loop recursion of Nocedal (1980)."""
    q = g.copy()
    weights = []
    for s, y in reversed(pairs):
        weight = (s @ q) / (s @ y)
        q -= weight * y
        weights.append(weight)
    s, y = pairs[-1]
    q *= (s @ y) / (y @ y)
    for (s, y), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - (y @ q) / (s @ y)) * s
    return q


def _norm(vector: Vector) -> float:
    """‖v‖₂, rounded up."""
    return float(np.linalg.norm(vector)) * (1 + (vector.size + 4) * 2.0**-53)
