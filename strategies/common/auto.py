"""Automatic settings without tuning: rules from public facts, for descent and minimisers.

The noise of a plan has a *strength* s. Full batches under a Gaussian budget make it N·μ/2
(replace-one) or N·μ (add-remove), whatever the number of rounds and the clip norm C:

    s² = Σ_t (q_t·N·C/σ_t)²  of T noisy sums,       s = G/(λ·σ)  of a minimiser with noise σ,
    s = N·G/σ_b              of a minimiser with a random linear term b in its objective.

Descent. T noisy gradients move a model by at most R = C·η·T/(1 − β), its *travel*, and, ignoring
curvature, add noise of about R/s to each coordinate, and R·B/s to the score of a record, ‖x‖ ≤ B.
So travel, not the number of rounds, trades learning against noise. Curvature h undoes noise that is
older than 1/h. Over all spectra of a mean Hessian of trace at most c·B² in d coordinates, noise
then adds at most about C·R·d/s² to the risk once R exceeds d·C/(c·B²), instead of (R·B/s)²·c/2:
where s is large compared with d, the model may travel further. The rule is

    r = 2·min(1, √(s/20))·w,  w = 2s/d² within 1 and 4,
    R = r·s/B,  with η at most ¾ of what is stable,
    C = G·(s/(300√d))^⅓, within ¼·G and G,

with momentum 0.9. Where curvature undoes no noise, the last model is the best: its weights are
equal for all gradients. The mean of the last half of the models gives the late gradients less, and
has ¾ of the signal with √⅔ of the noise: as if ε were 8 % smaller. It pays once noise is undone: it
is what the rule publishes if s ≥ d/2, and R is then √(3/2) times as long, for the same noise r.
Travel is for the classes that a model names: for its probabilities it is shrunk, once it is
published (`fedpriv.strategies.common.shrinking`).

A hinge is done with a record at a margin of 1, where a logistic loss goes on: its scores are
smaller, and so is the noise that they bear, r = min(1, √(s/20))·w. Its slope is G until then, so
that a smaller clip norm would gain no signal: C = G. It is not shrunk.

A perturbed objective is as noisy in directions without curvature with λ = B·G/(r·s); as nothing is
clipped in it, its r is 7/8 of that of a logistic loss, with w = s/d² within 1 and 4, and λ is the
least that respects it with the random term that this λ needs, Jacobian included. Output
perturbation has equal noise in all directions: λ = B·G/(r·s), r = ⅓. No λ is below 1e-5.

For a perceptron there is no such argument: neither its curvature nor the length of a gradient is
known. But noise moves its scores about as it moves those of a linear model, and travel decides
there too: r = 2·min(1, √(s/20)), clip norm 1, η at most 4, everything else the same, with d the
number of its weights.

The form follows from the argument above; exponents and numbers were fitted on the tables named in
docs/experiments.md, and judged on others, some of which had been looked at before. No guarantee
rests on any of it: clip norm, steps and λ are public.
"""

from __future__ import annotations

from math import cbrt, exp, inf, log, sqrt
from typing import TYPE_CHECKING, Literal

from scipy.optimize import brentq

from fedpriv.learning.losses import HuberHinge, Squared
from fedpriv.strategies.common.building import LIGHT_L2

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.privacy.planning.plan import Plan

_SCORE_NOISE = 2.0  # r, the noise of a score, at ordinary strength
_HINGE_NOISE = 1.0  # that of a hinge
_WEAK = 20.0  # the strength below which r falls
_WIDEST = 4.0  # how far r grows where there are few coordinates
_WIDENED_FROM = 0.5  # the strength, per d², from which it grows
_OBJECTIVE_WIDENED_FROM = 1.0  # that of a perturbed objective, whose λ is not followed by a shrink
_AVERAGED = 0.5  # the strength, per d, from which the mean of models is better than the last
_MEAN_NOISE = sqrt(2 / 3)  # that of the mean of the last half of a random walk, to its end's
_FULL = 300.0  # the strength, per √d, from which nothing is clipped
_LEAST_CLIP = 0.25  # the least clip norm, as a fraction of the loss's own bound
_STABLE = 0.75  # of the largest step that does not diverge on a quadratic
_LONGEST_STEP = 4.0  # of a perceptron: with 9, one with 76,000 records and little noise diverged
_OBJECTIVE_NOISE = 0.875  # times r, for a perturbed objective, in which nothing is clipped
_OUTPUT_NOISE = 1 / 3  # r of output perturbation


def longest_gradient(task: Task) -> float:
    """The largest gradient norm of a record at the first model; 1 where it is not known."""
    if not task.convex or task.persons is not None:
        return 1.0
    if isinstance(task.loss, Squared):  # its G holds for models far away
        return task.feature_bound * task.loss.label_bound
    return task.lipschitz


