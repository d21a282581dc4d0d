"""Paid tuning, interrupted: whatever a crash leaves, nothing is drawn anew and no secret stays."""

from __future__ import annotations

import secrets
from hashlib import sha256
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.ledger import Kind
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run import ending, session
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.ledgers import open_ledger
from tests.simulations.run.paid_trials import TRIALS, kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.run.session import Session


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


def begin(trials_file: Path, name: str) -> Session:
    return open_session(
        read_experiment(trials_file),
        out=trials_file.parent / name,
        release=True,
        ledger=trials_file.parent / f"{name}.ledger",
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


def test_a_run_that_is_taken_up_again_draws_nothing_anew(
    trials_file: Path, repeated: Callable[[], None]
) -> None:
    """Wherever it was interrupted: in its first trial, or a later one."""
    several = TRIALS.replace("expected_trials = 3", "expected_trials = 6\neta = 40")
    trials_file.write_text(several)
    repeated()
    whole = begin(trials_file, "whole")
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
        begun = begin(trials_file, f"after{after}")
        interrupted(begun, after)
        assert kinds(trials_file.parent / f"after{after}.ledger").count(Kind.RESERVED) == 1
        interrupted(open_session(None, resume=begun.directory, release=True), 1)
        again = carry_through(open_session(None, resume=begun.directory, release=True))
        assert again is not None
        assert again["tuned"] == result["tuned"]
        np.testing.assert_array_equal(model(begun), model(whole))
        book = kinds(trials_file.parent / f"after{after}.ledger")
        assert book == kinds(trials_file.parent / "whole.ledger")


def test_a_redraw_after_an_interruption_is_caught(
    trials_file: Path, repeated: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams of the system are refused; a secret of each session ends in another model."""
    begun = begin(trials_file, "refused")
    monkeypatch.setattr(
        session, "secret_streams", lambda *_, **__: lambda _: RandomStream.from_os()
    )
    with pytest.raises(RuntimeError, match="would draw another number of trials"):
        interrupted(begun, 1)
    monkeypatch.undo()
    repeated()
    whole = begin(trials_file, "whole")
    carry_through(whole)
    repeated()
    begun = begin(trials_file, "redrawn")
    interrupted(begun, 2)
    (begun.directory / "private" / "draw.secret").write_bytes(b"another secret of 32 bytes......")
    carry_through(open_session(None, resume=begun.directory, release=True))
    assert (model(begun) != model(whole)).all()


def test_without_its_secret_a_run_does_not_go_on(trials_file: Path) -> None:
    begun = begin(trials_file, "lost")
    interrupted(begun, 1)
    secret = begun.directory / "private" / "draw.secret"
    assert secret.stat().st_mode & 0o077 == 0
    kept = secret.read_bytes()
    secret.unlink()
    before = kinds(trials_file.parent / "lost.ledger")
    with pytest.raises(RuntimeError, match="to draw anew for the same payment"):
        carry_through(open_session(None, resume=begun.directory, release=True))
    assert kinds(trials_file.parent / "lost.ledger") == before
    secret.write_bytes(kept)
    assert carry_through(open_session(None, resume=begun.directory, release=True)) is not None


def test_a_release_that_was_committed_is_found_in_the_ledger(trials_file: Path) -> None:
    """A crash after the commit: the result is written from the ledger, without a draw."""
    begun = begin(trials_file, "found")
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
    trials_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run is not looked at again: whoever had its secret could take the noise off."""

    def crash(path: Path, values: Any) -> None:
        write_json(path, values)
        if path.name == "result.json":
            raise KeyboardInterrupt

    begun = begin(trials_file, "crashed")
    monkeypatch.setattr(ending, "write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        carry_through(begun)
    monkeypatch.undo()
    assert carry_through(open_session(None, resume=begun.directory, release=True)) is not None
    assert not (begun.directory / "private" / "draw.secret").exists()


@pytest.mark.deep
def test_a_crash_at_any_write_changes_nothing_and_leaves_no_secret(
    trials_file: Path, repeated: Callable[[], None], monkeypatch: pytest.MonkeyPatch
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
            carry_through(begin(trials_file, name))
        except KeyboardInterrupt:
            if not session.started(trials_file.parent / name):
                return None
        begun = open_session(None, resume=trials_file.parent / name, release=True)
        carry_through(begun)
        return begun

    monkeypatch.setattr(Path, "replace", replaced)
    whole, last = carried("whole"), writes
    assert whole is not None
    assert last > 10
    resumed = 0
    for fatal in product(range(1, last + 1), (False, True)):
        name = f"crash-{fatal[0]}-{fatal[1]}"
        begun, book = carried(name), kinds(trials_file.parent / f"{name}.ledger")
        if begun is None:  # then nothing was paid for
            assert Kind.DECLARED not in book
            continue
        resumed += 1
        np.testing.assert_array_equal(model(begun), model(whole))
        assert book == kinds(trials_file.parent / "whole.ledger")
        assert not (begun.directory / "private" / "draw.secret").exists()
    assert resumed > last
