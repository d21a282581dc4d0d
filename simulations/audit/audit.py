"""An audit: the strategy of an experiment, run many times on two neighbours, against its claim."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_open_unit
from fedpriv.simulations.audit.adversaries import adversary
from fedpriv.simulations.audit.claim import claim_of
from fedpriv.simulations.audit.one_run import CANARIES, audit_in_one_run, why_not_in_one_run
from fedpriv.simulations.audit.repetition import Dice, Side
from fedpriv.simulations.audit.result import judged
from fedpriv.simulations.audit.search import exact_shift, worst_neighbours
from fedpriv.simulations.experiment.catalogue import PARTY_ALONE, checked, strategy_info
from fedpriv.simulations.public.tuning import tuned
from fedpriv.simulations.run.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.audit.result import Audit
    from fedpriv.simulations.experiment.file import Experiment

RUNS = 500
CONFIDENCE = 0.95
_LEAST_RUNS = 20


def audit_experiment(
    experiment: Experiment,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    model_only: bool = False,
    one_run: bool | None = None,
    canaries: int = CANARIES,
    on_run: Callable[[int, int], None] = lambda _done, _total: None,
) -> Audit:
    """Run an experiment ``runs`` times on either neighbour, and bound its μ and ε from below.

    Args:
        experiment: What to audit.
        runs: On each side, in pairs with equal noise.
        confidence: Of the bounds. Of audits of a true claim that is reached, at most one in 1/(1 -
            confidence) raises a false alarm.
        seed: The seed of the noise.
        model_only: Whether the adversary sees the last model alone.
        one_run: Whether to run it once instead, with many canaries; None for networks alone, where
            it can be done.
        canaries: How many, in one run.
        on_run: Called after every run, with its number and the total.
    """
    require_count(runs=runs)
    require_open_unit(confidence=confidence)
    if runs < _LEAST_RUNS:
        raise ValueError(f"runs must be at least {_LEAST_RUNS}, got {runs}.")
    began = perf_counter()
    require_auditable(checked(experiment))
    own = prepare(tuned(experiment))
    if one_run is None:
        one_run = not (own.task.convex or model_only or why_not_in_one_run(own))
    if one_run:
        if model_only:
            raise ValueError("one_run must be False for who sees the model alone.")
        on_run(0, 1)
        return audit_in_one_run(own, canaries=canaries, confidence=confidence, seed=seed)
    pair = worst_neighbours(own)
    dice = Dice(seed=seed)
    sides = tuple(Side(prepared, dice=dice) for prepared in (pair.first, pair.second))
    claim = claim_of(sides[0].plan, sides[0].pristine.task)
    attacker = adversary(*sides, model_only=model_only)
    found = np.empty((2, runs))
    for number in range(runs):
        for which, side in enumerate(sides):
            found[which, number] = attacker.statistic(side, number)
            on_run(2 * number + which + 1, 2 * runs)
    return judged(
        own,
        pair,
        claim,
        found,
        sees=attacker.sees,
        noise=attacker.noise_found(),
        reach=exact_shift(pair),
        confidence=confidence,
        seed=seed,
        seconds=perf_counter() - began,
    )


def require_auditable(experiment: Experiment, *, what: str = "an audit") -> None:
    """Refuse experiments without a claim, or outside every guarantee."""
    info = strategy_info(experiment.strategy.name, experiment.guests)
    if experiment.describing or info.name == PARTY_ALONE or not info.private:
        raise ValueError(
            f"{what} needs a strategy that learns with a guarantee, got {info.name!r}."
        )
    privacy = experiment.privacy
    if privacy.noise_free:
        raise ValueError(
            f"{what} needs a finite privacy.epsilon: without noise nothing is claimed."
        )
    if experiment.run.engine not in ("vectorized", "local"):
        raise ValueError(
            f"{what} needs run.engine = 'vectorized' or 'local', got {experiment.run.engine!r}: "
            "it repeats a run in this process. --engine changes it."
        )
    if not privacy.sizes_public and experiment.data.records is None:
        raise ValueError(
            f"{what} for privacy.unit = {privacy.unit!r} under {privacy.adjacency} adjacency "
            "needs data.records, the declared number that a release would need as well: neighbours "
            "that are counted differ in more than noise."
        )