def auto_clip(strength: float, task: Task) -> float:
    """C of the rule: a fraction of the longest gradient that grows with the strength of a plan.

    All of it for a hinge. Where the longest gradient is not known, it is 1.
    """
    if not task.convex or task.persons is not None:
        return 1.0
    share = 1.0
    if strength != inf and not isinstance(task.loss, HuberHinge):
        share = min(1.0, cbrt(strength / (_FULL * sqrt(task.dimension))))
    return max(_LEAST_CLIP, share) * longest_gradient(task)


def strength(plan: Plan | NoiseFree, task: Task, *, clip_norm: float, draws: int = 1) -> float:
    """s of a plan of noisy sums of gradients within ``clip_norm``; infinite without noise.

    ``draws`` is how many draws of noise each sum carries, where every party adds its own.

    >>> from fedpriv.privacy.planning.noise_free import NoiseFree
    >>> strength(NoiseFree(step=2.0**-40, clip_norm=1.0), task=None, clip_norm=1.0)
    inf
    """
    squares = 0.0
    for index, mechanism in enumerate(plan.mechanisms):
        if mechanism is None:
            return inf
        signal = plan.rate(index) * task.records * clip_norm
        squares += (signal / mechanism.noise_stddev) ** 2
    return sqrt(squares / draws)


def score_noise(strength: float, dimension: int) -> float:
    """r: how much noise the rule allows in a score of a linear model, ignoring curvature.

    >>> score_noise(300.0, 100), score_noise(5.0, 100), score_noise(20.0, 4)
    (2.0, 1.0, 5.0)
    """
    return _SCORE_NOISE * _calm(strength) * _widened(strength, dimension, _WIDENED_FROM)


def hinge_noise(strength: float, dimension: int) -> float:
    """r of a hinge.

    >>> hinge_noise(300.0, 100), hinge_noise(5.0, 100), hinge_noise(20.0, 4)
    (1.0, 0.5, 2.5)
    """
    return _HINGE_NOISE * _calm(strength) * _widened(strength, dimension, _WIDENED_FROM)


def objective_noise(strength: float, dimension: int) -> float:
    """r of a perturbed objective.

    >>> objective_noise(300.0, 100), objective_noise(40.0, 4)
    (1.75, 4.375)
    """
    wide = _widened(strength, dimension, _OBJECTIVE_WIDENED_FROM)
    return _OBJECTIVE_NOISE * _SCORE_NOISE * _calm(strength) * wide


def _calm(strength: float) -> float:
    return min(1.0, sqrt(strength / _WEAK))


def _widened(strength: float, dimension: int, least: float) -> float:
    return min(_WIDEST, max(1.0, strength / (least * dimension**2)))


def auto_averaging(strength: float, task: Task) -> Literal["last", "tail"]:
    """Which model the rule publishes: the last, or the mean of the last half.

    The last unless the noise is weak, where curvature undoes what is old of it.
    """
    return "last" if strength < _AVERAGED * task.dimension else "tail"


def auto_rate(
    strength: float,
    task: Task,
    *,
    clip_norm: float,
    rounds: int,
    beta: float,
    averaging: str = "last",
) -> float:
    """η of the rule, for heavy ball with momentum β: that of its travel, within what is stable.

    Args:
        strength: s.
        task: The public facts: a linear model, or a perceptron.
        clip_norm: C.
        rounds: T.
        beta: β.
        averaging: Which model is published: any mean is taken to be of the last half.
    """
    most = _STABLE * 2 * (1 + beta) / task.smoothness if task.convex else _LONGEST_STEP
    if strength == inf:
        return most
    if not task.convex:
        noise = _SCORE_NOISE * _calm(strength)
    elif isinstance(task.loss, HuberHinge):
        noise = hinge_noise(strength, task.dimension)
    else:
        noise = score_noise(strength, task.dimension)
    if averaging != "last":
        noise /= _MEAN_NOISE
    travel = noise * strength / task.feature_bound
    return min(most, travel * (1 - beta) / (clip_norm * rounds))


def objective_regulariser(strength: float, task: Task, *, moved: Callable[[float], float]) -> float:
    """λ of the rule for a perturbed objective.

    Args:
        strength: Of the smallest possible random term.
        task: The public facts.
        moved: By λ: how far the random term that it needs moves a score where there is no
            curvature. It falls as λ grows, also because the Jacobian then costs less.
    """
    most = objective_noise(strength, task.dimension)
    if moved(LIGHT_L2) <= most:
        return LIGHT_L2
    high = 2 * LIGHT_L2
    while moved(high) > most:
        high *= 2
    return exp(brentq(lambda x: log(moved(exp(x)) / most), log(high / 2), log(high)))


def output_regulariser(strength: float, task: Task) -> float:
    """λ of the rule for output perturbation."""
    return max(LIGHT_L2, task.lipschitz * task.feature_bound / (_OUTPUT_NOISE * strength))
