"""An audit in one run: many canaries, each included at random, guessed from all noisy sums.

For networks of any size. The experiment runs once, on random records, with planted gradients in its
sums (`planted`). By a fair coin each canary is in or out, or, where records are exchanged, itself
or its opposite. Clip, fixed point, the sum over parties, noise, samples and plan are those of a
run; what a table goes through before it reaches a party, and how the gradient of a network is
clipped, are not in it: an audit of many runs has these.

**The adversary** knows all other records and every canary, but not the coins, and sees every noisy
sum. On a canary's coordinates it subtracts the sum without canaries, which it can compute, and
takes the inner product of the rest with what the canary would add, in units of the noise. Over all
rounds that is the log-likelihood ratio of its coin, apart from the effect of sampling.

**How it is judged**: `fedpriv.audit.one_run`.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_open_unit
from fedpriv.audit.one_run import best_guesses, right_guesses
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.audit.adversaries import noisy_sum, sums_are_released
from fedpriv.simulations.audit.claim import claim_of
from fedpriv.simulations.audit.crafted import crafted, raw_rows
from fedpriv.simulations.audit.noise import NoiseSeen, noise_found, noise_of
from fedpriv.simulations.audit.planted import Planted, PlantedFederation
from fedpriv.simulations.audit.repetition import Dice, Side
from fedpriv.simulations.audit.result import judged_in_one_run
from fedpriv.simulations.experiment.records.stand_in import StandIn
from fedpriv.simulations.run.prepare import check, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Federation
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.simulations.audit.claim import Claim
    from fedpriv.simulations.audit.repetition import Seen
    from fedpriv.simulations.audit.result import Audit
    from fedpriv.simulations.run.prepare import Prepared

CANARIES = 1000
_OTHERS = 256
_LEAST = 20


def audit_in_one_run(own: Prepared, *, canaries: int, confidence: float, seed: int) -> Audit:
    """Run an experiment once, with canaries by coins, and bound its μ and ε from below.

    Args:
        own: The experiment, prepared on its own records: of these only public facts are used.
        canaries: How many; no more than the model has coordinates, or half the experiment records.
        confidence: Of the bounds.
        seed: Of coins, canaries and noise.
    """
    require_count(canaries=canaries)
    require_open_unit(confidence=confidence)
    began = perf_counter()
    if (reason := why_not_in_one_run(own)) is not None:
        raise ValueError(f"an audit in one run needs {reason}.")
    count = min(canaries, own.task.dimension, own.task.records // 2)
    if count < _LEAST:
        raise ValueError(
            f"an audit in one run needs {_LEAST} canaries at the least, and this experiment has "
            f"room for {count}. Audit it in many runs."
        )
    planted = Planted.drawn(
        count,
        own.task.dimension,
        replacing=own.experiment.privacy.adjacency == Adjacency.REPLACE_ONE.value,
        rng=np.random.default_rng((seed, 1)),
    )
    side = PlantedSide(on_random_records(own), dice=Dice(seed=seed), planted=planted)
    claim = claim_of(side.plan, side.pristine.task)
    guesses = best_guesses(count, mu=_expected(claim), confidence=confidence)
    scores, apart = side.scores()
    return judged_in_one_run(
        own,
        claim,
        canaries=count,
        guesses=guesses,
        right=right_guesses(scores, planted.coins, guesses),
        reach=apart if side.plan.least_rate == 1 else None,
        noise=noise_found([side.noise]),
        confidence=confidence,
        seed=seed,
        seconds=perf_counter() - began,
    )


def why_not_in_one_run(own: Prepared) -> str | None:
    """The requirement of a one-run audit that an experiment lacks; None if it meets all."""
    section = own.experiment.run
    if Unit(own.experiment.privacy.unit) is not Unit.RECORD:
        return f"privacy.unit = 'record', got {own.experiment.privacy.unit!r}"
    if section.engine != "vectorized" or section.dropout:
        return "run.engine = 'vectorized' without run.dropout"
    strategy = check(own)
    if strategy is None or strategy.plan is None:
        return "a strategy with a guarantee"
    if not isinstance(strategy.ask(), GradientQuery) or not sums_are_released(
        Side(own, dice=Dice(seed=0))
    ):
        return "a strategy that releases noisy sums of gradients, with noise that is fixed before"
    return None


class PlantedSide(Side):
    """An experiment with canaries in its sums, and the same without, to compare.

    Attributes:
        noise: What was seen of it.
        sums: The federation that adds the canaries.
    """

    def __init__(self, prepared: Prepared, *, dice: Dice, planted: Planted) -> None:
        super().__init__(prepared, dice=dice)
        self._planted, self.noise = planted, NoiseSeen(self)
        self.sums = PlantedFederation(
            prepared.data,
            planted=planted,
            task=prepared.task,
            sampling=dice.streams("sampling"),
            workers=1,
            apart=True,
        )

    def scores(self) -> tuple[NDArray[np.float64], float]:
        """A score per canary, larger the likelier its coin was heads; and the μ of one canary."""
        found, squares = np.zeros(len(self._planted.coins)), np.zeros(len(self._planted.coins))

        def watch(seen: Seen) -> None:
            if seen.release is None:
                return
            task, query = self.prepared.task, seen.query
            rate = query.sampling_rate
            noisy = noisy_sum(seen, task)
            exact = self.exact(query)[: noisy.size]
            self.noise.see(seen, noisy, exact + self.sums.added[: noisy.size])
            left = (noisy - exact)[self._planted.blocks]
            heads, tails = self.sums.heads, self.sums.tails
            moves = rate * (heads - tails)
            middle = rate * (heads + tails) / 2
            variance = noise_of(self.plan.mechanisms[query.round], parties=task.parties) ** 2
            found[...] += (moves * (left - middle)).sum(axis=1) / variance
            squares[...] += (moves**2).sum(axis=1) / variance

        self.run(0, watch)
        self.noise.end_run()
        return found, float(np.sqrt(np.median(squares)))

    def _parties(self, _strategy: SumStrategy) -> Federation:
        return self.sums


def on_random_records(own: Prepared) -> Prepared:
    """The experiment on random records of full length."""
    rng, m = np.random.default_rng(0), own.task.parties
    features = own.data.dataset.train.X.shape[1] - (own.experiment.data.intercept != 0)
    count = max(m, min(_OTHERS, own.task.records // 2))
    rows = rng.normal(size=(count, features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held = np.arange(count) % m
    stand_in = StandIn(
        dataset=crafted(own, raw_rows(own, rows), rng.random(count) < 0.5, held),
        by_hash=not own.own_test,
        sizes=own.task.sizes if own.experiment.privacy.sizes_public else None,
    )
    return prepare(own.experiment, stand_in=stand_in)


def _expected(claim: Claim) -> float:
    """The μ for which the number of guesses is chosen; any is valid, a wrong one shows less."""
    return gdp_mu(epsilon=claim.epsilon, delta=1e-5) if claim.mu is None else claim.mu
