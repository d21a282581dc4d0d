"""Noise of learned protection: on gradients, in units of the reference, and on norms of sums."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from fedpriv.federation.queries.bounds import headroom
from fedpriv.privacy.mechanisms import GaussianMechanism

if TYPE_CHECKING:
    from fedpriv.strategies.common.building import Setup

_U = 2.0**-53


class Noises(NamedTuple):
    """The noise of a gradient at the reference, and that of every norm."""

    reference: GaussianMechanism
    norm: GaussianMechanism

    def times(self, factor: float) -> GaussianMechanism:
        """Noise of a gradient, in units of the reference."""
        return replace(self.reference, stddev=factor * self.reference.stddev)


def norm_mechanism(
    setup: Setup, *, clip_norm: float, step: float, sensitivity: float, relative_noise: float
) -> GaussianMechanism:
    """Noise for the norm of a sum that one record moves by ``sensitivity``.

    The norm moves by no more: |‖S‖ − ‖S′‖| ≤ ‖S − S′‖. Rounded to the grid it moves by one step
    more. Float64 computes it within a factor 1 ± γ_(d+4) (Higham 2002, §3.1), and it is at most
    C for every record, of all that there may be, and √d steps for the rounding of every party.
    """
    task = setup.task
    most = headroom(setup.adjacency, task) * task.records
    longest = most * clip_norm + task.parties * sqrt(task.dimension) * step
    operations = task.dimension + 4
    gamma = operations * _U / (1 - operations * _U)
    moved = sensitivity + step + 2 * gamma * longest
    return GaussianMechanism(
        sensitivity=moved,
        stddev=relative_noise * moved,
        adjacency=setup.adjacency,
        unit=setup.unit,
    )
