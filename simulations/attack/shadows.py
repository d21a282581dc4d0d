"""Shadow models of attacks: an experiment's strategy, trained on records that are chosen for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.simulations.experiment.records.stand_in import StandIn
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data import Dataset, Records
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared

_PER_PARTY = 10  # records, at the least


def unprotected(experiment: Experiment) -> Experiment:
    """The experiment without noise."""
    return experiment.replaced(privacy={"epsilon": inf, "noise_at": None})


def for_records(experiment: Experiment, records: int, seed: int) -> Experiment:
    """The experiment for so many records; where it declares a number, for that one."""
    declared = {"records": records} if experiment.data.records is not None else {}
    return experiment.replaced(
        run={"seed": seed, "engine": "vectorized", "dropout": None}, data=declared
    )


def drawn_pool(dataset: Dataset, records: int, rng: np.random.Generator) -> Dataset:
    """So many of the records, twice as many as a model is trained on."""
    whole = dataset.train
    if len(whole) < records:
        raise ValueError(
            f"records must be at most {len(whole) // 2}, half of those that there are, got "
            f"{records // 2}."
        )
    chosen = np.sort(rng.permutation(len(whole))[:records])
    return replace(dataset, train=whole.take(chosen))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shadow:
    """A model of the experiment's strategy.

    Attributes:
        prepared: What it was trained in.
        theta: Its parameters.
    """

    prepared: Prepared
    theta: NDArray[np.float64]

    def losses(self, records: Records) -> NDArray[np.float64]:
        """The loss of every record, of those before any bound."""
        evaluator = self._evaluator(records)
        scores = evaluator.model.scores(torch.from_numpy(self.theta), evaluator.features)
        loss = evaluator.loss.value(scores, evaluator.labels).double().numpy()
        return np.asarray(np.nan_to_num(loss, nan=700.0, posinf=700.0), dtype=np.float64)

    def wrong(self, records: Records) -> NDArray[np.float64] | None:
        """Which it gets wrong; None for a regression."""
        evaluator = self._evaluator(records)
        return None if evaluator.majority() is None else evaluator.wrong(self.theta)

    def _evaluator(self, records: Records) -> Any:
        path: Any = self.prepared.data.dataset.preprocessing
        return self.prepared.evaluator.on(replace(records, X=path.bounded(records.X), party=None))


def trained(
    experiment: Experiment,
    pool: Dataset,
    members: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Shadow:
    """Train on the members of a pool, dealt out to parties."""
    train_on = pool.train.take(members)
    parties = _parties(experiment, len(pool.train) // 2)
    if experiment.privacy.adjacency == Adjacency.REPLACE_ONE.value:
        dealt = rng.permutation(np.arange(len(train_on)) % parties)
    else:
        dealt = rng.permutation(np.arange(len(pool.train)) % parties)[members]
    hashed = experiment.data.partition == "hashed"
    dataset = replace(
        pool,
        train=replace(train_on, party=None if hashed else dealt),
        test=pool.train.take(slice(0, 0)),
        party_names=() if hashed else tuple(map(str, range(parties))),
    )
    prepared = prepare(experiment, stand_in=StandIn(dataset=dataset, by_hash=False))
    strategy = build_strategy(prepared, run=prepared.run)
    federation = build_federation(prepared, run=prepared.run, rounds=strategy.rounds)
    train(strategy, federation, lambda _query, _answer: True)
    return Shadow(prepared=prepared, theta=strategy.theta.copy())


def _parties(experiment: Experiment, records: int) -> int:
    """As many as the experiment has, if there are ten records for each."""
    declared = experiment.data.parties
    most = max(1, records // _PER_PARTY)
    return min(most, declared or most)
