"""`[tuning] on = "private"`: charged once, drawn once, silent about how many trials there were."""

from __future__ import annotations

import json
import re
import secrets
from hashlib import sha256
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.planning.tuning.tuning import TuningPlan
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run import ending, outcome, session
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.ledgers import open_ledger
from fedpriv.simulations.run.prepare import build_strategy, prepare
from fedpriv.simulations.run.summary import simulate
from fedpriv.strategies.tuned import Tuned

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.run.session import Session

EXPERIMENT = """
[data]
name = "synthetic"

[strategy]
name = "gradient-perturbation"
rounds = 2

[privacy]
epsilon = 2.0

[tuning]
on = "private"
expected_trials = 3

[tuning.grid]
"strategy.clip" = [0.25, 1.0]
"strategy.rounds" = [1, 3]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it before a run: then the operating system draws what it drew before, names as well."""

    def again() -> None:
        numbers = count()

        def from_os(_cls: type) -> RandomStream:
            return RandomStream(sha256(str(next(numbers)).encode()).digest(), secure=True)

        monkeypatch.setattr(RandomStream, "from_os", classmethod(from_os))
        monkeypatch.setattr(secrets, "token_hex", lambda size: "ab" * size)

    return again


def begin(file: Path, name: str) -> Session:
    return open_session(
        read_experiment(file),
        out=file.parent / name,
        release=True,
        ledger=file.parent / f"{name}.ledger",
        new_ledger=True,
    )


def interrupted(begun: Session, after: int) -> None:
    """Carry on with a run, and stop it after so many exchanges."""
    exchanges = count(1)
    with open_ledger(begun) as ledger:
        assert session.carry_on(begun, ledger=ledger, stop=lambda: next(exchanges) >= after) is None


def model(begun: Session) -> np.ndarray[Any, Any]:
    with np.load(begun.directory / "model.npz") as arrays:
        return np.array(arrays["theta"])


def kinds(path: Path) -> list[str]:
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify().spent.within_budget
        return [row.kind for row in ledger.rows()]


def trials(patch: pytest.MonkeyPatch, number: int) -> None:
    patch.setattr(TrialCount, "draw", lambda _self, _stream: number)


