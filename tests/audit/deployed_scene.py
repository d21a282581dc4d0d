"""A deployed party on one table after another: what is seen of it, and what only a test sees."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party import party as answering
from fedpriv.federation.party.draws import draw
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.wire import Join, Request
from fedpriv.secagg import FixedPoint
from tests.audit.deployed_cases import SCHEMA
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.randomness import RandomStream
    from tests.audit.deployed_cases import Table


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """A party that was opened on a table and asked.

    Attributes:
        said: Everything that it said but its answer: replies, refusals, kinds of errors.
        answered: Whether it gave an answer.
        paid: The rows of its ledger, but for times, hashes and the fingerprint of its records.
        kept: The files of its state directory, and their sizes.
        exact: Its answer before noise, in steps of the grid; hidden from everybody else.
        noise: What it added to it, in the ring.
    """

    said: tuple[object, ...]
    answered: bool
    paid: tuple[object, ...]
    kept: tuple[object, ...]
    exact: NDArray[np.int64] | None
    noise: bytes


@contextmanager
def random_numbers(seed: int) -> Iterator[None]:
    """The same numbers from the operating system, whenever the seed is the same."""
    drawn = 0

    def urandom(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        blocks = (f"{seed} {drawn} {i}".encode() for i in range(-(-count // 32)))
        return b"".join(sha256(block).digest() for block in blocks)[:count]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "urandom", urandom)
        yield


@contextmanager
def exact_answers() -> Iterator[list[NDArray[np.int64]]]:
    """What parties encode: their answers before noise. All records join a sample here.

    A sampled release is charged for its sensitivity on neighbouring samples, and for less because
    samples are random.
    """
    seen: list[NDArray[np.int64]] = []
    encode = FixedPoint.encode_sum

    def noted(grid: FixedPoint, *arguments: Any, **more: Any) -> Any:
        encoded = encode(grid, *arguments, **more)
        seen.append(grid.decode(encoded))
        return encoded

    def everybody(
        query: Query, task: Task, sizes: tuple[int, ...], stream: RandomStream, *, units: int
    ) -> Any:
        drawn = draw(query, task, sizes, stream, units=units)
        return drawn if drawn.sample is None else replace(drawn, sample=np.arange(units))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FixedPoint, "encode_sum", noted)
        patched.setattr(answering, "draw", everybody)
        yield seen


@dataclass(frozen=True)
class Scene:
    """One party's directory, on which tables are tried one after the other."""

    deployment: Deployment
    header: str = "age,dose,sick"

    @classmethod
    def of(cls, folder: Path, adjacency: Adjacency, *, schema: str = SCHEMA, **more: Any) -> Scene:
        folder.chmod(0o700)
        deployment = Deployment(
            folder=folder,
            policy={
                "secure_aggregation": "off",
                "min_noise": 0.001,
                "queries": [
                    "gradient",
                    "erm",
                    "risk-gradient",
                    "loss",
                    "moments",
                    "hessian",
                ],
            },
            budget={"epsilon": 20.0, "adjacency": adjacency.value},
            experiment={"run": {"secure_aggregation": "off"}},
        )
        for path in (deployment.server, deployment.home("north")):
            (path / "schema.toml").write_text(schema)
        return cls(deployment, **more)

    @property
    def task(self) -> Task:
        task: Task = self.deployment.host("north").engagement.task
        return task

    def write(self, table: Table) -> None:
        """The table, at a party that has answered nothing yet."""
        home = self.deployment.home("north")
        shutil.rmtree(home / "state", ignore_errors=True)
        self.deployment.accept("north")
        for path in home.glob("north.ledger*"):
            path.unlink()
        self.deployment.accept("north")
        (home / "records.csv").write_text("\n".join((self.header, *table, "")))

    def ask(self, table: Table, query: Query, *, seed: int = 0) -> Seen:
        """Open the party on a table, and put two releases to it; one of them twice."""
        self.write(table)
        said: list[object] = []
        given: list[tuple[Any, NDArray[np.int64]]] = []
        with random_numbers(seed), exact_answers() as exact:
            for ask in (self.join, *(self.answering(query, round_) for round_ in (0, 1))):
                try:
                    answer = ask()
                except Exception as error:  # as Flower tells it: by its kind, unless it refuses
                    said.append(str(error) if isinstance(error, QueryRefused) else type(error))
                    continue
                said.append(answer if isinstance(answer, bytes) else (answer.shape, answer.dtype))
                if not isinstance(answer, bytes):
                    given.append((answer, exact[-1]))
        noise = b"".join((vector - before.view(vector.dtype)).tobytes() for vector, before in given)
        return Seen(
            said=tuple(said),
            answered=len(given) == 2,
            paid=self._paid(),
            kept=self._kept(),
            exact=given[0][1] if given else None,
            noise=noise,
        )

    def join(self) -> bytes:
        """What the party says when a run invites it."""
        request = Request(messages=(Join(run=b"n" * 32, round=0, party=0),)).to_bytes()
        return self.deployment.host("north").handle(request)

    def answering(self, query: Query, round_: int) -> Callable[[], Any]:
        """Ask for a release, of a fresh process."""

        def ask() -> Any:
            host: Any = self.deployment.host("north")
            named = replace(query, run=f"{host.engagement.run}-1", round=round_)
            with Journal(self.deployment.home("north") / "state").held():
                return host.party.answer(named)

        return ask

    def _paid(self) -> tuple[object, ...]:
        if not (self.deployment.home("north") / "north.ledger").exists():
            return ()
        with self.deployment.ledger("north") as ledger:
            return tuple(
                (row.kind, row.run, row.round, row.cost, row.detail)
                for row in ledger.rows()
                if row.kind not in ("created", "data")  # a salt, and a salted fingerprint
            )

    def _kept(self) -> tuple[object, ...]:
        state = self.deployment.home("north") / "state"
        return tuple(sorted((p.name, p.stat().st_size) for p in state.rglob("*") if p.is_file()))
