"""A release for persons is private from the file on: neighbours differ in all rows of a person.

As in `test_neighbouring_files`, with tables that differ by a person: removed with all rows, or
exchanged for another with more rows, or fewer, at other clinics. All that is published and not
noisy is the same to the byte, numbers of rows included; every exact sum moves by no more than the
noise is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import fedpriv.federation.party.answers as answering
import fedpriv.simulations.experiment.records.data
from fedpriv.data import Persons, partition
from fedpriv.data.marks import marks
from fedpriv.learning.clipping.clipped_sum import clipped_gradient_sums
from fedpriv.learning.erm.problem import ErmProblem
from tests.audit.examination import difference, unlawful
from tests.audit.laboratory import moved
from tests.audit.neighbours import GRADIENTS, OBJECTIVE, OUTPUT, Case, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Row

STEPS = {**GRADIENTS, "learning_rate": 0.1}


@dataclass(frozen=True, kw_only=True)
class PersonCase(Case):
    """A way to make a release with persons as its unit.

    Attributes:
        persons: The section of the experiment.
    """

    persons: dict[str, Any] = field(default_factory=dict)

    def experiment(self, folder: Path) -> dict[str, Any]:
        study = super().experiment(folder)
        if "records" not in self.data:
            study["data"]["records"] = [8, 6, 4]  # persons
        study["privacy"]["unit"] = "person"
        return {**study, "persons": self.persons}

    def schema(self) -> dict[str, Any]:
        return {**super().schema(), "person": "patient"}

    @property
    def changes(self) -> int:
        parties: int = self.persons.get("parties", 1)
        return parties * super().changes


CASES = [
    PersonCase(name="exchanged", strategy=STEPS),
    PersonCase(name="one more or less", strategy=STEPS, adjacency="add-remove"),
    PersonCase(
        name="at two parties",
        strategy={**STEPS, "clip": 0.3},
        adjacency="add-remove",
        persons={"parties": 2, "records": 3},
        file="parquet",
    ),
    PersonCase(
        name="exchanged at two parties",
        strategy=STEPS,
        persons={"parties": 2},
        data={"test_fraction": 0.0},
    ),
    PersonCase(
        name="by hash",
        strategy={**GRADIENTS, "clip": 0.5},
        data={"partition": "hashed", "parties": 3, "records": 18},
        model={"name": "softmax"},
        persons={"records": 4},
    ),
    PersonCase(
        name="a network, with public test records",
        strategy={**STEPS, "optimiser": "adam"},
        adjacency="add-remove",
        fold=True,
        data={"public_test": True},
        model={"name": "mlp", "hidden": [3]},
    ),
    PersonCase(
        name="clipped by quantile",
        strategy={"name": "adaptive-clipping", "rounds": 4, "learning_rate": 0.1},
        persons={"parties": 2},
        adjacency="add-remove",
    ),
    PersonCase(
        name="clipped by coordinate",
        strategy={
            "name": "adaptive-clipping",
            "rule": "coordinate",
            "rounds": 4,
            "learning_rate": 0.1,
        },
    ),
    PersonCase(
        name="learned protection, at two parties",
        strategy={"name": "learned-protection", "horizon": 3},
        persons={"parties": 2},
        adjacency="add-remove",
    ),
    PersonCase(
        name="learned protection, exchanged",
        strategy={"name": "learned-protection", "horizon": 3},
    ),
    PersonCase(
        name="steps that are selected",
        strategy={"name": "agd", "splits": 4, "selection": "exponential"},
        adjacency="add-remove",
        epsilon=0.5,
        persons={"parties": 2, "records": 3},
    ),
    PersonCase(
        name="second order, at two parties",
        strategy={"name": "second-order", "rounds": 2},
        adjacency="add-remove",
        persons={"parties": 2, "records": 9},
    ),
    PersonCase(
        name="second order, exchanged",
        strategy={"name": "second-order", "rounds": 2},
        model={"name": "softmax"},
        persons={"records": 4},
    ),
    PersonCase(
        name="tuned and paid for, exchanged at two parties",
        strategy=STEPS,
        persons={"parties": 2, "records": 3},
        tuning={
            "on": "private",
            "grid": {"strategy.clip": [0.3, 1.0]},
            "expected_trials": 4,
            "eta": 20,
            "clip": 0.4,
        },
    ),
    PersonCase(name="minimisers", strategy=OUTPUT, persons={"records": 4}),
    PersonCase(
        name="minimisers at two parties, one more or less",
        strategy={**OUTPUT, "weights": "equal"},
        adjacency="add-remove",
        model={"name": "softmax"},
        persons={"parties": 2, "records": 9},
    ),
    PersonCase(
        name="the joint minimiser",
        strategy={**OUTPUT, "fit": "joint", "law": "l1-laplace"},
        persons={"parties": 2, "records": 9},
    ),
    PersonCase(
        name="a perturbed objective",
        strategy=OBJECTIVE,
        persons={"parties": 2, "records": 3},
        adjacency="add-remove",
    ),
]


def visits(task: str) -> list[Row]:
    """Rows of 18 persons: one with 9 of them, some at two clinics, some with one."""
    rng = np.random.default_rng(3)
    rows = table(task)
    owners = [*["p0"] * 9, *(f"p{1 + i % 17}" for i in range(len(rows) - 9))]
    for row, owner in zip(rows, rng.permutation(owners), strict=True):
        row["patient"] = str(owner)
    return rows


def neighbours(case: PersonCase, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Tables that differ from ``rows`` by one person, the worst that we know of among them."""
    extreme = {
        "age": "100",
        "dose": "1",
        "ward": "icu",
        "outcome": {"binary": "no", "classes": "c"}[case.task],
        "fold": "1",
    }
    for who in ("p0", "p5", rows[20]["patient"]):
        rest = [dict(row) for row in rows if row["patient"] != who]
        if case.adjacency == "add-remove":
            yield f"without {who}", rest
            continue
        more = [
            {**extreme, "clinic": clinic, "patient": f"new {who}"}
            for clinic in ("west", "north")
            for _ in range(7)
        ]
        yield f"another for {who}", [*more[:6], *rest, *more[6:]]
        yield f"one row for {who}", [*rest, more[0]]


