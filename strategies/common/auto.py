"""Settings of a private descent that need no tuning: a rule from public facts alone.

Noise moves every coordinate of a linear model, by the end of a run, by about R/s. R is the *travel*
of the run, how far T gradients as long as the clip norm C would carry a model, and s the *strength*
of its plan:

    R = C·η·T/(1 − β),        s² = Σ_t (q_t·N·C/σ_t)²,

σ_t the noise on the sum of round t. With full batches under a Gaussian budget s is N·μ/2
(replace-one) or N·μ (add-remove), whatever T and C are: travel is what noise and learning are
weighed by, and not the number of rounds. The score of a record, ‖x‖ ≤ B, gets noise of at most
R·B/s.

The rule, for T rounds of heavy ball and the mean of the last half of the models:

    C = G/2,        R = r·s/B,  r = 5/2·min(1, (s/60)^⅓),        η ≤ ¾ of the limit of stability.

The formulas for noise are derived, ignoring curvature; the numbers in the rule were fitted, on six
tables of 486 to 76,578 records and their test records (docs/experiments.md has the whole of it). No
guarantee rests on it: clip norm and steps are public, whatever they are.
"""

from __future__ import annotations

from math import cbrt, inf, sqrt
from typing import TYPE_CHECKING

from fedpriv.learning.losses import Squared

if TYPE_CHECKING:
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.privacy.planning.plan import Plan

_TRAVEL = 2.5  # r where there is little noise
_WEAK = 60.0  # the strength below which r falls
_STABLE = 0.75  # of the largest step that does not diverge on a quadratic


def auto_clip(task: Task) -> float:
    """C: half of the longest gradient of a record at the first model; 1 if that is not known."""
    if not task.convex or task.persons is not None:
        return 1.0
    if isinstance(task.loss, Squared):  # its G is for models far away
        return task.feature_bound * task.loss.label_bound / 2
    return task.lipschitz / 2


def strength(plan: Plan | NoiseFree, task: Task) -> float:
    """s of a plan of noisy sums of clipped gradients; infinite without noise.

    >>> from fedpriv.privacy.planning.noise_free import NoiseFree
    >>> strength(NoiseFree(step=2.0**-40, clip_norm=1.0), task=None)
    inf
    """
    squares = 0.0
    for index, mechanism in enumerate(plan.mechanisms):
        if mechanism is None or plan.clip_norm is None:
            return inf
        signal = plan.rate(index) * task.records * plan.clip_norm
        squares += (signal / mechanism.noise_stddev) ** 2
    return sqrt(squares)


def travel_rate(plan: Plan | NoiseFree, task: Task, *, beta: float) -> float:
    """η of the rule, for heavy ball with momentum β on a linear model."""
    if plan.clip_norm is None:
        raise ValueError("plan must state the clip_norm of a gradient, got None.")
    s = strength(plan, task)
    most = _STABLE * 2 * (1 + beta) / task.smoothness
    if s == inf:
        return most
    travel = _TRAVEL * min(1.0, cbrt(s / _WEAK)) * s / task.feature_bound
    return min(most, travel * (1 - beta) / (plan.clip_norm * len(plan.mechanisms)))
