"""How much noise reaches the model, in one unit for the strategies of a kind.

Plans state noise where it is added: on a sum, at a party, in an objective. To compare strategies it
is stated here where it acts: on a coordinate of the mean gradient, or of the averaged model.
"""

from __future__ import annotations

from collections import Counter
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from fedpriv.federation.queries.bounds import objective_mechanism
from fedpriv.federation.queries.kinds import (
    ErmQuery,
    GradientQuery,
    LocalTrainingQuery,
    LossQuery,
    MomentsQuery,
)
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.planning.plan import Plan


def acting_noise(query: Query, plan: Plan, task: Task) -> float | None:
    """Standard deviation on one coordinate, as the root mean square over the releases of a run.

    On the mean gradient for gradient and objective perturbation (in the latter, the gradient of
    the random linear term); on the mean update for federated averaging, and on the model for output
    perturbation. Noise of the parties' own adds
    up in squares. Noise that is chosen on the way is that of the main releases made so far.
    """
    if not plan.main or isinstance(query, LossQuery):
        return None
    mean_square = fmean(mechanism.noise_stddev**2 for mechanism in plan.main)
    # The release of this round; the last one, if the budget ended before it was made.
    mechanism = plan.main[min(query.round, len(plan.main) - 1)]
    schedule = sqrt(mean_square) / mechanism.noise_stddev
    return schedule * _of_release(query, mechanism, plan, task)


def _of_release(query: Query, mechanism: Mechanism, plan: Plan, task: Task) -> float:
    if isinstance(query, ErmQuery) and query.objective is not None:
        return sqrt(
            sum(
                count
                * (
                    task.model_weight(query.weights, size)
                    / size
                    * objective_mechanism(query, query.objective, task, size).noise_stddev
                )
                ** 2
                for size, count in Counter(task.sizes).items()
            )
        )
    if isinstance(mechanism, SharedNoise):
        added = mechanism.stddev_of(task.parties)
    else:
        added = mechanism.noise_stddev if plan.noise_at == "server" else _of_parties(query, task)
    if isinstance(query, LocalTrainingQuery):  # noise is in units of the clip norm
        return added * (query.clip_norm or 1.0) / query.total_weight(task)
    if isinstance(query, GradientQuery):
        return added / (query.sampling_rate * task.gradient_count(query.weights, task.sizes))
    if isinstance(query, MomentsQuery):  # of the gradients after it: a matrix does not move a model
        return added / task.records
    return added / task.records if isinstance(mechanism, ObjectiveMechanism) else added


def _of_parties(query: Query, task: Task) -> float:
    variance = 0.0
    for size, count in Counter(task.sizes).items():
        mechanism = query.local_mechanism(task, size)
        variance += count * mechanism.noise_stddev**2 if mechanism else 0.0
    return sqrt(variance)
