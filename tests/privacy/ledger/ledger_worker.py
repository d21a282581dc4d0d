"""A process whose workers spend ledgers and are killed at random moments; it checks what is left.

``python -m tests.privacy.ledger.ledger_worker kill DIRECTORY KILLS SEED BUILD`` or
``... race DIRECTORY WORKERS``. It imports the library once and forks its workers: hundreds of kills
take seconds. Prints JSON; fails with an AssertionError if a ledger broke its promise.

A worker publishes by writing to a pipe. ``BUILD`` names the ledger under test: the real one, or a
twin with a fault that the checks must find.
"""

import json
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path

from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import Event, GaussianEvent
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.ledger import BudgetRefusal, Ledger, LedgerConflict, Reservation, Spend
from fedpriv.privacy.ledger.charges import Charges
from fedpriv.privacy.ledger.composition import Cost
from fedpriv.privacy.ledger.storage.chain import Kind

BUDGET = Budget(epsilon=1.0, delta=1e-6)
RELEASE_BYTES = 16
MESSAGE = struct.Struct(f">BI{RELEASE_BYTES}s")
MOST_MESSAGES = 6  # a worker lives until it has published some releases, fewer than this,
LONGEST_LIFE = 0.01  # and then for so many seconds more, at most
Key = tuple[str, int]


def event_for(rounds: int) -> GaussianEvent:
    """The event of which exactly so many fit the budget."""
    noise = rounds**0.5 / gdp_mu(epsilon=BUDGET.epsilon, delta=BUDGET.delta)
    return GaussianEvent(relative_noise=noise, adjacency="add-remove")  # type: ignore[arg-type]


# The ledger under test, and twins with a fault.


class ForgetfulCharges(Charges):
    """Records every release, and charges nothing."""

    def _charge(self, event: Event, run: str, round_: int, detail: str) -> Spend:
        rule, tail = self._fixed_rule(((event, 1),), declared=False)
        self._store.append(
            tail, kind=Kind.RESERVED, run=run, round=round_, detail=detail, cost=Cost()
        )
        return self._spend(tail, rule)


class ForgetfulLedger(Ledger):
    def __init__(self, store: object) -> None:
        super().__init__(store)  # type: ignore[arg-type]
        self._charges = ForgetfulCharges(self._store, self._settings)


class HastyLedger(Ledger):
    """A ledger whose user publishes before `commit` has returned."""


class RedrawingLedger(Ledger):
    """Lets a retry store a second draw of noise."""

    def reserve(self, event: Event, *, run: str, round: int) -> Reservation:  # noqa: A002
        found = super().reserve(event, run=run, round=round)
        return Reservation(
            run=run, round=round, event=event, status="reserved", release=None, spent=found.spent
        )

    def commit(self, reservation: Reservation, release: bytes) -> Reservation:
        with suppress(LedgerConflict):
            return super().commit(reservation, release)
        return reservation


class UncheckedCharges(Charges):
    """Charges whatever is asked for: the budget is not looked at."""

    def _charge(self, event: Event, run: str, round_: int, detail: str) -> Spend:
        rule, tail = self._fixed_rule(((event, 1),), declared=False)
        cost = rule.price(event)
        self._store.append(
            tail, kind=Kind.RESERVED, run=run, round=round_, detail=detail, cost=cost
        )
        return self._spend(tail, rule)


class UncheckedLedger(Ledger):
    def __init__(self, store: object) -> None:
        super().__init__(store)  # type: ignore[arg-type]
        self._charges = UncheckedCharges(self._store, self._settings)


BUILDS: dict[str, type[Ledger]] = {
    "real": Ledger,
    "forgetful": ForgetfulLedger,
    "hasty": HastyLedger,
    "redrawing": RedrawingLedger,
    "unchecked": UncheckedLedger,
}


# What a worker does, and what must hold after its death.


def spend(build: type[Ledger], path: Path, worker: int, start: int, event: Event, out: int) -> None:
    """Reserve, draw, commit, publish, round after round, until the budget is spent."""
    with build.open(path) as ledger:
        for number in count(start):
            try:
                reservation = ledger.reserve(event, run=f"run {worker}", round=number)
            except BudgetRefusal:
                return
            release = reservation.release
            if release is None:
                release = os.urandom(RELEASE_BYTES)
            if build is HastyLedger:
                os.write(out, MESSAGE.pack(worker, number, release))
            ledger.commit(reservation, release)
            os.write(out, MESSAGE.pack(worker, number, release))


@dataclass(kw_only=True)
class Outside:
    """Everything that was ever published of one ledger."""

    seen: dict[Key, bytes] = field(default_factory=dict)

    def publish(self, messages: bytes) -> None:
        for worker, number, release in MESSAGE.iter_unpack(messages):
            key = (f"run {worker}", number)
            assert self.seen.setdefault(key, release) == release, f"two draws were seen of {key}"