def test_a_release_is_charged_once_and_says_what_was_chosen_by_which_rule(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    out, book = tmp_path / "out", tmp_path / "own.ledger"
    done = fedpriv("run", file, "--release", "--ledger", book, "--new-ledger", "--out", out)
    assert done.code == 0, done.err
    result = json.loads((out / "result.json").read_text())
    assert result["tuned"]["strategy.clip"] in (0.25, 1.0)
    assert result["tuned"]["strategy.rounds"] in (1, 3)
    assert "tuned on the private records, paid for: strategy.clip = " in done.out
    with Ledger.open(book, read_only=True) as ledger:
        charged = [row for row in ledger.rows() if row.amount]
        assert [row.kind for row in charged] == [Kind.DECLARED]
        assert ledger.spent().guarantee.epsilon == pytest.approx(2.0, rel=1e-9)
        assert ledger.verify().rows == 6
    statement = " ".join((out / "statement.txt").read_text().split())
    for told in (
        "on the private records themselves, paid for in the stated epsilon",
        f"strategy.clip = {result['tuned']['strategy.clip']:g}",
        "each with one of 4 settings, declared beforehand and drawn with replacement",
        "truncated negative binomial with eta = 0 and gamma = ",
        "3 in the mean",
        "how long the run took, which tells something of it, is not hidden",
        "profile rule for the best of a random number of trials",
    ):
        assert told in statement, told
    assert {path.name for path in out.iterdir()} == {*outcome.FILES, "private"}
    own = {path.name for path in (out / "private").iterdir()}
    assert own == {"run.json", "costs.json"}  # the secret of its draws is gone


def shape(file: Path, patch: pytest.MonkeyPatch, number: int, fedpriv: Any) -> dict[str, Any]:
    """All that a release with so many trials tells, but for the one setting, model and name."""
    out, book = file.parent / f"out{number}", file.parent / f"{number}.ledger"
    trials(patch, number)
    done = fedpriv("run", file, "--release", "--ledger", book, "--new-ledger", "--out", out)
    assert done.code == 0, done.err
    said = re.sub(r"strategy\.\w+ = [\d.]+|/\S+", "…", done.out + done.err)
    result = json.loads((out / "result.json").read_text())
    statement = json.loads((out / "statement.json").read_text())
    del statement["ledger"]["head"], statement["run"]["run"], statement["run"]["tuning"]
    return {
        "said": said,
        "files": sorted(str(path.relative_to(out)) for path in out.rglob("*")),
        "plan": (out / "plan.json").read_text(),
        "metrics": (out / "metrics.json").read_text(),
        "result": {key: value for key, value in result.items() if key not in ("run", "tuned")},
        "statement": statement,
        "ledger": kinds(book),
        "model": model_shape(out),
        "bytes": json.loads((out / "private" / "costs.json").read_text())["bytes"],
    }


def model_shape(out: Path) -> dict[str, tuple[int, ...]]:
    with np.load(out / "model.npz") as arrays:
        return {key: arrays[key].shape for key in arrays}


def test_nothing_that_is_told_depends_on_the_number_of_trials(
    fedpriv: Callable[..., Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (shape(file, monkeypatch, number, fedpriv) for number in (1, 7))
    assert few == many


def test_exchanges_that_are_told_are_caught(
    fedpriv: Callable[..., Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuned, "concealed", False)
    few, many = (shape(file, monkeypatch, number, fedpriv) for number in (1, 7))
    assert few["bytes"] < many["bytes"]
    monkeypatch.undo()
    monkeypatch.setattr(Tuned, "concealed", False)
    rows = [len(_simulated_rows(file, monkeypatch, number)) for number in (1, 7)]
    assert rows[0] < rows[1]


def _simulated_rows(file: Path, patch: pytest.MonkeyPatch, number: int) -> list[Any]:
    trials(patch, number)
    out = file.parent / f"simulated{number}{Tuned.concealed}"
    carry_through(open_session(read_experiment(file), out=out))
    rows: list[Any] = json.loads((out / "metrics.json").read_text())
    return rows


def test_a_simulation_is_as_silent(
    file: Path, monkeypatch: pytest.MonkeyPatch, fedpriv: Callable[..., Any]
) -> None:
    assert [len(_simulated_rows(file, monkeypatch, number)) for number in (1, 7)] == [1, 1]
    result = fedpriv("run", file, "--out", file.parent / "json", "--json").json()
    assert (result["rounds"], result["bytes"], result["noise_stddev"]) == (1, None, None)
    assert result["clip_fraction"] is None


def test_a_run_that_is_taken_up_again_draws_nothing_anew(
    file: Path, repeated: Callable[[], None]
) -> None:
    """Wherever it was interrupted: in its first trial, or a later one."""
    several = EXPERIMENT.replace("expected_trials = 3", "expected_trials = 6\neta = 40")
    file.write_text(several)
    repeated()
    whole = begin(file, "whole")
    told: list[Any] = []
    exchanges = count()
    with open_ledger(whole) as ledger:
        result = session.carry_on(
            whole,
            ledger=ledger,
            on_round=lambda _, entry: told.append(entry),
            stop=lambda: next(exchanges) < 0,
        )
    assert result is not None
    assert next(exchanges) > 8  # several trials
    assert len(told) == 1
    for after in (1, 5):
        repeated()
        begun = begin(file, f"after{after}")
        interrupted(begun, after)
        assert kinds(file.parent / f"after{after}.ledger").count(Kind.RESERVED) == 1
        interrupted(open_session(None, resume=begun.directory, release=True), 1)
        again = carry_through(open_session(None, resume=begun.directory, release=True))
        assert again is not None
        assert again["tuned"] == result["tuned"]
        np.testing.assert_array_equal(model(begun), model(whole))
        book = kinds(file.parent / f"after{after}.ledger")
        assert book == kinds(file.parent / "whole.ledger")


def test_a_redraw_after_an_interruption_is_caught(
    file: Path, repeated: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams of the system are refused; a secret of each session ends in another model."""
    begun = begin(file, "refused")
    monkeypatch.setattr(
        session, "secret_streams", lambda *_, **__: lambda _: RandomStream.from_os()
    )
    with pytest.raises(RuntimeError, match="would draw another number of trials"):
        interrupted(begun, 1)
    monkeypatch.undo()
    repeated()
    whole = begin(file, "whole")
    carry_through(whole)
    repeated()
    begun = begin(file, "redrawn")
    interrupted(begun, 2)
    (begun.directory / "private" / "draw.secret").write_bytes(b"another secret of 32 bytes......")
    carry_through(open_session(None, resume=begun.directory, release=True))
    assert (model(begun) != model(whole)).all()


def test_without_its_secret_a_run_does_not_go_on(file: Path) -> None:
    begun = begin(file, "lost")
    interrupted(begun, 1)
    secret = begun.directory / "private" / "draw.secret"
    assert secret.stat().st_mode & 0o077 == 0
    kept = secret.read_bytes()
    secret.unlink()
    before = kinds(file.parent / "lost.ledger")
    with pytest.raises(RuntimeError, match="to draw anew for the same payment"):
        carry_through(open_session(None, resume=begun.directory, release=True))
    assert kinds(file.parent / "lost.ledger") == before
    secret.write_bytes(kept)
    assert carry_through(open_session(None, resume=begun.directory, release=True)) is not None


def test_a_release_that_was_committed_is_found_in_the_ledger(file: Path) -> None:
    """A crash after the commit: the result is written from the ledger, without a draw."""
    begun = begin(file, "found")
    first = carry_through(begun)
    released = model(begun)
    (begun.directory / "result.json").unlink()
    (begun.directory / "model.npz").unlink()
    again = carry_through(open_session(None, resume=begun.directory, release=True))
    assert first is not None
    assert again is not None
    assert again["tuned"] == first["tuned"]
    np.testing.assert_array_equal(model(begun), released)


def test_a_crash_before_the_result_leaves_no_secret_behind(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run is not looked at again: whoever had its secret could take the noise off."""

    def crash(path: Path, values: Any) -> None:
        write_json(path, values)
        if path.name == "result.json":
            raise KeyboardInterrupt

    begun = begin(file, "crashed")
    monkeypatch.setattr(ending, "write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        carry_through(begun)
    monkeypatch.undo()
    assert carry_through(open_session(None, resume=begun.directory, release=True)) is not None
    assert not (begun.directory / "private" / "draw.secret").exists()


@pytest.mark.deep
def test_a_crash_at_any_write_changes_nothing_and_leaves_no_secret(
    file: Path, repeated: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right before a file is replaced, and right after it: one charge, one draw, one release."""
    put, writes, fatal = Path.replace, 0, (0, False)

    def replaced(source: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if fatal == (writes, False):
            raise KeyboardInterrupt
        done = put(source, target)
        if fatal == (writes, True):
            raise KeyboardInterrupt
        return done

    def carried(name: str) -> Session | None:
        nonlocal writes
        writes = 0
        repeated()
        try:
            carry_through(begin(file, name))
        except KeyboardInterrupt:
            if not session.started(file.parent / name):
                return None
        begun = open_session(None, resume=file.parent / name, release=True)
        carry_through(begun)
        return begun

    monkeypatch.setattr(Path, "replace", replaced)
    whole, last = carried("whole"), writes
    assert whole is not None
    assert last > 10
    resumed = 0
    for fatal in product(range(1, last + 1), (False, True)):
        name = f"crash-{fatal[0]}-{fatal[1]}"
        begun, book = carried(name), kinds(file.parent / f"{name}.ledger")
        if begun is None:  # then nothing was paid for
            assert Kind.DECLARED not in book
            continue
        resumed += 1
        np.testing.assert_array_equal(model(begun), model(whole))
        assert book == kinds(file.parent / "whole.ledger")
        assert not (begun.directory / "private" / "draw.secret").exists()
    assert resumed > last


def test_a_simulation_repeats_to_the_bit_and_its_hash_knows_the_grid(file: Path) -> None:
    experiment = read_experiment(file)
    one, two = simulate(experiment), simulate(experiment)
    assert one["tuned"] == two["tuned"]
    assert (one["accuracy"], one["loss"]) == (two["accuracy"], two["loss"])
    other = simulate(read_experiment(file, ["run.seed=1"]))
    assert other["loss"] != one["loss"]
    changed = read_experiment(file, ["tuning.expected_trials=4"])
    assert changed.config_hash != experiment.config_hash
    public = read_experiment(file, ["tuning={on='breast_cancer'}"])
    plain = public.model_copy(update={"tuning": None})
    assert public.config_hash == plain.config_hash


def planned(file: Path, *changes: str) -> TuningPlan:
    strategy = build_strategy(prepare(read_experiment(file, changes)), run="plan")
    assert isinstance(strategy.plan, TuningPlan)
    return strategy.plan


@pytest.mark.parametrize(
    "changes",
    [
        ("privacy.adjacency=add-remove",),
        ("tuning.score=loss", "tuning.clip=0.5", "tuning.score_share=0.3"),
        ("strategy.name=second-order", 'tuning.grid={"strategy.floor"=[0.5, 2.0]}'),
        ("strategy.accountant=rdp", "tuning.eta=1"),
        ('tuning.grid={"strategy.schedule"=["uniform", "dynamic"]}',),
    ],
)
def test_every_setting_is_planned_at_the_same_cost(file: Path, changes: tuple[str, ...]) -> None:
    plan = planned(file, *changes)
    best = plan.best
    assert plan.epsilon <= 2.0
    for trial in plan.trials:
        assert trial.gdp_mu is not None
        whole = (trial.gdp_mu**2 + best.score_mu**2) ** 0.5
        assert best.base_mu * (1 - 1e-8) < whole <= best.base_mu
    simulate(read_experiment(file, changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["tuning.trials=10"], "trials must not be given, got 10: whoever keeps the best of a"),
        (["tuning.expected_trials=1"], "tuning.expected_trials must be greater than 1"),
        (["tuning.expected_trials=1e6"], "expected_trials must be above 1 and at most 1000"),
        (["tuning.eta=-1"], "tuning.eta must be greater than -1"),
        (["tuning.seeds=2"], "seeds must be 1 with on = 'private'"),
        (["tuning={on='private'}"], "grid must offer settings"),
        (["tuning.on=breast_cancer"], "expected_trials is for on = 'private'"),
        (["strategy.name=output-perturbation", "model.l2=0.1"], "needs strategy.name = "),
        (["strategy.name=adaptive-clipping"], "needs strategy.name = 'gradient-perturbation'"),
        (["strategy.name=non-private"], "needs strategy.name = 'gradient-perturbation'"),
        (["privacy.epsilon=inf"], "needs a finite privacy.epsilon"),
        (["privacy.delta=0"], "delta must be positive"),
        (["privacy.noise_at=parties"], "needs privacy.noise_at = 'server'"),
        (["run.engine=local"], "needs run.engine = 'vectorized', got 'local'"),
        (["run.engine=ray"], "needs run.engine = 'vectorized', got 'ray'"),
        (["model.name=mlp", "strategy.learning_rate=0.1"], "needs a convex problem"),
        (["strategy.accountant=pld"], "accountant must be one of auto, basic, rdp"),
        (['tuning.grid={"model.l2"=[0.1]}'], "'model.l2' must be an option of the strategy"),
        (['tuning.grid={"strategy.name"=["second-order"]}'], "must be an option of the strategy"),
        (['tuning.grid={"privacy.unit"=["person"]}'], "must be a key of strategy or model"),
        (['tuning.grid={"strategy.clip"=[]}'], "needs at least one value"),
        (
            ['tuning.grid={"strategy.sampling_rate"=[0.5]}', "privacy.adjacency=add-remove"],
            "strategy.sampling_rate = 0.5 changes the privacy plan",
        ),
        (
            ['tuning.grid={"strategy.calibration"=["unsound-textbook"]}'],
            "'unsound-textbook' changes the privacy plan",
        ),
        (['tuning.grid={"strategy.law"=["l2-laplace"]}'], "strategy.law must be 'gaussian' with"),
        (['tuning.grid={"strategy.clipp"=[1.0]}'], "Did you mean 'clip'?"),
        (["tuning.score=accuracy", "model.name=huber-regression"], "Models for it"),
    ],
)
def test_what_has_no_such_price_is_refused_with_its_reason(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    settings = [word for change in changes for word in ("--set", change)]
    done = fedpriv("run", file, "--out", tmp_path / "out", *settings)
    assert done.code == 2
    assert message in done.message, done.message
    assert not (tmp_path / "out").exists()


def test_a_deployment_and_a_comparison_refuse_it(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"needs run\.engine = 'vectorized', got 'deployment'"):
        read_experiment(file, ["run.engine=deployment", "data={schema='x.toml'}"])
    text = file.read_text() + '\n[compare]\nstrategies = ["gradient-perturbation"]\n'
    file.write_text(text)
    done = fedpriv("compare", file, "--out", tmp_path / "out")
    assert done.code == 2
    assert "tuning.grid is for `fedpriv run`" in done.message


def test_a_ledger_without_a_price_refuses_before_a_directory_is_made(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    book = tmp_path / "gdp.ledger"
    made = fedpriv(
        "ledger", "init", book, "--data-name", "synthetic", "--epsilon", 9, "--delta", 1e-5,
        "--composition", "gdp",
    )  # fmt: skip
    assert made.code == 0, made.err
    before = kinds(book)
    done = fedpriv("run", file, "--release", "--ledger", book, "--out", tmp_path / "out")
    assert done.code == 2
    assert "gdp composition cannot price tuning releases" in done.message
    assert kinds(book) == before
    assert not (tmp_path / "out").exists()
