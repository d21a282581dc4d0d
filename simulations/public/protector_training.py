"""Training a protector: from a public data set and budgets to a file of weights with its card."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch

import fedpriv
from fedpriv._durable import replace_file
from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.data import Bounds, bound, load
from fedpriv.learning.losses import Logistic
from fedpriv.learning.protector import (
    Allowance,
    AuxiliaryTask,
    Card,
    Horizon,
    MetaTraining,
    Recipe,
    final_models,
    to_bytes,
)
from fedpriv.learning.threads import one_thread
from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY, Adjacency
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.run.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.data import Records
    from fedpriv.learning.protector import EpochReport, Protector

EPSILONS = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
_FORMAT = "fedpriv protector training 1"
_RUNS, _RECORDS = 8, 3000  # by which horizons are judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order for a protector: what to train it for, and how long.

    Attributes:
        on: A built-in, public data set with two classes.
        root: The folder of data archives, instead of FEDPRIV_DATA.
        epsilons: Budgets that it must know, from the smallest on.
        delta: Of all budgets.
        adjacency: Which data sets they compare.
        clip: C, for features of norm at most 1.
        epochs: Of 50 batches of 20 steps.
        seed: Of everything random.
    """

    on: str
    root: str | None = None
    epsilons: tuple[float, ...] = EPSILONS
    delta: float = 1e-8
    adjacency: Adjacency = DEFAULT_ADJACENCY
    clip: float = 0.1
    epochs: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive(clip=self.clip)
        require_open_unit(delta=self.delta)
        require_count(epochs=self.epochs)
        if not self.epsilons or list(self.epsilons) != sorted(set(self.epsilons)):
            raise ValueError(f"epsilons must ascend, got {self.epsilons}.")

    def recipe(self, records: int) -> Recipe:
        """The training, in units of noise: one record moves a mean by C/n or 2C/n."""
        moved = self.adjacency.sum_sensitivity / records
        noises = (moved / gdp_mu(epsilon=e, delta=self.delta) for e in self.epsilons)
        return Recipe(noises=tuple(noises), epochs=self.epochs, seed=self.seed)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values, but for where the archives lie."""
        values = asdict(self)
        del values["root"]
        return values | {"adjacency": self.adjacency.value, "epsilons": list(self.epsilons)}


def train_protector(
    order: Order,
    out: Path,
    *,
    resume: bool = False,
    on_epoch: Callable[[EpochReport], None] = lambda _report: None,
    stop: Callable[[], bool] = lambda: False,
) -> Card | None:
    """Train a protector and write ``out``; None if ``stop`` ended it, and ``resume`` continues.

    Until the end, the state after every epoch lies beside ``out``. The same order gives the same
    bytes, interrupted or not.
    """
    partial = out.with_name(f"{out.name}.partial")
    if out.exists():
        raise ValueError(f"--out {str(out)!r} exists: choose another name, or remove it.")
    if partial.exists() != resume:
        hint = "continue it with --resume" if partial.exists() else "start it without --resume"
        raise ValueError(
            f"{str(partial)!r} {'exists' if partial.exists() else 'is missing'}: {hint}."
        )
    with one_thread():
        train, test = public_task(order)
        training = MetaTraining(order.recipe(len(train.labels)), train)
        identity = {"format": _FORMAT, "order": order.to_dict(), "records": _digest(train)}
        if resume:
            _take_up(training, read_json(partial), identity, partial)
        while training.epoch < order.epochs:
            report = training.run_epoch()
            write_json(partial, {**identity, **training.state()})
            on_epoch(report)
            if stop() and training.epoch < order.epochs:
                return None
        card = _card(order, training, train, test)
        replace_file(out, to_bytes(training.protector, card))
        partial.unlink(missing_ok=True)
        return card


def public_task(order: Order) -> tuple[AuxiliaryTask, AuxiliaryTask]:
    """The public records to train on, and those to judge by; norms at most 1, with intercept."""
    dataset = bound(load(order.on, root=order.root), Bounds())
    if dataset.task != "binary":
        raise ValueError(
            f"--on must name a data set of two classes, {order.on!r} is {dataset.task}."
        )

    def task(records: Records) -> AuxiliaryTask:
        return AuxiliaryTask(
            features=torch.tensor(records.X),
            labels=torch.tensor(records.y),
            loss=Logistic(),
            clip_norm=order.clip,
        )

    return task(dataset.train), task(dataset.test)


def choose_horizons(
    protector: Protector, recipe: Recipe, train: AuxiliaryTask, test: AuxiliaryTask
) -> tuple[Horizon, ...]:
    """For each budget the horizon with the best mean accuracy on the public test records."""
    regulariser = sorted(recipe.regularisers)[len(recipe.regularisers) // 2]

    def accuracy(noise: float, horizon: int) -> float:
        allowance = Allowance(noise=noise, horizon=horizon, norm_share=recipe.norm_share)
        generator = torch.Generator().manual_seed(recipe.seed)
        sample = replace(train.sample(_RECORDS, generator), regulariser=regulariser)
        models = final_models(protector, sample, allowance, runs=_RUNS, generator=generator)
        return float(test.accuracy(models).mean())

    return tuple(
        Horizon(noise=noise, rounds=max(recipe.horizons, key=lambda T: accuracy(noise, T)))
        for noise in recipe.noises
    )


def _card(order: Order, training: MetaTraining, train: AuxiliaryTask, test: AuxiliaryTask) -> Card:
    recipe = training.recipe
    return Card(
        trained_on=order.on,
        version=fedpriv.__version__,
        clip_norm=order.clip,
        norm_share=recipe.norm_share,
        horizons=choose_horizons(training.protector, recipe, train, test),
        settings={
            "order": order.to_dict(),
            "recipe": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(recipe).items()
            },
            "records": len(train.labels),
            "records_sha256": _digest(train),
        },
    )


def _take_up(
    training: MetaTraining, saved: dict[str, Any], identity: dict[str, Any], path: Path
) -> None:
    if {key: saved.get(key) for key in identity} != identity:
        raise ValueError(
            f"{str(path)!r} is the state of another training, or on other records: remove it, or "
            "give the options that it was started with."
        )
    try:
        training.restore(saved)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{str(path)!r} was changed or damaged: remove it to start anew."
        ) from None


def _digest(task: AuxiliaryTask) -> str:
    digest = sha256(task.features.numpy().tobytes())
    digest.update(task.labels.numpy().tobytes())
    return digest.hexdigest()
