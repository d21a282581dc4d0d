"""Whole parties are hidden from the file on: one exchanged, or gone, shows through the noise alone.

As in `test_neighbouring_files`, with neighbours of another unit: a party's records are exchanged
for others, more of them or fewer, as extreme as they come, or leave. Numbers of records are
declared. The twins at the end put mistakes in, and they are found.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.losses import Softmax
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import small_cnn
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.strategies.common import local_training
from tests.audit.examination import STRESS, difference, unlawful
from tests.audit.laboratory import Laboratory, moved
from tests.audit.neighbours import PARTIES, Case, table
from tests.simulations.experiment.test_own_docs import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.audit.neighbours import Row

AVERAGING: dict[str, Any] = {
    "name": "federated-averaging",
    "rounds": 3,
    "clip": 0.2,
    "local_epochs": 2,
    "local_learning_rate": 2.0,
    "allow_swamped": True,
}
SCAFFOLD = {**AVERAGING, "name": "scaffold"}


@pytest.fixture(autouse=True)
def one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and cohorts follow from the name of a run, which is drawn: here, the same for all."""
    monkeypatch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)


@dataclass(frozen=True, kw_only=True)
class PartyCase(Case):
    """A release for whole parties, whose numbers of records are declared."""

    def experiment(self, folder: Path) -> dict[str, Any]:
        values = super().experiment(folder)
        values["data"].setdefault("records", [25, 15, 10])
        values["privacy"]["unit"] = "party"
        return values


CASES = [
    PartyCase(name="exchanged", strategy=AVERAGING),
    PartyCase(name="more or less", strategy=AVERAGING, adjacency="add-remove"),
    PartyCase(
        name="equal weights, quantile",
        strategy={**AVERAGING, "weights": "equal", "clip_quantile": 0.5, "count_noise": 12.0},
        adjacency="add-remove",
    ),
    PartyCase(
        name="quantile, exchanged",
        strategy={**AVERAGING, "clip_quantile": 0.7, "count_noise": 25.0},
        fold=True,
        data={"public_test": True},
    ),
    PartyCase(
        name="a cohort and adam",
        strategy={**AVERAGING, "cohort": 2, "optimiser": "adam", "proximal": 0.1},
    ),
    PartyCase(
        name="a network",
        strategy={**AVERAGING, "local_momentum": 0.5, "batch_size": 4},
        model={"name": "mlp", "hidden": [3]},
        adjacency="add-remove",
    ),
    PartyCase(
        name="classes",
        strategy={**AVERAGING, "local_steps": 30, "local_epochs": None},
        model={"name": "softmax"},
        data={"test_fraction": 0.0},
    ),
    PartyCase(name="control variates", strategy=SCAFFOLD, adjacency="add-remove"),
    PartyCase(
        name="own loss",  # by autograd, which trains parties apart
        strategy=AVERAGING,
        model={"name": "linear", "loss": "losses.py:PseudoHuberHinge"},
        adjacency="add-remove",
        code=files("own-model.md"),
    ),
]


