"""Random streams of a run: seeded in a simulation, from the operating system in a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.privacy.randomness import RandomStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.run.prepare import Prepared


def streams(
    prepared: Prepared, *purpose: str | int, run: str, release: bool = False
) -> Callable[[int], RandomStream]:
    """A stream for each round.

    In a simulation it follows from the seed, the run and the round, so that a run can be repeated,
    taken up at any round, and carried out by any engine. A real release draws from the operating
    system.
    """
    if release:
        return lambda _round: RandomStream.from_os()
    seed = prepared.experiment.run.seed
    return lambda round_: RandomStream.seeded(seed, *purpose, run, round_)
