"""A worker's preparation: the same answers, nothing that decides, and no threads to inherit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import time_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import httpx
import numpy as np
import pytest

from fedpriv.data import KeptFiles, keep
from fedpriv.data.tables import files
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from fedpriv.simulations.deploy.flower import ahead, worker
from fedpriv.simulations.deploy.flower.ahead import Ahead
from fedpriv.simulations.deploy.flower.pace import Pace
from fedpriv.simulations.deploy.flower.supernode import paused
from fedpriv.simulations.deploy.flower.tasks import Runtime
from fedpriv.simulations.deploy.run.client import open_signed
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from fedpriv.secagg.numbers.fixed_point import Ring

CLEAR: dict[str, Any] = {
    "policy": {"secure_aggregation": "off"},
    "experiment": {"run": {"secure_aggregation": "off"}},
}


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are kept as if they had been written a while ago."""
    monkeypatch.setattr(files, "time_ns", lambda: time_ns() + 3 * 10**9)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path, **CLEAR)


def party_file(deployment: Deployment) -> Path:
    return deployment.home("north") / "party.toml"


def answer(deployment: Deployment, kept: KeptFiles | None, round_: int, **changes: Any) -> Ring:
    """Of a copy of the worker."""
    host = open_signed(
        str(party_file(deployment)), deployment.config(), flower=1, node=1, files=kept
    ).open_party()
    stated: dict[str, Any] = {
        "run": host.engagement.run,
        "round": round_,
        "grid": FixedPoint(step=2.0**-20, bits=64),
        "event": GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        "theta": np.full(3, 0.1),
        "clip_norm": 1.0,
    }
    with Journal(deployment.home("north") / "state").held():
        return host.party.answer(GradientQuery(**{**stated, **changes}))


