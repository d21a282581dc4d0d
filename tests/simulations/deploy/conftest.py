"""A small federation on the loopback, and the means to run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.simulations.deploy.federation import parse_federation, read_federation
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.health.reach import free_port
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.processes import start, stop
from fedpriv.simulations.deploy.programs import Program

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import Folder, PartyFolder, ServerFolder
    from tests.federation.deployed.deployments import Deployment as ClearDeployment
    from tests.simulations.deploy.consortium import Consortium
    from tests.simulations.deploy.fleet import Fleet, Node

NAMES = ("north", "south", "west")
SIZES = (40, 50, 60)
LABEL = '[columns.sick]\nkind = "category"\nvalues = ["no", "yes"]\n'
SCHEMA = f"""\
label = "sick"
positive = "yes"
{LABEL}[columns.age]
kind = "number"
min = 0
max = 100
[columns.dose]
kind = "number"
min = 0
max = 10
"""


def federation_values(names: tuple[str, ...] = NAMES, **changes: Any) -> dict[str, Any]:
    """What a federation file says; every port is free."""
    return {
        "name": "clinics",
        "server": {"address": "127.0.0.1", "port": free_port()},
        "party": [{"name": name, "port": free_port()} for name in names],
        "budget": {"epsilon": 20.0},
        "policy": {"min_noise": 0.01},
        **changes,
    }


def write_records(path: Path, size: int, seed: int) -> None:
    """Records whose label follows from both columns, nearly."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, size), rng.uniform(0, 10, size)
    sick = age / 100 + dose / 10 + rng.normal(0, 0.2, size) > 1
    rows = [
        f"{a:.3f},{d:.3f},{'yes' if s else 'no'}" for a, d, s in zip(age, dose, sick, strict=True)
    ]
    path.write_text("\n".join(["age,dose,sick", *rows]) + "\n")


@dataclass(frozen=True)
class Deployment:
    """The directories of a federation whose members are all on this machine."""

    root: Path
    server: ServerFolder
    parties: tuple[PartyFolder, ...]


Founder = Callable[..., Deployment]


@pytest.fixture
def deployment(tmp_path: Path) -> Founder:
    """Found a federation with records at every party."""

    def make(names: tuple[str, ...] = NAMES, **changes: Any) -> Deployment:
        (tmp_path / "clinics.toml").write_text(SCHEMA)
        values = federation_values(names, schema=str(tmp_path / "clinics.toml"), **changes)
        founded = found(parse_federation(values), tmp_path / "deployment")
        for number, folder in enumerate(founded.parties):
            write_records(folder.root / "records.csv", SIZES[number % 3], seed=number)
            rebundle(folder)
            add([folder.bundle], founded.server.root)
        return Deployment(
            root=tmp_path / "deployment", server=founded.server, parties=founded.parties
        )

    return make


def until(condition: Callable[[], object]) -> bool:
    """Wait for something that comes soon; whether it came."""
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


Starter = Callable[[tuple[Program, ...]], None]


@pytest.fixture
def running() -> Iterator[Starter]:
    """Start programs that are ended, by their ids, whatever the test does."""
    folders: list[Folder] = []

    def begin(programs: tuple[Program, ...]) -> None:
        for program in programs:
            folders.append(program.folder)
            start(program)

    yield begin
    for folder in folders:
        stop(folder)


@pytest.fixture
def federation_file(tmp_path: Path) -> Path:
    """A federation file, as a person writes it."""
    (tmp_path / "clinics.toml").write_text(SCHEMA)
    values = federation_values(schema="clinics.toml")
    parties = values.pop("party")
    tables = [f"[[party]]\n{to_toml(party)}" for party in parties]
    path = tmp_path / "federation.toml"
    path.write_text("\n".join([to_toml(values), *tables]))
    read_federation(path)
    return path


@pytest.fixture
def party(tmp_path: Path) -> ClearDeployment:
    """A party that has given one answer, in a run that it joined."""
    from tests.simulations.deploy.backed_up import answered

    return answered(tmp_path)


@pytest.fixture
def four(tmp_path: Path) -> Consortium:
    """Four parties that joined with keys of their own, and accepted epoch 2."""
    from tests.simulations.deploy.consortium import of_four

    return of_four(tmp_path)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A real SuperLink, and two nodes in the hands of a test."""
    from tests.simulations.deploy.fleet import fleet

    with fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def victim(live: Fleet) -> Node:
    return live.nodes[0]


@pytest.fixture
def hostile(live: Fleet) -> Node:
    return live.nodes[1]
