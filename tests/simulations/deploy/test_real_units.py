"""Whole parties and persons as units of privacy, in real processes: what is paid, to the digit.

SuperLink, SuperNodes and workers on the loopback, with TLS and node keys. One federation has a
budget for whole parties and trains locally; the other has one for persons, with several records
each. A budget is for one unit: these are two federations, whose processes one starter forks.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.run.jobs.statement_file import read_statement
from fedpriv.simulations.run.release_outcome import SIGNED
from fedpriv.simulations.server_app import FAILURE
from tests.federation.deployed.prices import charged, require_right_to_the_digit
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import NAMES, SCHEMA
from tests.simulations.deploy.nursery import Nursery
from tests.simulations.deploy.standing import Standing, model, standing, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedpriv.privacy.statement.signed import PartySignature

ROUNDS = 2
PERSONS = f'person = "patient"\n{SCHEMA}'


def write_visits(path: Path, size: int, seed: int) -> None:
    """Up to seven visits of one patient after the other."""
    rng = np.random.default_rng(seed)
    rows = [
        f"p{i // 7},{100 * a:.3f},{10 * d:.3f},{'yes' if a + d > 1 else 'no'}"
        for i, (a, d) in enumerate(rng.uniform(size=(size, 2)))
    ]
    path.write_text("\n".join(["patient,age,dose,sick", *rows]) + "\n")


def terms(unit: Unit, stated: int, **policy: Any) -> dict[str, Any]:
    """A federation for one unit, whose parties state a number and insist on the unit."""
    return {
        "budget": {"unit": unit.value, "adjacency": "add-remove"},
        "stated": stated,
        "min_noise": 0.001,
        "units": [unit.value],
        **policy,
    }


def begun(live: Standing, unit: Unit, **changes: dict[str, Any]) -> Path:
    """A run on its way."""
    fates.patience(live.server.root, attempts=3, seconds=60.0)
    privacy = {"unit": unit.value, "adjacency": "add-remove"}
    return live.begin(live.written("clinics", privacy=privacy, **changes)).directory


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[Unit, tuple[Standing, Path]]]:
    """Both runs on their way, at once."""
    training = {"name": "federated-averaging", "local_epochs": 2, "allow_swamped": True}
    whole = terms(
        Unit.PARTY,
        stated=100,
        strategies=["federated-averaging"],
        queries=["local-training"],
        max_local_steps=100,
    )
    people = terms(
        Unit.PERSON, stated=10, strategies=["gradient-perturbation"], queries=["gradient"]
    )
    nursery = Nursery()
    with closing(nursery), standing(NAMES, nursery=nursery, **whole) as parties:
        first = begun(parties, Unit.PARTY, strategy={"rounds": ROUNDS, **training})
        with standing(
            NAMES, nursery=nursery, schema=PERSONS, write=write_visits, **people
        ) as persons:
            second = begun(
                persons,
                Unit.PERSON,
                strategy={"rounds": ROUNDS, "clip": 0.5},
                persons={"records": 5, "parties": 1},
            )
            yield {Unit.PARTY: (parties, first), Unit.PERSON: (persons, second)}


def require_paid(live: Standing, directory: Path, unit: Unit) -> None:
    """Every ledger has the releases of the plan, for that unit, and costs that to the digit."""
    assert live.end(directory) is not None, (directory / FAILURE).read_text()
    plan = json.loads((directory / "plan.json").read_text())
    assert plan["unit"] == unit.value
    books = [live.server.root / "clinics.ledger"]
    books += [read_party(folder.policy).ledger for folder in live.parties]
    spent = [require_right_to_the_digit(book) for book in books]
    assert len({each.total.amount for each in spent}) == 1  # everybody pays the same
    for book in books:
        events = charged(book)
        assert len(events) == ROUNDS
        for event in events:
            assert isinstance(event, GaussianEvent)
            assert (event.unit, event.adjacency) == (unit, Adjacency.ADD_REMOVE)
    statement = (directory / "statement.txt").read_text()
    assert unit.words in statement
    assert np.isfinite(model(directory)).all()
    assert np.abs(model(directory)).max() > 0.01
    wait_until(lambda: len(signatures(directory)) == len(NAMES), what="signatures of all parties")


def signatures(directory: Path) -> tuple[PartySignature, ...]:
    """Who has signed what the run guarantees to whom; the server does so first."""
    return read_statement(directory).parties if (directory / SIGNED).exists() else ()


def test_parties_train_on_their_own_and_pay_for_all_that_they_hold(
    runs: dict[Unit, tuple[Standing, Path]],
) -> None:
    require_paid(*runs[Unit.PARTY], Unit.PARTY)


def test_a_person_with_several_records_is_paid_for_as_one(
    runs: dict[Unit, tuple[Standing, Path]],
) -> None:
    live, directory = runs[Unit.PERSON]
    require_paid(live, directory, Unit.PERSON)
    for folder in live.parties:  # with more records than it states persons
        checks = {check.name: check for check in examine(folder, network=False)}
        assert checks["records"].passed, checks["records"].found
