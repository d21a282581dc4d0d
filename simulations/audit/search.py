"""Search for the worst neighbours: the scene whose canary changes an exact release the most.

No noise is drawn here, and no run that the audit counts is used: choosing on those runs would bias
the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.audit.canaries import ANGLES, LENGTHS, clipped_scenes, minimiser_scene
from fedpriv.federation.queries.kinds import MomentsQuery
from fedpriv.federation.strategy.joint import JointStrategy
from fedpriv.simulations.audit.adversaries import (
    perturbs_the_objective,
    risk_gradients,
    sums_are_released,
    unsampled,
)
from fedpriv.simulations.audit.neighbours import neighbours
from fedpriv.simulations.audit.noise import noise_of
from fedpriv.simulations.audit.repetition import Dice, Side
from fedpriv.simulations.run.prepare import check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.simulations.audit.neighbours import Neighbours
    from fedpriv.simulations.audit.repetition import Seen
    from fedpriv.simulations.run.prepare import Prepared

_OTHERS = 256  # random records around a canary among clipped ones
_MORE = 1.01  # a later candidate, which may be slower, must be better by this factor
_SOME_ANGLE = 25.0
_SMALL_ANGLES = (8.0, 16.0)
_MOMENTS_ANGLES = (8.0, 16.0, 24.0, 32.0)  # seen by second moments, unlike opposite records
_LEARNING = 20  # rounds in which a model may come to fit a canary
_PULLING = 4000  # records that pull a joint minimiser, at most
_STAGE = "search"


def worst_neighbours(own: Prepared) -> Neighbours:
    """The neighbours that differ most, among the scenes known for the strategy."""
    strategy = check(own)
    if strategy is None or strategy.plan is None:
        raise ValueError(f"{own.info.name!r} has no guarantee that could be audited.")
    if own.info.minimises:
        return _worst_minimisers(own, joint=isinstance(strategy, JointStrategy))
    sampled = strategy.plan.least_rate < 1
    place = own.task.parties - 1 if sampled else 0
    features, records = _features(own), own.task.records
    curved = isinstance(strategy.ask(), MomentsQuery)
    angles, length = (_MOMENTS_ANGLES, 0.06) if curved else (_SMALL_ANGLES, 0.5)
    pulled = (
        minimiser_scene(features, min(_PULLING, records), length=length, angle=angle)
        for angle in angles
    )
    learnt = curved or strategy.plan.rounds >= _LEARNING
    scenes = [
        *clipped_scenes(features, min(_OTHERS, records)),
        *(pulled if own.task.convex and not sampled and learnt else ()),
    ]
    return _worst(
        neighbours(own, scene, party=place, spread=True, last=sampled) for scene in scenes
    )


def _worst(candidates: Iterable[Neighbours]) -> Neighbours:
    """The pair that differs most; a pair whose public facts differ is returned at once."""
    best, most = None, -1.0
    for each in candidates:
        if each.public_facts_differ:
            return each
        if (moved := exact_shift(each)[0]) > _MORE * most:
            best, most = each, moved
    if best is None:
        raise ValueError("no neighbours are known for this experiment.")
    return best


def _worst_minimisers(own: Prepared, *, joint: bool) -> Neighbours:
    """The length of the others first, then the angle: each hardly depends on the other."""
    section, sizes = own.experiment.data, np.array(own.task.sizes)
    spread = joint or section.partition == "hashed"
    share = 1.0 if own.own_test else 1 - (section.test_fraction or 0.2)
    # In an average, the party with the largest weight per record; if equal, the largest party.
    places = {0} if spread else {int(sizes.argmin()), int(sizes.argmax())}

    def pair(party: int, length: float, angle: float) -> Neighbours:
        at_most = min(_PULLING, own.task.records) if spread else round(sizes[party] / share)
        scene = minimiser_scene(_features(own), max(1, at_most - 1), length=length, angle=angle)
        return neighbours(own, scene, party=party, spread=spread)

    found = {(party, r): pair(party, r, _SOME_ANGLE) for party in places for r in LENGTHS}
    longest = _worst(found.values())
    party, length = next(key for key, each in found.items() if each is longest)
    return _worst([longest, *(pair(party, length, angle) for angle in ANGLES)])


def _features(own: Prepared) -> int:
    """Without the intercept."""
    return int(own.data.dataset.train.X.shape[1]) - (own.experiment.data.intercept != 0)


def exact_shift(pair: Neighbours) -> tuple[float, bool]:
    """How far apart the exact releases of two neighbours are, and whether that is in units of μ.

    Of several rounds, the root of the sum of squares, each in units of the noise that its plan
    has, at the points of one run with that noise. So it is the μ that no number of runs will
    exceed on these neighbours, if the noise is as planned.
    """
    dice = Dice(seed=0)
    first, second = (Side(prepared, dice=dice) for prepared in (pair.first, pair.second))
    task, plan = first.pristine.task, first.plan
    if perturbs_the_objective(first):  # at a minimiser, with some b
        at = risk_gradients(_model(second), task, first)
        return _apart(first, second, at) / plan.mechanisms[0].noise_stddev, True
    if isinstance(first.pristine, JointStrategy):  # with equal noise
        moved = float(np.linalg.norm(_model(first) - _model(second)))
        return moved / plan.mechanisms[0].noise_stddev, True
    if not sums_are_released(first):
        return _apart(first, second, unsampled(first.first_query())), False
    total = 0.0

    def watch(seen: Seen) -> None:
        nonlocal total
        query = unsampled(seen.query)
        noise = noise_of(plan.mechanisms[query.round], parties=task.parties)
        total += (_apart(first, second, query) / noise) ** 2

    second.run(0, watch, stage=_STAGE)
    return float(np.sqrt(total)), plan.least_rate == 1


def _apart(first: Side, second: Side, query: Query) -> float:
    return float(np.linalg.norm(first.exact(query) - second.exact(query)))


def _model(side: Side) -> NDArray[np.float64]:
    return side.run(0, lambda _seen: None, stage=_STAGE)
