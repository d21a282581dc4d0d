"""Attempts to get more out of a release than it paid for: kills, resumes, and what they leave."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._durable import replace_file
from fedpriv.privacy.ledger import Ledger, LedgerConflict
from fedpriv.privacy.mechanisms import Mechanism
from fedpriv.privacy.mechanisms.selection import Selection
from fedpriv.simulations.describe.experiment import read_description
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.ledgers import make_ledger, open_ledger
from fedpriv.simulations.run.prepare import build_federation, build_strategy, check, prepare
from fedpriv.simulations.run.release_outcome import DESCRIBED_FILES, FILES
from fedpriv.simulations.run.session import carry_on, reopen, start
from fedpriv.strategies.description import Description
from tests.audit.neighbours import INFERENCE, OBJECTIVE, OUTPUT, Case, table, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.run.prepare import Prepared

A = "add-remove"
WHOLE = {"scaling": "divide", "test_fraction": 0.0}
CASES = [
    Case(name="gradients", strategy={"name": "gradient-perturbation", "rounds": 3}),
    Case(
        name="samples",
        strategy={"name": "gradient-perturbation", "rounds": 3, "sampling_rate": 0.5},
        adjacency=A,
    ),
    Case(name="quantile", strategy={"name": "adaptive-clipping", "rounds": 2}),
    Case(name="agd", strategy={"name": "agd", "splits": 3}),
    Case(name="learned", strategy={"name": "learned-protection", "horizon": 2}),
    Case(name="output", strategy=OUTPUT),
    Case(name="joint", strategy={**OUTPUT, "fit": "joint"}),
    Case(name="objective", strategy=OBJECTIVE, adjacency=A),
    Case(name="matrix", strategy={"name": "second-order", "rounds": 2}),
    Case(name="fit", strategy=INFERENCE, data=WHOLE, adjacency=A),
    Case(name="moments", strategy=INFERENCE, data=WHOLE, model={"name": "squared"}),
    Case(name="statistics", strategy={"name": "describe", "bins": 4}),
]


class Killed(BaseException):
    """The process is gone: nothing catches it."""


def planned(prepared: Prepared) -> Plan:
    strategy = check(prepared)
    assert strategy is not None
    assert strategy.plan is not None
    return strategy.plan


@contextmanager
def killed_at(moment: int) -> Iterator[list[str]]:
    """Die before or after the write of that number: of the ledger, or of any file of the run."""
    seen: list[str] = []

    def watched(what: Callable[..., Any]) -> Callable[..., Any]:
        def write_it(*arguments: Any, **named: Any) -> Any:
            for before in (True, False):
                seen.append(what.__name__)
                if before:
                    if len(seen) == moment:
                        raise Killed
                    done = what(*arguments, **named)
            if len(seen) == moment:
                raise Killed
            return done

        return write_it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _file: None)
        for name in ("reserve", "declare", "commit"):
            patch.setattr(Ledger, name, watched(getattr(Ledger, name)))
        written = watched(replace_file)
        for module in ("files", "session", "statement.statements"):
            patch.setattr(f"fedpriv.simulations.run.{module}.replace_file", written)
        yield seen


@contextmanager
def noise_drawn() -> Iterator[list[tuple[str, bytes]]]:
    """Every release that is made of a sum, whether it is stored or not."""
    drawn: list[tuple[str, bytes]] = []
    release, select = Mechanism.release, Selection.select

    def released(self: Mechanism, total: Any, **named: Any) -> Any:
        value = release(self, total, **named)
        drawn.append((self.name, value.tobytes()))
        return value

    def selected(self: Selection, scores: Any, stream: Any) -> int:
        drawn.append((self.name, bytes(8)))
        return select(self, scores, stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mechanism, "release", released)
        patch.setattr(Selection, "select", selected)
        yield drawn


def outcome(out: Path, *, described: bool) -> dict[str, Any]:
    stated = {*DESCRIBED_FILES} - {"statistics.svg"} if described else {*FILES}
    found = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert found == {*stated, "private"}
    return {name: json.loads((out / name).read_text()) for name in stated if name.endswith("json")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_killed_at_any_write_a_release_is_what_its_ledger_holds_and_no_more(
    case: Case, tmp_path: Path
) -> None:
    """Whatever is published follows from the releases in the ledger, each drawn and paid once."""
    study = write(case, table(case.task), tmp_path / "data")
    described = case.strategy["name"] == "describe"
    prepared = prepare((read_description if described else read_experiment)(study))
    plan = planned(prepared)
    moments, died = -CASES.index(case) % 9, True
    while died:
        moments += 9
        folder = tmp_path / str(moments)
        folder.mkdir()
        book, out = folder / "own.ledger", folder / "out"
        make_ledger(book, prepared.experiment, plan)
        start(prepared, out, release=True, ledger=book)
        with (
            noise_drawn() as drawn,
            killed_at(moments) as seen,
            suppress(Killed),
            open_ledger(reopen(out)) as ledger,
        ):
            carry_on(reopen(out), ledger=ledger)
        died = len(seen) == moments
        before = len(drawn)
        with noise_drawn() as more, open_ledger(reopen(out)) as ledger:
            result = carry_on(reopen(out), ledger=ledger)
        assert result is not None
        files = outcome(out, described=described)
        with Ledger.open(book) as ledger:
            ledger.verify()
            kinds = Counter((row.kind, row.run, row.round) for row in ledger.rows())
            assert set(kinds.values()) == {1}
            committed = sum(row.kind == "committed" for row in ledger.rows())
            # A draw was lost at most once: the one that had not been stored when the run died.
            assert committed <= before + len(more) <= committed + 1
            strategy = build_strategy(prepared, run=result["run"], release=True, ledger=ledger)
            assert strategy.ask() is None  # all of it is there
            assert strategy.plan is not None
            assert files["plan.json"] == json.loads(json.dumps(strategy.plan.to_dict()))
            spent = ledger.spent().guarantee
        assert spent.epsilon <= files["statement.json"]["guarantee"]["epsilon"] * (1 + 1e-9)
        assert files["statement.json"]["ledger"]["spent_before_epsilon"] == 0
        if isinstance(strategy, Description):
            blocks = files["statistics.json"]["release"]["blocks"]
            np.testing.assert_array_equal(
                strategy.sums, np.concatenate([block["sums"] for block in blocks])
            )
            continue
        theta = np.load(out / "model.npz")["theta"]
        np.testing.assert_array_equal(strategy.theta, theta)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3]], ids=lambda case: case.name)
def test_two_processes_that_go_on_with_one_run_make_one_release_of_each_round(
    case: Case, tmp_path: Path
) -> None:
    """A directory is copied while its run is interrupted, and both are resumed at once.

    Both have paid, once, and both have drawn noise for the same sum when the first one stores its
    release. The other one's draw is lost, and it goes on with what was stored.
    """
    prepared = prepare(read_experiment(write(case, table(case.task), tmp_path / "data")))
    book = tmp_path / "own.ledger"
    make_ledger(book, prepared.experiment, planned(prepared))
    with Ledger.open(book) as one, Ledger.open(book) as two:
        first, second = (
            build_strategy(prepared, run="study", release=True, ledger=ledger)
            for ledger in (one, two)
        )
        federation = build_federation(prepared, run="study", release=True)
        asked, again = first.ask(), second.ask()
        assert asked is not None
        assert again is not None
        answer = federation.sum(asked)
        np.testing.assert_array_equal(federation.sum(again).total, answer.total)
        first.learn(answer)
        with pytest.raises(LedgerConflict):
            second.learn(answer)
        following = first.ask(), second.ask()  # the other one replays what was stored
        assert following[0] is not None
        assert type(following[0]) is type(following[1])
        assert first.round == second.round
        np.testing.assert_array_equal(first.theta, second.theta)
        rows = Counter((row.kind, row.run, row.round) for row in one.rows())
        assert set(rows.values()) == {1}