def test_an_answer_from_memory_is_the_answer_from_the_disk(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Ahead().looked_at(party_file(deployment)).files
    from_disk = answer(deployment, None, 0)
    monkeypatch.setattr(files, "read_table", _never)
    np.testing.assert_array_equal(answer(deployment, kept, 1), from_disk)


def test_records_in_memory_are_not_touched_for_a_query_that_is_refused(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Ahead().looked_at(party_file(deployment)).files
    monkeypatch.setattr(KeptFiles, "table", _never)
    with pytest.raises(QueryRefused, match="part in the answer by 2"):
        answer(deployment, kept, 0, clip_norm=2.0)
    assert not list(deployment.home("north").glob("*.ledger"))


def test_a_policy_that_got_stricter_holds_for_the_next_message(deployment: Deployment) -> None:
    kept = Ahead().looked_at(party_file(deployment)).files
    answer(deployment, kept, 0)
    deployment.write_party("north", policy={"max_clip": 0.5})
    with pytest.raises(QueryRefused, match=r"allows at most 0\.5"):
        answer(deployment, kept, 1)


def test_records_that_were_edited_are_read_again_and_found_out(deployment: Deployment) -> None:
    kept = Ahead().looked_at(party_file(deployment)).files
    answer(deployment, kept, 0)
    path = deployment.home("north") / "records.csv"
    path.write_text(path.read_text().replace("yes", "no ", 1))
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        answer(deployment, kept, 1)


def test_files_are_read_once_and_again_when_they_change(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counted(path: Path, *, schema: Path) -> KeptFiles:
        read.append(path)
        return keep(path, schema=schema)

    monkeypatch.setattr(ahead, "keep", counted)
    home, party = deployment.home("north"), party_file(deployment)
    now = Ahead().looked_at(party)
    assert now.looked_at(party) is now
    (home / "records.csv").write_text("age,dose,sick\n1,0,maybe\n")
    broken = now.looked_at(party)
    assert broken.files.kept_table is None
    assert broken.looked_at(party) is broken  # what is wrong is not tried again and again
    (home / "records.csv").unlink()
    gone = broken.looked_at(party)
    assert gone.looked_at(party) is gone
    assert len(read) == 3


@pytest.mark.parametrize("text", [None, "", "version = 1", "\x00"])
def test_a_party_file_that_is_wrong_stops_nothing(deployment: Deployment, text: str | None) -> None:
    party = party_file(deployment)
    good = party.read_text()
    party.unlink() if text is None else party.write_text(text)
    now = Ahead().looked_at(party)
    assert now.files.kept_table is None
    party.write_text(good)
    assert now.looked_at(party).files.kept_table is not None


def _never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a record was read")


# Threads. In a process of its own: this one has threads of other tests.

_COPIES = """
import json, os, signal, sys, threading
from pathlib import Path

from fedpriv.simulations.client_app import open_party
from fedpriv.data import Files
from fedpriv.data.tables import files
from fedpriv.learning.clipping.logistic import clipped_logistic_sums
from fedpriv.federation.engines.warm_up import load_kernels
from fedpriv.learning.row_scores import _fill
from fedpriv.simulations.deploy.flower.ahead import Ahead
import torch, pyarrow.csv, numpy as np

party = Path(sys.argv[1])
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
load_kernels()
files._TICK = 0  # the files were written a moment ago
now = Ahead().looked_at(party)
after = threads()
kernels = len(clipped_logistic_sums.signatures), len(_fill.signatures)

def copy():
    signal.alarm(60)  # a copy that waits for a thread it has not got dies
    torch.set_num_threads(4)
    torch.rand(400, 400) @ torch.rand(400, 400)
    (torch.rand(1 << 20) + 1).sum()
    Files().table(now.data, schema=now.schema)
    records = now.files.table(now.data, schema=now.schema).train
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.linear import clipped_linear_sums
    from fedpriv.learning.crew import Crew
    from fedpriv.learning.losses import Logistic
    batch = RecordBatch(features=torch.tensor(records.X), labels=torch.tensor(records.y))
    clipped_linear_sums(torch.zeros(batch.features.shape[1]), batch, Logistic(), 1.0, Crew(1))
    assert len(clipped_logistic_sums.signatures) == kernels[0]

ended = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            copy()
            status = 0
        finally:
            os._exit(status)
    ended.append(os.waitpid(child, 0)[1])
read = Files().table(now.data, schema=now.schema)
kept = now.files.kept_table is not None
print(json.dumps({"started": after - before, "kept": kept, "kernels": kernels, "ended": ended,
                  "by reading here": threads() - after}))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_worker_starts_no_thread_and_its_copies_may_use_all_of_theirs(
    deployment: Deployment,
) -> None:
    copies = 20 if "FEDPRIV_STRESS" in os.environ else 5
    done = subprocess.run(
        [sys.executable, "-c", _COPIES, str(party_file(deployment)), str(copies)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    printed = json.loads(done.stdout)
    assert printed["kept"]
    assert printed["started"] <= 0  # OpenBLAS ends its own before every fork
    assert printed["by reading here"] > 0  # which is why it is read elsewhere
    assert printed["kernels"] == [2, 2]  # in both precisions, before the first message
    assert printed["ended"] == [0] * copies


# Looking for work.


def test_a_program_looks_often_while_there_is_work_and_seldom_when_there_is_none() -> None:
    time = 100.0
    pace = Pace(shortest=0.5, longest=2.0, clock=lambda: time)
    assert pace.pause == 0.5
    time = 120.0
    assert pace.pause == 1.0
    time = 1000.0
    assert pace.pause == 2.0
    pace.came()
    assert pace.pause == 0.5


def test_a_node_awaits_its_worker_with_short_pauses_and_the_server_at_its_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, slept = 0.0, list[float]()
    monkeypatch.setattr("fedpriv.simulations.deploy.flower.supernode.time.sleep", slept.append)
    pause = paused(Pace(shortest=0.5, longest=2.0, clock=lambda: time))
    time = 30.0
    pause(3)
    pause(0.5)  # a message has come
    pause(3)
    assert slept == [1.5, 0.02, 0.5]


def test_a_worker_asks_again_whatever_its_node_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One 500 of a SuperLink whose database was busy ended it, and every run waited for it."""
    asked = httpx.Request("POST", "https://server/acquire-task")
    answers: list[BaseException] = [
        httpx.ConnectError("not up"),
        httpx.HTTPStatusError("500", request=asked, response=httpx.Response(500)),
        KeyboardInterrupt(),
    ]

    def acquire(_wanted: object) -> NoReturn:
        raise answers.pop(0)

    slept = list[float]()
    monkeypatch.setattr("fedpriv.simulations.deploy.flower.worker.time.sleep", slept.append)
    monkeypatch.setattr(Runtime, "client", lambda *_: SimpleNamespace(AcquireTask=acquire))
    with pytest.raises(KeyboardInterrupt):
        worker.work("server", Runtime(address="127.0.0.1:1", secret=b"s" * 32))
    assert slept == [1.0, 1.0]
    assert capsys.readouterr().out.count("asks again: 500") == 1
