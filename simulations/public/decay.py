"""Influence from the decay of gradients on public data: for networks, and for several classes.

Where no product with a Hessian is at hand, what is measured is how the gradient falls along the
run's own descent without noise, on public records:

    q_t = g_T² / max_{s ≥ t} g_s²,   g_s the norm of the (clipped, regularised) gradient of round s.

The reason: where the PL condition holds with constant μ, g² is between 2μ and 2M times the excess
risk, which each round multiplies by γ, as it does the harm of earlier noise; and so g_T²/g_t²
stands for γ^(T−t) without γ being known. It is exact for a quadratic of one curvature, where all of
it contracts alike, and an estimate anywhere else: nothing is proved of a network. The maximum keeps
q_t from falling with t: what is forgotten stays forgotten. It is for plain descent alone, whose
steps are gradients times one and the same rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import PartitionedDataset
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.run.streams import streams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data import Records
    from fedpriv.simulations.run.prepare import Prepared

_RUN = "public"


def gradient_decay(prepared: Prepared, records: Records, options: dict[str, Any]) -> list[float]:
    """q_1 … q_T of the strategy of a run, with its options, on public records."""
    from fedpriv import strategies

    task = replace(prepared.task, sizes=(len(records),), headroom=1.0, in_place=True, persons=None)
    strategy = strategies.build(
        prepared.info,
        task=task,
        budget=None,
        adjacency=Adjacency(prepared.experiment.privacy.adjacency),
        unit=Unit.RECORD,
        options={**options, "schedule": "uniform", "sampling_rate": 1.0},
        noise=streams(prepared, "noise", run=_RUN),
        run=_RUN,
        noise_free=True,
    )
    federation = VectorizedFederation(
        _one_party(prepared, records), task=task, sampling=streams(prepared, "sampling", run=_RUN)
    )
    iterates = [strategy.theta.copy()]
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
        iterates.append(strategy.theta.copy())
    return decay_influence(np.linalg.norm(np.diff(iterates, axis=0), axis=1))


def decay_influence(norms: NDArray[np.float64]) -> list[float]:
    """q_t = g_T²/max_{s ≥ t} g_s² from the norms g_1 … g_T of gradients; the last is 1."""
    largest = np.maximum.accumulate(norms[::-1])[::-1]
    if not largest[-1] > 0 or not np.isfinite(largest).all():
        raise ValueError(
            "schedule.public: descent on it must have finite gradients to its last round, and one "
            "is zero or infinite. Use a smaller learning_rate, or fewer rounds."
        )
    return list(np.maximum((largest[-1] / largest) ** 2, 1e-30).tolist())


def _one_party(prepared: Prepared, records: Records) -> PartitionedDataset:
    """All public records as those of one party."""
    count = len(records)
    held = replace(records, party=np.zeros(count, np.int64), person=None)
    dataset = replace(prepared.data.dataset, train=held, test=held, party_names=(_RUN,))
    return PartitionedDataset(
        dataset=dataset, kind="iid", offsets=np.array([0, count]), order=np.arange(count)
    )
