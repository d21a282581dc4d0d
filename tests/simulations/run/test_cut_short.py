"""A release that does not fit its ledger: refused at the start, and honest if it ends early."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from tests.simulations.run.clinic import ROUNDS, released

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., Any]

PLAN = ("--set", "privacy.epsilon=1.5")


def spend(path: Path, noise: float) -> None:
    """Another run on the same ledger."""
    with Ledger.open(path) as ledger:
        event = GaussianEvent(relative_noise=noise, adjacency=ledger.settings.adjacency)
        ledger.reserve(event, run=f"other-{noise}", round=0)


def head(path: Path) -> str:
    with Ledger.open(path, read_only=True) as ledger:
        return ledger.head


def test_a_plan_beyond_what_is_left_is_refused_and_nothing_is_spent(
    fedpriv: Command, study: Path, book: Path
) -> None:
    """It once started, spent what was left, and ended with exit status 0."""
    spend(book, 3.0)
    before = head(book)
    done = released(fedpriv, study, book, "out", *PLAN)
    assert done.code == 2
    for words in ("privacy.epsilon = 1.5", "do not fit", "Nothing was spent", "smaller"):
        assert words in done.message
    assert head(book) == before
    assert not (study.parent / "out").exists()


def test_a_plan_that_just_fits_is_carried_out(fedpriv: Command, study: Path, book: Path) -> None:
    done = released(fedpriv, study, book, "out", "--set", "privacy.epsilon=2")
    assert done.code == 0, done.err
    result = done.json()
    assert (result["rounds"], result["cut_short"]) == (ROUNDS, False)
    again = released(fedpriv, study, book, "again", "--set", "privacy.epsilon=0.01")
    assert again.code == 2


def test_noise_that_is_chosen_on_the_way_needs_room_for_all_that_it_may_spend(
    fedpriv: Command, study: Path, book: Path
) -> None:
    adaptive = ("--set", "strategy.name=agd", "--set", "data.parties=1",
                "--set", 'data.partition="hashed"')  # fmt: skip
    spend(book, 3.0)
    before = head(book)
    done = released(fedpriv, study, book, "out", *PLAN, *adaptive)
    assert (done.code, head(book)) == (2, before)
    assert "do not fit" in done.message


@pytest.mark.parametrize("told", [(), ("--json",)])
def test_a_run_that_another_one_overtakes_ends_early_and_says_so(
    fedpriv: Command, study: Path, book: Path, told: tuple[str, ...]
) -> None:
    learn, rounds = SumStrategy.learn, 0

    def overtaken(self: SumStrategy, answer: Any) -> None:
        nonlocal rounds
        learn(self, answer)
        rounds += 1
        if rounds == 2:
            spend(book, 2.77)

    out = study.parent / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SumStrategy, "learn", overtaken)
        done = fedpriv("run", study, "--release", "--ledger", book, "--out", out, *PLAN, *told)
    assert done.code == 1
    result = json.loads((out / "result.json").read_text())
    assert (result["cut_short"], result["rounds"]) == (True, 2)
    statement = json.loads((out / "statement.json").read_text())
    assert statement["run"]["releases_made"] == 2
    assert any("ended early, after 2 releases" in line for line in statement["warnings"])
    assert statement["guarantee"]["epsilon"] == pytest.approx(1.5, rel=1e-6)  # of the whole plan
    text = (out / "statement.txt").read_text()
    assert f"2 of {ROUNDS} planned releases" in text
    assert "(epsilon, delta) of 2 releases together" in (out / "statement.yaml").read_text()
    with Ledger.open(book, read_only=True) as ledger:
        (run,) = [entry for entry in ledger.runs() if not entry.run.startswith("other")]
        assert run.committed == run.reserved == 2
        ledger.verify()