def check(path: Path, outside: Outside, event: GaussianEvent, affordable: int) -> int:
    """What a ledger promises, whatever happened to its writers; returns the releases reserved."""
    with Ledger.open(path) as ledger:
        rows = list(ledger.rows())
        reserved = {(row.run, row.round) for row in rows if row.kind == Kind.RESERVED}
        stored = {(r.run, r.round): r.release_hash for r in rows if r.kind == Kind.COMMITTED}
        for key, release in outside.seen.items():
            assert key in reserved, f"{key} was published and never reserved"
            assert stored.get(key) == sha256(release).digest(), f"{key} was published first"
        spent = ledger.spent().guarantee.epsilon
        if outside.seen:
            exact = GdpAccountant(adjacency=event.adjacency).compose(event, len(outside.seen))
            published = exact.epsilon(BUDGET.delta)
            assert spent >= published * (1 - 1e-9), f"spent {spent}, but published {published}"
        assert spent <= BUDGET.epsilon * (1 + 1e-9), f"overspent: {spent}"
        assert len(reserved) <= affordable, f"{len(reserved)} reserved, {affordable} affordable"
        ledger.verify()
    return len(reserved)


def fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a child; returns its process number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def drain(descriptor: int) -> bytes:
    """Whole messages only: a write of this size to a pipe is never torn."""
    found = b""
    while chunk := os.read(descriptor, 1 << 16):
        found += chunk
    return found


def kill_round(
    build: type[Ledger],
    path: Path,
    outside: Outside,
    event: GaussianEvent,
    generator: random.Random,
) -> int:
    """Fork one or two workers, kill them at a random moment, and collect what they published."""
    reader, writer = os.pipe()
    children = []
    for worker in range(generator.choice([1, 1, 2])):
        done = [number for run, number in outside.seen if run == f"run {worker}"]
        # Some of the last rounds again: retries must get the same releases.
        start = max(0, max(done, default=-1) + 1 - generator.randrange(3))
        children.append(fork(lambda w=worker, s=start: spend(build, path, w, s, event, writer)))  # type: ignore[misc]
    os.close(writer)
    received = b""
    awaited = generator.randrange(MOST_MESSAGES) * MESSAGE.size
    while len(received) < awaited and (chunk := os.read(reader, 1 << 16)):
        received += chunk
    time.sleep(generator.uniform(0, LONGEST_LIFE))
    killed = 0
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for child in children:
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a worker failed"
    outside.publish(received + drain(reader))
    os.close(reader)
    return killed


def kill_many(directory: Path, kills: int, seed: int, build: type[Ledger]) -> dict[str, int]:
    """So many kills, over as many ledgers as that takes."""
    generator = random.Random(seed)  # noqa: S311
    totals = {"ledgers": 0, "kills": 0, "published": 0, "reserved": 0, "exhausted": 0}
    while totals["kills"] < kills:
        affordable = generator.randrange(5, 40)
        event = event_for(affordable)
        path = directory / f"{totals['ledgers']}.ledger"
        Ledger.create(path, data_name="x", budget=BUDGET, adjacency=event.adjacency).close()
        totals["ledgers"] += 1
        outside = Outside()
        reserved = 0
        for _ in range(40):
            totals["kills"] += kill_round(build, path, outside, event, generator)
            reserved = check(path, outside, event, affordable)
            if reserved == affordable and generator.random() < 0.3:
                totals["exhausted"] += 1
                break
        totals["published"] += len(outside.seen)
        totals["reserved"] += reserved
    return totals


def race(directory: Path, workers: int) -> dict[str, object]:
    """Workers race for the last of a budget, and for one and the same round."""
    affordable = 25
    event = event_for(affordable)
    path = directory / "race.ledger"
    Ledger.create(path, data_name="x", budget=BUDGET, adjacency=event.adjacency).close()
    gate, release_gate = os.pipe()
    reader, writer = os.pipe()

    def contend(worker: int) -> None:
        os.close(release_gate)
        os.read(gate, 1)  # returns when the parent closes the other end
        with Ledger.open(path) as ledger:
            while True:
                shared = ledger.reserve(event, run="shared", round=0)
                if shared.release is None:
                    with suppress(LedgerConflict):
                        shared = ledger.commit(shared, os.urandom(RELEASE_BYTES))
                if shared.release is not None:
                    break
            os.write(writer, MESSAGE.pack(255, 0, shared.release))
            for number in count():
                try:
                    ledger.reserve(event, run=f"run {worker}", round=number)
                except BudgetRefusal:
                    return
                os.write(writer, MESSAGE.pack(worker, number, bytes(RELEASE_BYTES)))

    children = [fork(lambda w=worker: contend(w)) for worker in range(workers)]  # type: ignore[misc]
    os.close(gate)
    os.close(writer)
    os.close(release_gate)
    messages = list(MESSAGE.iter_unpack(drain(reader)))
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "a worker failed"
    with Ledger.open(path) as ledger:
        ledger.verify()
        share = ledger.left().share
    return {
        "affordable": affordable,
        "granted": sum(worker != 255 for worker, _, _ in messages) + 1,
        "shared_releases": len({release for worker, _, release in messages if worker == 255}),
        "shared_readers": sum(worker == 255 for worker, _, _ in messages),
        "left": share,
    }


def main(arguments: list[str]) -> None:
    match arguments:
        case ["kill", directory, kills, seed, build]:
            print(json.dumps(kill_many(Path(directory), int(kills), int(seed), BUILDS[build])))
        case ["race", directory, workers]:
            print(json.dumps(race(Path(directory), int(workers))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