def findings(case: PersonCase, laboratory: Laboratory, folder: Path) -> list[str]:
    rows = visits(case.task)
    one = laboratory.run(case, rows, folder / "one")
    assert one.code == 0, one.said
    problems = unlawful(one)
    for number, (name, others) in enumerate(neighbours(case, rows)):
        other = laboratory.run(case, others, folder / f"other{number}", script=one)
        assert other.code == 0, other.said
        problems += [f"{name}: {what}" for what in difference(case, one, other)]
    return problems


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_release_shows_a_person_through_its_noise_alone(
    case: PersonCase, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []


def test_records_that_are_clipped_one_by_one_are_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has teeth: nine records of norm C are not one person of norm C."""

    def one_by_one(self: Any, query: Any, draws: Any, persons: Any, clipping: Any) -> Any:
        theta = torch.from_numpy(query.theta.astype(np.float32))
        sums = clipped_gradient_sums(
            self._task.model, self._task.loss, theta, self._batch, clipping
        )
        return sums.value.numpy(), sums.measures

    monkeypatch.setattr(answering.Holdings, "_person_sums", one_by_one)
    room = {"test_fraction": 0.0, "records": 200}  # for such sums
    case = PersonCase(name="broken", strategy={**STEPS, "clip": 0.1}, data=room)
    assert any("a sum moved by" in what for what in findings(case, laboratory, tmp_path))


def test_minimisers_of_records_one_by_one_are_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for minimisers: nine records in the sum are not one person's mean."""
    case = PersonCase(
        name="one by one",
        strategy=OUTPUT,
        model={"l2": 2.0},
        data={"test_fraction": 0.0},
        persons={"records": 9},
    )
    assert findings(case, laboratory, tmp_path / "means") == []

    def one_by_one(**facts: Any) -> ErmProblem:
        return ErmProblem(**{**facts, "groups": None})

    monkeypatch.setattr(answering, "ErmProblem", one_by_one)
    assert any("a sum moved by" in w for w in findings(case, laboratory, tmp_path / "sums"))


def test_a_split_by_record_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So has it for parties: a person who is scattered over them moves more than one answer."""
    case = PersonCase(
        name="scattered",
        strategy={**STEPS, "clip": 0.1},
        adjacency="add-remove",
        data={"test_fraction": 0.0, "partition": "hashed", "parties": 3, "records": 18},
    )
    assert findings(case, laboratory, tmp_path / "whole") == []
    records: list[Any] = []

    def noted(dataset: Any, **arguments: Any) -> Any:
        records.append(dataset.train)
        return partition(dataset, **arguments)

    def by_record(self: Persons, *, purpose: str, seed: int) -> Any:
        return marks(records[-1], purpose=purpose, seed=seed)

    monkeypatch.setattr(fedpriv.simulations.experiment.records.data, "partition", noted)
    monkeypatch.setattr(Persons, "marks", by_record)
    assert any("a sum moved by" in w for w in findings(case, laboratory, tmp_path / "torn"))


def test_poisson_samples_hide_a_person_by_a_coin_at_each_party(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """With the same coins for all others: the person's are the last of each party's."""
    case = PersonCase(
        name="sampled",
        strategy={**STEPS, "sampling_rate": 0.5, "rounds": 12},
        adjacency="add-remove",
        persons={"parties": 1},
        data={"test_fraction": 0.0},
    )
    rows = sorted(visits("binary"), key=lambda row: row["clinic"])
    last = [dict(rows[-1], patient="z") for _ in range(4)]
    one = laboratory.run(case, [*rows, *last], tmp_path / "one")
    assert one.code == 0, one.said
    other = laboratory.run(case, rows, tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    joined = [moved(a, b) for a, b in zip(one.releases, other.releases, strict=True)]
    assert max(joined) > 0
    assert min(joined) == 0  # in some rounds the person took no part, with no record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"records": None}}, "needs data.records"),
        ({"strategy": OUTPUT}, "persons.records must be given for a minimiser"),
        ({"strategy": OBJECTIVE}, "persons.records must be given for a minimiser"),
        (
            {"strategy": OBJECTIVE, "persons": {"records": 2}, "delta": 0.0},
            "law must be 'gaussian' for persons",
        ),
        ({"strategy": {**STEPS, "weights": "equal"}}, "unit must be 'record' for equal weights"),
        ({"strategy": {**STEPS, "learning_rate": "auto"}}, "or persons.records"),
    ],
)
def test_what_persons_need_is_refused_from_public_facts(
    change: dict[str, Any], message: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    case = replace(PersonCase(name="refused", strategy=STEPS), **change)
    done = laboratory.run(case, visits("binary"), tmp_path / "one")
    assert done.code != 0
    assert message in done.said
