"""Attacks on the ledger: a second budget for the same people, by its file or its composition."""

from __future__ import annotations

import shutil
from math import exp
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import Event, GaussianEvent, LaplaceEvent, PureEvent
from fedpriv.privacy.ledger import Ledger, LedgerError

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
