"""Adversaries: they see the noisy sums that were released, and not a multiple of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.simulations.audit.adversaries import noisy_sum
from fedpriv.simulations.audit.noise import noise_of
from fedpriv.simulations.audit.repetition import Dice, Side
from fedpriv.simulations.run.prepare import prepare
from tests.simulations.audit.scenes import ADD_REMOVE, OUTPUT, study

if TYPE_CHECKING:
    from fedpriv.simulations.audit.repetition import Seen

Changes = dict[str, dict[str, Any]]

SAMPLED: Changes = {"strategy": {"sampling_rate": 0.5}}
MATRIX: Changes = {"strategy": {"name": "second-order", "rounds": 2}}
UPDATES: Changes = {
    "strategy": {"name": "federated-averaging", "rounds": 2, "allow_swamped": True},
    "privacy": {"unit": "party"},
    "data": {"records": 4000},
}
VARIATES: Changes = {**UPDATES, "strategy": {**UPDATES["strategy"], "name": "scaffold"}}


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (ADD_REMOVE, SAMPLED),
        (OUTPUT,),
        (MATRIX,),
        (ADD_REMOVE, MATRIX, SAMPLED),
        (UPDATES,),
        (VARIATES,),
    ],
    ids=["gradients", "samples", "output", "matrix", "matrix on samples", "updates", "variates"],
)
def test_what_is_left_of_a_release_without_its_sum_is_its_noise(
    changes: tuple[Changes, ...],
) -> None:
    """Of samples as well: a matrix was taken for one of all records."""
    side = Side(prepare(study(*changes)), dice=Dice(seed=0))
    task, found = side.prepared.task, []

    def watch(seen: Seen) -> None:
        if seen.release is None:
            return
        noisy = noisy_sum(seen, task)
        left = noisy - side.exact(seen.query)[: noisy.size]
        mechanism = side.plan.mechanisms[seen.query.round]
        found.append(left / noise_of(mechanism, parties=task.parties))

    side.run(0, watch)
    noise = np.concatenate(found)
    assert len(found) == side.plan.rounds
    assert 0.5 < np.sqrt(np.mean(noise**2)) < 1.5
    assert np.abs(noise).max() < 6
