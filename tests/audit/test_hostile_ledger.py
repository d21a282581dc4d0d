"""Attacks on the ledger: a second budget for the same people, by file, composition or unit."""

from __future__ import annotations

import shutil
from math import exp
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import Event, GaussianEvent, LaplaceEvent, PureEvent
from fedpriv.privacy.ledger import Ledger, LedgerError, LedgerMismatch
from tests.audit.neighbours import write
from tests.audit.test_neighbouring_persons import STEPS, PersonCase, visits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

R = Adjacency.REPLACE_ONE
SETTINGS: dict[str, Any] = {
    "data_name": "clinic",
    "budget": Budget(epsilon=20.0, delta=1e-6),
    "adjacency": R,
}
EVENT = GaussianEvent(relative_noise=6.0, adjacency=R)


def moved_away(path: Path) -> None:
    (path.parent / "away").mkdir()
    for each in path.parent.glob("clinic.ledger*"):
        each.rename(path.parent / "away" / each.name)


def without_log(path: Path) -> None:
    for each in path.parent.glob("clinic.ledger-*"):
        each.unlink()


@pytest.mark.parametrize("put", ["earlier", "fresh"])
@pytest.mark.parametrize("before", [lambda _: None, without_log, moved_away])
def test_a_ledger_that_is_exchanged_under_a_run_pays_for_nothing_more(
    tmp_path: Path, before: Callable[[Path], None], put: str
) -> None:
    """Put a copy back, or a fresh one, while a run has the ledger open: its rows go nowhere."""
    path = tmp_path / "clinic.ledger"
    Ledger.create(path, **SETTINGS).close()
    Ledger.create(tmp_path / "fresh", **SETTINGS).close()
    shutil.copy(path, tmp_path / "earlier")
    with Ledger.open(path) as ledger:
        ledger.commit(ledger.reserve(EVENT, run="run", round=0), b"release")
        paid = ledger.reserve(EVENT, run="run", round=1)
        before(path)
        (tmp_path / put).replace(path)
        with pytest.raises(LedgerError, match="exchanged for another file"):
            ledger.reserve(EVENT, run="run", round=2)
        with pytest.raises(LedgerError, match="exchanged for another file"):
            ledger.commit(paid, b"release")


def test_a_ledger_that_is_exchanged_during_a_write_says_so_before_anything_is_published(
    tmp_path: Path,
) -> None:
    """Put a fresh ledger in its place between the beginning and the end of a transaction."""
    path = tmp_path / "clinic.ledger"
    Ledger.create(path, **SETTINGS).close()
    Ledger.create(tmp_path / "fresh", **SETTINGS).close()
    with Ledger.open(path) as ledger:
        with (
            pytest.raises(LedgerError, match="exchanged for another file"),
            ledger._store.writing(),
        ):
            (tmp_path / "fresh").replace(path)
        with pytest.raises(LedgerError, match="exchanged for another file"):
            ledger.reserve(EVENT, run="run", round=0)


MIXTURES: list[list[tuple[Event, int]]] = [
    [(LaplaceEvent(relative_noise=4.0, adjacency=R), 10), (EVENT, 5)],
    [(PureEvent(epsilon=0.5, adjacency=R), 12), (EVENT, 2)],
    [(PureEvent(epsilon=2.0, adjacency=R), 1), (LaplaceEvent(relative_noise=1.0, adjacency=R), 2)],
]


def least_epsilon(block: list[tuple[Event, int]], delta: float) -> float:
    """A lower bound on the true ε: every loss rounded down to a grid, randomised response exact."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    options: dict[str, Any] = {
        "value_discretization_interval": 1e-4,
        "pessimistic_estimate": False,
    }
    whole: Any = None
    for event, count in block:
        match event:
            case GaussianEvent():
                one = losses.from_gaussian_mechanism(
                    event.relative_noise, use_connect_dots=False, **options
                )
            case LaplaceEvent():
                one = losses.from_laplace_mechanism(
                    event.relative_noise, use_connect_dots=False, **options
                )
            case PureEvent():
                noise = 2 / (1 + exp(event.epsilon))
                one = losses.from_randomized_response(noise, 2, **options)
        many = one.self_compose(count)
        whole = many if whole is None else whole.compose(many)
    return float(whole.get_epsilon_for_delta(delta))


@pytest.mark.parametrize("rule", ["gdp", "rdp", "rdp:4", "basic"])
@pytest.mark.parametrize("block", MIXTURES)
def test_no_rule_counts_less_than_a_mixture_of_releases_really_costs(
    tmp_path: Path, rule: str, block: list[tuple[Event, int]]
) -> None:
    """Mix kinds of noise in one ledger, and hold what it counts against a lower bound."""
    with Ledger.create(tmp_path / "l", composition=rule, **SETTINGS) as ledger:
        if rule == "basic":
            ledger.declare("run", block)
        else:
            number = 0
            for event, count in block:
                for _ in range(count):
                    ledger.reserve(event, run="run", round=number)
                    number += 1
        assert ledger.spent().guarantee.epsilon >= least_epsilon(block, 1e-6) * (1 - 1e-9)


class Visits(PersonCase):
    """The same table and unit, but every visit is called a person."""

    def schema(self) -> dict[str, Any]:
        return {**super().schema(), "person": "visit"}


def test_persons_of_another_column_are_not_added_up(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    """Nine visits, each hidden as a person, are no patient who is hidden.

    The ledger took them for one unit: of a patient it said 2 epsilon, and by group privacy it was
    up to 10 of them.
    """
    rows = [{**row, "visit": str(place)} for place, row in enumerate(visits("binary"))]
    ledger, codes = tmp_path / "own.ledger", []
    Ledger.create(ledger, **SETTINGS, unit="person").close()
    for number, kind in enumerate((PersonCase, Visits, PersonCase)):
        case = kind(name="persons", strategy=STEPS, epsilon=0.5)
        study = write(case, rows, tmp_path / str(number))
        out = tmp_path / str(number) / "out"
        done = fedpriv("run", study, "--release", "--ledger", ledger, "--out", out)
        codes.append(done.code)
        if done.code:
            assert "column 'patient'" in done.err
            assert not (out / "result.json").exists()
    assert codes == [0, 2, 0]


def test_a_ledger_keeps_whom_it_counts(tmp_path: Path) -> None:
    """Also where another column, or none, comes with data that were bound later."""
    path = tmp_path / "clinic.ledger"
    with Ledger.create(path, **SETTINGS, unit="person") as ledger:
        ledger.bind_data(b"records", whom="patient")
        ledger.add_data(b"more records", reason="patients of 2026")
        ledger.bind_data(b"more records", whom="patient")
        for other in ("visit", None):
            with pytest.raises(LedgerMismatch, match="column 'patient'"):
                ledger.bind_data(b"more records", whom=other)
        ledger.verify()
