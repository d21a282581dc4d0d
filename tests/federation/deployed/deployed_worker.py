"""A process whose parties, or whose server, are killed at every step; it checks what is left.

``python -m tests.federation.deployed.deployed_worker DIRECTORY``. It imports the library once and
forks: a life takes a fraction of a second. Prints JSON; fails with an AssertionError if a promise
is broken.

A life ends with SIGKILL before or after one of the writes that it makes: to a journal, a ledger or
a result directory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tomllib
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.deployed import journal
from fedpriv.federation.engines.local import LocalGrid
from fedpriv.federation.party.client_app import client_app
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import files as results
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import NAMES, Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_LIVES = 60


class Fate:
    """Ends the process at the ``steps``-th moment from now."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def moment(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **more: Any) -> Any:
            self.moment()
            result = function(*arguments, **more)
            self.moment()
            return result

        return wrapped

    def rules(self) -> None:
        """From now on every durable write of this process is two such moments."""
        journal._write = self.around(journal._write)
        Ledger.declare = self.around(Ledger.declare)  # type: ignore[method-assign]
        Ledger.reserve = self.around(Ledger.reserve)  # type: ignore[method-assign]
        Ledger.commit = self.around(Ledger.commit)  # type: ignore[method-assign]
        results.replace_file = self.around(results.replace_file)  # type: ignore[attr-defined]


def life(work: Callable[[], bytes], steps: int) -> bytes | None:
    """What a child returns that is killed after so many moments; None if it was."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Fate(steps).rules()
            data = work()
            with os.fdopen(writer, "wb") as out:
                out.write(data)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as received:
        data = received.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert not data, "a process that was killed has answered"
        return None
    assert os.WEXITSTATUS(status) == 0, "a process failed"
    return data


class MortalHost:
    """A party whose process dies before and after every write, and is then asked the same again."""

    def __init__(self, deployment: Deployment, config: str) -> None:
        self.deployment, self.config = deployment, config
        self.context: Any = None
        self.deaths = 0

    def _deaths(self) -> Iterator[int]:
        yield 0
        for steps in count(1):
            self.deaths += 1
            yield steps

    def handle(self, data: bytes) -> bytes:
        def work() -> bytes:
            return self.deployment.signed_host(self.context, self.config).handle(data)

        reply = next(filter(None, (life(work, steps) for steps in self._deaths())))
        # Asked once more after it has answered: the same bytes, in a fresh process.
        assert life(work, 10**6) == reply, "two answers to one message"
        return reply


def kill_parties(folder: Path, **settings: Any) -> dict[str, Any]:
    """A whole run whose first party dies before and after every write that it ever makes."""
    deployment = Deployment(folder=folder, **settings)
    config = deployment.config()
    mortal = MortalHost(deployment, config)

    def open_party(context: Any) -> Any:
        if int(context.node_config["partition-id"]) > 0:
            return deployment.signed_host(context, config)
        mortal.context = context
        return mortal

    grid = LocalGrid(client_app(open_party), len(NAMES))
    result = deployment.run(folder / "out", grid=grid, config=config)
    reserved = {name: deployment.reserved(name) for name in NAMES}
    spent = {name: deployment.ledger(name).spent().guarantee.epsilon for name in NAMES}
    return {
        "deaths": mortal.deaths,
        "rounds": result["rounds"],
        "rejected": result["exchanges"]["rejected"],
        "reserved": {name: len(rows) for name, rows in reserved.items()},
        "twice": sum(n - 1 for rows in reserved.values() for n in Counter(rows).values()),
        "epsilon": result["epsilon"],
        "spent": spent,
    }


def kill_server(folder: Path, seed: int, **settings: Any) -> dict[str, Any]:
    """A run whose server, and with it every party, is killed again and again until it is done."""
    deployment = Deployment(folder=folder, **settings)
    generator = random.Random(seed)  # noqa: S311
    out, text = folder / "out", deployment.config()

    def work() -> bytes:
        return json.dumps(deployment.run(out, config=text)["rounds"]).encode()

    fates = (generator.randrange(10, 170) for _ in range(_MOST_LIVES))
    ends = [life(work, next(fates))]
    while ends[-1] is None:
        ends.append(life(work, next(fates)))
    (path,) = deployment.server.glob("*.ledger")
    with Ledger.open(path) as ledger:
        ledger.verify()
        rows = list(ledger.rows())
        committed = Counter(row.round for row in rows if row.kind == "committed")
        run = next(str(row.run) for row in rows if row.kind == "committed")
        prepared = prepare_deployed(parse_experiment(tomllib.loads(text)), sizes=deployment.sizes)
        replayed = build_strategy(prepared, run=run, release=True, ledger=ledger)
        assert replayed.ask() is None, "a release is missing in the ledger"
    with np.load(out / "model.npz") as model:
        same = bool((model["theta"] == replayed.theta).all())
    reserved = {name: Counter(deployment.reserved(name)) for name in NAMES}
    return {
        "lives": len(ends),
        "rounds": json.loads(ends[-1]),
        "released": len(committed),
        "most_releases_of_a_round": max(committed.values()),
        "same_model": same,
        "most_payments": max(max(rows.values()) for rows in reserved.values()),
        "payments": {name: len(rows) for name, rows in reserved.items()},
    }


def race(folder: Path) -> dict[str, Any]:
    """Two servers at once, each with a run that costs all of every party's budget."""
    deployment = Deployment(folder=folder, experiment={"strategy": {"rounds": 8}})
    children = []
    for number in range(2):
        server = folder / f"server{number}"
        shutil.copytree(deployment.server, server)

        def work(number: int = number, server: Path = server) -> None:
            with suppress(Exception):  # parties say no, in the end
                deployment.run(folder / f"runs{number}" / "out", server=server)

        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    found = {}
    for name in NAMES:
        rows = deployment.reserved(name)
        with deployment.ledger(name) as ledger:
            found[name] = {
                "reserved": len(rows),
                "runs": len({run for run, _ in rows}),
                "twice": len(rows) - len(set(rows)),
                "within": ledger.spent().within_budget,
            }
    return found


SHARES: dict[str, Any] = {
    "policy": {"noise_at": "parties"},
    "experiment": {"privacy": {"noise_at": "parties"}, "strategy": {"rounds": 2}},
}


SAMPLES: dict[str, Any] = {
    "budget": {"adjacency": "add-remove", "composition": "basic"},
    "experiment": {
        "privacy": {"adjacency": "add-remove"},
        "strategy": {"rounds": 2, "sampling_rate": 0.3},
    },
}


def main(place: Path) -> None:
    def folder(name: str) -> Path:
        made = place / name
        made.mkdir(mode=0o700)
        return made

    # What is imported and compiled before a fork is there after it.
    for name, settings in (("warm", SHARES), ("samples", SAMPLES)):
        warm = folder(name)
        Deployment(folder=warm, **settings).run(warm / "out")
    found = {
        "noise at server": kill_parties(folder("server"), experiment={"strategy": {"rounds": 2}}),
        "noise at parties": kill_parties(folder("parties"), **SHARES),
        "noise on samples": kill_parties(folder("sampled"), **SAMPLES),
        "server": kill_server(folder("restarted"), 1),
        "race": race(folder("race")),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
