"""Membership inference on an experiment: shadow models of its strategy, with and without noise.

A pool of the experiment's own records is drawn, and every model is trained on a random half of it
by the strategy as it is. Members and others are then of one kind: what tells them apart is what
the model kept of its own.

What a guarantee says of one record is said of neighbours, so with and without it must be neighbours
here. Under replace-one adjacency a half has a fixed size: who is not in it has another in its
place. Under add-remove adjacency each record is in it by a coin of its own, at a party that was
drawn before; with a fixed size there would be two steps from one to the other, not one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv.audit.membership import Roc, lira_scores, roc
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.simulations.experiment.records.data import every_record
from fedpriv.simulations.experiment.records.stand_in import StandIn
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.data import Dataset
    from fedpriv.simulations.experiment.file import Experiment

_PER_PARTY = 10  # records, at the least


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Membership:
    """What two attacks show, without protection and with it.

    Attributes:
        records: Members of every model, and as many others; under add-remove adjacency, in
            the mean.
        models: Of each kind.
        curves: By protection and attack: ("none", "loss"), ("planned", "lira"), …
        accuracy: Of the models on their others, by protection; None for a regression.
    """

    records: int
    models: int
    curves: dict[tuple[str, str], Roc]
    accuracy: dict[str, float | None]


def infer_membership(
    experiment: Experiment,
    *,
    records: int,
    models: int,
    seed: int = 0,
    on_model: Callable[[int, int], None] = lambda _done, _total: None,
) -> Membership:
    """Train ``models`` on random halves of 2·``records`` records, for each kind of protection."""
    rng = np.random.default_rng(seed)
    pool = _pool(every_record(experiment), 2 * records, rng)
    size = len(pool.train) // 2
    exchanged = experiment.privacy.adjacency == Adjacency.REPLACE_ONE.value
    members = np.array([_members(len(pool.train), rng, exchanged) for _ in range(models)])
    curves, accuracy = {}, {}
    for kind, wanted in (("none", _unprotected(experiment)), ("planned", experiment)):
        losses, right = [], []
        for number in range(models):
            each = _with_records(wanted, size, seed + number)
            loss, wrong = _losses(each, pool, members[number], rng)
            losses.append(loss)
            right.append(None if wrong is None else 1 - wrong[~members[number]].mean())
            on_model(number + 1 + (models if kind == "planned" else 0), 2 * models)
        table = np.array(losses)
        for attack, scores in (("loss", -table), ("lira", lira_scores(table, members))):
            known = np.isfinite(scores)
            if known.any():
                curves[kind, attack] = roc(scores[known & members], scores[known & ~members])
        known_right = [each for each in right if each is not None]
        accuracy[kind] = float(np.mean(known_right)) if known_right else None
    return Membership(records=size, models=models, curves=curves, accuracy=accuracy)


def _members(pool: int, rng: np.random.Generator, exchanged: bool) -> NDArray[np.bool_]:
    """A random half: of a fixed size if records are exchanged, else by a coin for each."""
    return rng.permutation(pool) < pool // 2 if exchanged else rng.random(pool) < 0.5


def _unprotected(experiment: Experiment) -> Experiment:
    return experiment.replaced(privacy={"epsilon": inf, "noise_at": None})


def _with_records(experiment: Experiment, records: int, seed: int) -> Experiment:
    """The experiment for so many records; where it declares a number, for that one."""
    declared = {"records": records} if experiment.data.records is not None else {}
    return experiment.replaced(
        run={"seed": seed, "engine": "vectorized", "dropout": None}, data=declared
    )


def _pool(dataset: Dataset, records: int, rng: np.random.Generator) -> Dataset:
    whole = dataset.train
    if len(whole) < records:
        raise ValueError(
            f"records must be at most {len(whole) // 2}, half of those that there are, got "
            f"{records // 2}."
        )
    chosen = np.sort(rng.permutation(len(whole))[:records])
    return replace(dataset, train=whole.take(chosen))


def _losses(
    experiment: Experiment,
    pool: Dataset,
    members: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Of every record of the pool: its loss under a model of the members, and if it is wrong."""
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
    path: Any = prepared.data.dataset.preprocessing
    everyone = replace(pool.train, X=path.bounded(pool.train.X), party=None)
    evaluator = prepared.evaluator.on(everyone)
    scores = evaluator.model.scores(torch.from_numpy(strategy.theta.copy()), evaluator.features)
    loss = evaluator.loss.value(scores, evaluator.labels).double().numpy()
    wrong = evaluator.wrong(strategy.theta) if evaluator.majority() is not None else None
    return np.nan_to_num(loss, nan=700.0, posinf=700.0), wrong


def _parties(experiment: Experiment, records: int) -> int:
    """As many as the experiment has, if there are ten records for each."""
    declared = experiment.data.parties
    most = max(1, records // _PER_PARTY)
    return min(most, declared or most)
