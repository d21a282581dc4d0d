"""A deployed party that is killed between any two writes, or whose disk is put back in parts."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed import journal as journals
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.ledger.storage.store import Store
from fedpriv.privacy.randomness import RandomStream
from fedpriv.secagg.messages import Confirm, Confirmations, Reveal
from tests.audit.deployed_cases import R, locally_gaussian
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.villains import RUN, Villain, shared, shares_of_five

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.numbers.fixed_point import Ring


class _Killed(BaseException):
    """The machine fails here: nothing of the process is left but its disk."""


@contextmanager
def every_write(happened: Callable[[], None]) -> Iterator[None]:
    """Calls ``happened`` before and after every durable write of journal and ledger."""
    write, transaction = journals._write, Store.writing

    def written(path: Path, data: bytes) -> None:
        happened()
        write(path, data)
        happened()

    @contextmanager
    def charged(store: Store) -> Iterator[None]:
        happened()
        with transaction(store):
            yield
        happened()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(journals, "_write", written)
        patched.setattr(Store, "writing", charged)
        yield


@contextmanager
def secrets_used() -> Iterator[list[bytes]]:
    """The secrets that releases are drawn from, one for each time that an answer is computed."""
    used: list[bytes] = []
    opened = RandomStream.from_secret

    def noted(secret: bytes, *labels: str | int) -> RandomStream:
        used.append(secret)
        return opened(secret, *labels)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RandomStream, "from_secret", noted)
        yield used


class _Party:
    """A party in the clear, each message by a fresh process, and what it is asked."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.deployment = Deployment(
            folder=folder,
            policy={"secure_aggregation": "off", "min_noise": 0.01},
            budget={"composition": "gdp"},
            experiment={"run": {"secure_aggregation": "off"}},
        )
        self.home = self.deployment.home("north")
        engagement: Any = self.deployment.host("north").engagement
        query, _ = locally_gaussian(engagement.task, R)
        self.query = replace(query, run=f"{engagement.run}-1")

    def answer(self, query: Query) -> Ring:
        with Journal(self.home / "state").held():
            answer: Ring = self.deployment.host("north").party.answer(query)
            return answer

    def files(self) -> dict[str, bytes]:
        kept = [*self.home.glob("north.ledger*"), *(self.home / "state").rglob("*")]
        return {str(p.relative_to(self.home)): p.read_bytes() for p in kept if p.is_file()}

    def restore(self, files: dict[str, bytes]) -> None:
        shutil.rmtree(self.home / "state", ignore_errors=True)
        for path in self.home.glob("north.ledger*"):
            path.unlink()
        for name, data in files.items():
            path = self.home / name
            path.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
            path.write_bytes(data)

    def spent(self) -> float:
        with self.deployment.ledger("north") as ledger:
            return ledger.spent().total.amount


def test_killed_before_and_after_every_write_a_release_has_one_draw_and_one_payment(
    tmp_path: Path,
) -> None:
    """Kill between any two writes, ask again: no other secret is used once one release is paid."""
    party = _Party(tmp_path)
    clean = party.files()
    party.answer(party.query)
    paid = party.spent()
    for moment in range(100):
        party.restore(clean)
        left = moment

        def killed() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Killed

        with secrets_used() as secrets:
            try:
                with every_write(killed):
                    party.answer(party.query)
            except _Killed:
                done = False
            else:
                done = True
            first = party.answer(party.query)
            again = party.answer(party.query)
        np.testing.assert_array_equal(first, again)
        assert len(set(secrets)) == 1
        assert party.spent() == paid
        if done:
            break
    assert 12 <= moment < 99  # every write was tried, before and after


def test_state_and_ledger_of_different_ages_give_no_second_draw(tmp_path: Path) -> None:
    """Put back the state directory, or the ledger, alone, as it was at any moment of a release."""
    party = _Party(tmp_path)
    moments: list[dict[str, bytes]] = []
    party.answer(party.query)
    with every_write(lambda: moments.append(party.files())):
        given = party.answer(replace(party.query, round=1))
    newest = party.files()
    refused = 0
    for earlier in moments:
        for part in ("state/", "north.ledger"):
            party.restore(
                {name: data for name, data in newest.items() if not name.startswith(part)}
                | {name: data for name, data in earlier.items() if name.startswith(part)}
            )
            try:
                np.testing.assert_array_equal(party.answer(replace(party.query, round=1)), given)
            except QueryRefused:
                refused += 1
    assert refused >= len(moments) // 2


def test_an_older_ledger_pays_for_nothing_more(tmp_path: Path) -> None:
    """Put back the ledger of any moment before an answer left, and ask for the next release."""
    party = _Party(tmp_path)
    moments: list[dict[str, bytes]] = []
    with every_write(lambda: moments.append(party.files())):
        party.answer(party.query)
    newest, paid = party.files(), party.spent()
    for earlier in moments:
        party.restore(
            {name: data for name, data in newest.items() if name.startswith("state/")}
            | {name: data for name, data in earlier.items() if not name.startswith("state/")}
        )
        try:
            party.answer(replace(party.query, round=1))
        except QueryRefused:
            continue
        assert party.spent() == pytest.approx(2 * paid)  # both releases are in it


@pytest.mark.parametrize(("colluding", "answers"), [(0.0, True), (0.0, False), (0.1, True)])
def test_a_state_directory_put_back_without_its_answers_opens_no_release_twice(
    tmp_path: Path, colluding: float, answers: bool
) -> None:
    """Put the state back to before an opening: whole, it opens twice; without answers, once.

    A party that was put back whole counts as a colluder: thresholds for one withstand it.
    """
    hostile = Villain(shares_of_five(tmp_path, colluding=colluding))
    hostile.joined()
    query = shared(hostile)
    hostile.answered(hostile.round(4), query)
    state, copy = hostile.deployment.home("north") / "state", tmp_path / "copy"
    shutil.copytree(state, copy)

    def revealed(survivors: tuple[int, ...], signers: tuple[int, ...]) -> set[int]:
        told = {party: hostile.survivors(party, survivors) for party in signers}
        signed = {m.party: m.signature for m in hostile.tell(told) if isinstance(m, Confirm)}
        lists = {
            party: Confirmations(run=RUN, round=1, party=party, signatures=signed)
            for party in signers
        }
        return {m.party for m in hostile.tell(lists) if isinstance(m, Reveal)}

    enough = (0, 1, 2, 3) if colluding else (0, 1, 2)
    assert revealed((0, 1, 2, 3), enough) == set(enough)
    others = (0, 3, 4)
    assert revealed((0, 2, 3, 4), others) == set()  # as long as it remembers
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    if not answers:
        shutil.rmtree(state / "answers")
    twice = answers and not colluding
    assert revealed((0, 2, 3, 4), others) == (set(others) if twice else set())
    if not answers:
        with Journal(state).held():
            party: Any = hostile.host(0).party
            with pytest.raises(QueryRefused, match="answered already"):
                party.answer(query)
            with pytest.raises(QueryRefused, match="began before, and its answers are not"):
                party.answer(shared(hostile, round=1))