def neighbours(case: Case, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Tables that differ from ``rows`` by one party."""
    labels = {"binary": ("yes", "no"), "classes": ("a", "c"), "number": ("1", "-1")}[case.task]
    for clinic in PARTIES:
        others = [row for row in rows if row["clinic"] != clinic]
        if case.adjacency == "add-remove":
            yield f"{clinic} leaves", others
            continue
        for label, count in zip((*labels, labels[0]), (3, 26, 90), strict=True):
            extreme = {
                "age": "100" if label == labels[0] else "0",
                "dose": "1" if count == 90 else "-1",
                "ward": "icu",
                "outcome": label,
                "clinic": clinic,
                "fold": "2",
            }
            yield f"{clinic} has {count} others", [*others, *[extreme] * count]


def findings(
    case: Case, laboratory: Laboratory, folder: Path, *, most: int | None = None
) -> list[str]:
    """What an observer would find, or the proof."""
    rows = table(case.task)
    one = laboratory.run(case, rows, folder / "one")
    assert one.code == 0, one.said
    problems = unlawful(one)
    for number, (name, others) in enumerate(list(neighbours(case, rows))[:most]):
        other = laboratory.run(case, others, folder / f"other{number}", script=one)
        if other.code:
            problems.append(f"{name}: refused by what the table holds: {other.said}")
            continue
        problems += [f"{name}: {what}" for what in difference(case, one, other)]
    return problems


@pytest.mark.parametrize(
    "case", CASES if STRESS else CASES[:5], ids=lambda case: case.name.replace(" ", "-")
)
def test_a_release_shows_a_party_through_its_noise_alone(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    case = _without_none(case)
    assert findings(case, laboratory, tmp_path, most=None if STRESS else 4) == []


def test_the_only_party_with_records_may_leave(laboratory: Laboratory, tmp_path: Path) -> None:
    """An empty table was refused, and so told that the party had left."""
    case = next(case for case in CASES if case.adjacency == "add-remove")
    rows = [row for row in table(case.task) if row["clinic"] == "north"]
    one = laboratory.run(case, rows, tmp_path / "one")
    assert one.code == 0, one.said
    other = laboratory.run(case, [], tmp_path / "other", script=one)
    assert other.code == 0, other.said
    assert not difference(case, one, other)


def _without_none(case: Case) -> Case:
    chosen = {key: value for key, value in case.strategy.items() if value is not None}
    return type(case)(**{**vars(case), "strategy": chosen})


@pytest.mark.parametrize("parties", [1, 4])
def test_parties_that_a_hash_makes_are_no_unit(
    parties: int, laboratory: Laboratory, tmp_path: Path
) -> None:
    """Without one of four, copies of its records were dealt out anew, to all: 2.9 times the bound.

    They are numbered over the whole table, and each number has a hash of its own.
    """
    case = PartyCase(
        name="by hash",
        strategy=AVERAGING,
        adjacency="add-remove",
        data={"partition": "hashed", "parties": parties, "records": 40},
    )
    done = laboratory.run(case, [table("binary")[0]] * 60, tmp_path / "one")
    assert done.code != 0
    assert "needs data.partition = 'natural', got 'hashed'" in done.said


@pytest.mark.parametrize(
    "model",
    [
        LinearModel(width=64, classes=3),
        MlpModel(widths=(64, 7, 3), activation="relu"),
        small_cnn(shape=(1, 8, 8), classes=3),
    ],
    ids=["linear", "mlp", "cnn"],
)
def test_a_party_whose_training_diverges_leaves_nothing_to_the_others(model: Model) -> None:
    """Parties are trained one after another in the same memory: no infinity may stay there."""
    rng = np.random.default_rng(1)
    settings = LocalSgd(epochs=2, batch_size=10, learning_rate=1e3, momentum=0.9)
    others = [rng.normal(size=(count, 64)) / 8 for count in (23, 90, 7)]

    def updates(first: Any) -> Any:
        tables = [first, *others]
        sizes = [len(each) for each in tables]
        labels = [np.arange(size) % 3 for size in sizes]
        batch = RecordBatch(
            features=torch.tensor(np.concatenate(tables), dtype=torch.float32),
            labels=torch.tensor(np.concatenate(labels)),
            offsets=torch.tensor([0, *np.cumsum(sizes)]),
        )
        trainer = LocalTrainer(model=model, loss=Softmax(classes=3), batch=batch, settings=settings)
        return trainer.updates(model.initial(np.random.default_rng(0)), key=5)

    wild, calm = updates(1e18 * rng.normal(size=(31, 64))), updates(others[0][:5])
    assert not np.isfinite(wild[0]).all()
    assert wild[1:].tobytes() == calm[1:].tobytes()


def test_the_worst_neighbours_come_close_to_the_bound(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """So that the audit would find half the bound."""
    case, rows = CASES[0], table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    apart = 0.0
    for number, (_, others) in enumerate(neighbours(case, rows)):
        if number >= 3:  # the largest party, whose weight is 1
            break
        other = laboratory.run(case, others, tmp_path / f"{number}", script=one)
        apart = max(
            apart, *(moved(a, b) for a, b in zip(one.releases, other.releases, strict=True))
        )
    mechanism = one.releases[0].mechanism
    assert isinstance(mechanism, GaussianMechanism)
    assert 0.6 * mechanism.sensitivity < apart <= mechanism.sensitivity


def test_a_partys_coin_hides_it(laboratory: Laboratory, tmp_path: Path) -> None:
    """The same coins for all others: in some rounds the party took part, in others it did not."""
    case = PartyCase(
        name="sampled",
        strategy={**AVERAGING, "party_rate": 0.5, "rounds": 6},
        adjacency="add-remove",
    )
    rows = table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    assert one.code == 0, one.said
    (_, others) = next(iter(neighbours(case, rows)))
    other = laboratory.run(case, others, tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    joined = [moved(a, b) for a, b in zip(one.releases, other.releases, strict=True)]
    assert max(joined) > 0
    assert min(joined) == 0


# What the audit is for.


@pytest.mark.parametrize("strategy", [AVERAGING, SCAFFOLD], ids=lambda each: each["name"])
def test_half_the_noise_is_found(
    strategy: dict[str, Any],
    laboratory: Laboratory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if a party that is exchanged moved a sum by C: noise for that is noise for half."""
    case = PartyCase(name="half", strategy=strategy)
    monkeypatch.setattr(local_training, "answer_norm", lambda counting: 0.5)
    assert "a sum moved by" in " ".join(findings(case, laboratory, tmp_path, most=3))


def test_an_answer_that_is_not_clipped_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LocalTrainer.clipped_sum

    def careless(self: LocalTrainer, theta: Any, **how: Any) -> Any:
        how["bound"] *= 4
        how["clip_norm"] *= 4
        return honest(self, theta, **how)

    monkeypatch.setattr(LocalTrainer, "clipped_sum", careless)
    assert "a sum moved by" in " ".join(findings(CASES[0], laboratory, tmp_path, most=3))
