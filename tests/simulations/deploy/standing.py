"""A federation that stands, whose processes a test kills and starts again."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import tomllib
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._toml import to_toml
from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.membership import reconcile, wait_until_up
from fedpriv.simulations.deploy.processes import Process, processes, stop, tail
from fedpriv.simulations.deploy.programs import party_programs, server_programs
from fedpriv.simulations.deploy.run.submission import Submitted, new_run, result_of, submit
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.server_app import FAILURE
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import (
    NAMES,
    SCHEMA,
    SIZES,
    federation_values,
    write_records,
)
from tests.simulations.deploy.nursery import Nursery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.simulations.deploy.folders import Folder
    from fedpriv.simulations.experiment.file import Experiment

BOUND = 240.0  # seconds; on a machine that is not busy nothing takes a quarter of it
MEMORY = Path("/dev/shm")  # noqa: S108 (its owner is a test)
FOUR = (*NAMES, "east")  # the fewest that may miss one
HELD = (*SIZES, 45)
EXPERIMENT: dict[str, Any] = {
    "model": {"l2": 0.01},
    "strategy": {"name": "gradient-perturbation", "rounds": 1, "clip": 1.0, "learning_rate": 1.0},
    "privacy": {"epsilon": 100000.0},
    "run": {"engine": "deployment", "secure_aggregation": "active"},
}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A server and its parties, at work."""

    root: Path
    server: ServerFolder
    parties: tuple[PartyFolder, ...]
    nursery: Nursery
    schema: str = SCHEMA
    restarted: dict[Path, int] = field(default_factory=dict)

    def party(self, name: str) -> PartyFolder:
        return self.parties[FOUR.index(name)]

    def start(self, folder: Folder, *names: str) -> None:
        """Start some of a member's programs, or all that it has."""
        programs = (
            server_programs(folder)
            if isinstance(folder, ServerFolder)
            else party_programs(PartyFolder(folder.root))
        )
        for program in programs:
            if not names or program.name in names:
                self.nursery.start(program)

    def written(self, name: str, **changes: dict[str, Any]) -> Experiment:
        """An experiment, without the keys that are None; its name is that of the data, too."""
        (self.root / f"{name}.toml").write_text(self.schema)
        common = {"data": {"schema": f"{name}.toml"}, **EXPERIMENT}
        values = {
            table: {
                key: value
                for key, value in {**keys, **changes.get(table, {})}.items()
                if value is not None
            }
            for table, keys in common.items()
        }
        path = self.root / f"experiment-{name}.toml"
        path.write_text(to_toml(values))
        return read_experiment(path)

    def begin(self, experiment: Experiment) -> Submitted:
        """Start a run."""
        return submit(new_run(experiment, self.server), self.server)

    def end(
        self, directory: Path, *, meanwhile: Callable[[], object] = lambda: None
    ) -> dict[str, Any] | None:
        """The result of a run, when it has one; None if it says why it has none."""

        def ended() -> bool:
            meanwhile()
            return any((directory / name).exists() for name in ("result.json", FAILURE))

        wait_until(ended, what=directory)
        return result_of(directory)

    def reserved(self, folder: PartyFolder) -> list[tuple[str, int]]:
        """Every release that a party paid for, if its ledger is sound."""
        path = read_party(folder.policy).ledger
        if not path.exists():
            return []
        with Ledger.open(path, read_only=True) as ledger:
            ledger.verify()
            assert ledger.spent().within_budget
            return [
                (str(row.run), int(row.round or 0))
                for row in ledger.rows()
                if row.kind == "reserved"
            ]

    def change(self, folder: PartyFolder, **changes: dict[str, Any]) -> None:
        """Change a party's own file."""
        values = tomllib.loads(folder.policy.read_text())
        for table, keys in changes.items():
            values[table] |= keys
        folder.policy.write_text(to_toml(values))

    def log(self, folder: Folder) -> str:
        """What a member's worker has said so far."""
        return (folder.processes / "worker.log").read_text()

    def orders(self, folder: PartyFolder, *orders: str, gone: bool = False) -> None:
        """Give a party new orders, whose deaths are counted anew."""
        fates.give(folder.root, *orders, gone=gone)
        self.restarted.pop(folder.root, None)

    def watch(self, *, meanwhile: Callable[[PartyFolder], object]) -> bool:
        """Start again what was killed at a party, as its unit for systemd does, but sooner.

        ``meanwhile`` is called while a party is down. Whether nobody was down.
        """
        down = [folder for folder in self.parties if self._died(folder)]
        for folder in down:
            *before, last = fates.deaths(folder.root)
            victim = last["order"].rpartition(" ")[2]
            if any(each.alive for each in processes(folder) if each.name == victim):
                continue
            self.restarted[folder.root] = len(before) + 1
            meanwhile(folder)
            self.start(folder, victim)
        return not down

    def _died(self, folder: PartyFolder) -> bool:
        """Whether a party was killed, and neither started again nor is gone for good."""
        done = fates.deaths(folder.root)
        return len(done) > self.restarted.get(folder.root, 0) and not done[-1]["gone"]


def kill(folder: Folder, *names: str) -> None:
    """End processes of a member as a power cut does."""
    for process in processes(folder):
        if process.name in names:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            wait_until(lambda process=process: not process.alive, what=process)  # type: ignore[misc]


def wait_until(happened: Callable[[], bool], *, what: object) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + BOUND
    while not happened():
        assert time.monotonic() < deadline, f"{what} took too long"
        time.sleep(0.1)


def model(directory: Path) -> Any:
    with np.load(directory / "model.npz") as arrays:
        return arrays["theta"]


@contextmanager
def standing(
    names: tuple[str, ...] = FOUR,
    *,
    schema: str = SCHEMA,
    write: Callable[[Path, int, int], None] = write_records,
    budget: dict[str, Any] | None = None,
    stated: int | None = None,
    nursery: Nursery | None = None,
    **policy: Any,
) -> Iterator[Standing]:
    """Found a federation, start it, and end every process of it whatever happens.

    Args:
        names: Of the parties.
        schema: Of their tables.
        write: Writes a table of so many records, by a seed.
        budget: Of the federation, beside ε and the composition.
        stated: The number of records that each party states where the true one is private.
        nursery: Of another federation, too; by itself it is closed at the end.
        policy: Of every party.
    """
    with ExitStack() as stack:
        place = MEMORY if MEMORY.is_dir() else None
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
        (root / "clinics.toml").write_text(schema)
        values = federation_values(
            names,
            schema=str(root / "clinics.toml"),
            budget={"epsilon": 1e6, "composition": "rdp", **(budget or {})},
            policy=policy,
        )
        founded = found(parse_federation(values), root / "deployment")
        for number, folder in enumerate(founded.parties):
            write(folder.root / "records.csv", HELD[number], number)
            rebundle(folder, records=stated)
            add([folder.bundle], founded.server.root)
        if nursery is None:
            nursery = Nursery()
            stack.callback(nursery.close)
        live = Standing(
            root=root,
            server=founded.server,
            parties=founded.parties,
            nursery=nursery,
            schema=schema,
        )
        for member in (founded.server, *founded.parties):
            stack.callback(stop, member)
        live.start(live.server)
        assert wait_until_up(live.server, superlink(live.server), seconds=BOUND), tail(
            live.server, "superlink"
        )
        reconcile(live.server)
        for folder in live.parties:
            live.start(folder)
        yield live


def superlink(folder: ServerFolder) -> Process:
    (process,) = (each for each in processes(folder) if each.name == "superlink")
    return process
