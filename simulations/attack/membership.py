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

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.audit.membership import Roc, lira_scores, roc
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.simulations.attack.shadows import drawn_pool, for_records, trained, unprotected
from fedpriv.simulations.experiment.records.data import every_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.simulations.experiment.file import Experiment


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
    pool = drawn_pool(every_record(experiment), 2 * records, rng)
    size = len(pool.train) // 2
    exchanged = experiment.privacy.adjacency == Adjacency.REPLACE_ONE.value
    members = np.array([_members(len(pool.train), rng, exchanged) for _ in range(models)])
    curves, accuracy = {}, {}
    for kind, wanted in (("none", unprotected(experiment)), ("planned", experiment)):
        losses, right = [], []
        for number in range(models):
            shadow = trained(for_records(wanted, size, seed + number), pool, members[number], rng)
            loss, wrong = shadow.losses(pool.train), shadow.wrong(pool.train)
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
