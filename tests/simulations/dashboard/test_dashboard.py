"""The dashboard: what it shows is what goes on, and nobody looks without its secret."""

from __future__ import annotations

import json
import re
import socket
import struct
from dataclasses import asdict
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import fedpriv
from fedpriv.simulations.dashboard.activities import overview
from fedpriv.simulations.dashboard.server import Dashboard
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.founding import found
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import session
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.progress import Progress, ProgressFile
from tests.simulations.deploy.conftest import federation_values
from tests.simulations.report.browser import CHROMIUM, DRIVER, MISSING, browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedpriv.simulations.run.history import Record, Round
    from tests.simulations.conftest import Command

HOSTILE = "<script>document.title = 'taken'</script>"
STUDY: dict[str, Any] = {
    "name": HOSTILE,
    "data": {"name": "synthetic"},
    "strategy": {"name": "gradient-perturbation", "rounds": 6},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, an interrupted one, one that runs, a comparison, and a federation."""
    folder = tmp_path_factory.mktemp("watched")
    fedpriv.run(STUDY, out=folder / "finished")
    prepared = prepare(parse_experiment(STUDY))
    for name in ("interrupted", "running"):
        opened = session.start(prepared, folder / "more" / name)
        assert session.carry_on(opened, stop=lambda: True) is None  # after its first round
    left = Progress.read(folder / "more" / "interrupted")
    assert left is not None
    write_json(  # its process was killed, and its number is another's now
        folder / "more" / "interrupted" / "private" / "progress.json",
        asdict(left) | {"process": "0"},
    )
    compared = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    fedpriv.compare(compared, compare={"seeds": 1}, workers=1, out=folder / "compared")
    found(parse_federation(federation_values()), folder / "clinics")
    return folder


def by_place(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["directory"]: each for each in values["activities"]}


def test_what_goes_on_is_told_with_rounds_budget_and_time_left(root: Path) -> None:
    told = overview(root)
    found = by_place(json.loads(json.dumps(told)))
    assert {name: each["state"] for name, each in found.items()} == {
        "more/running": "running",
        "more/interrupted": "interrupted",
        "finished": "finished",
        "compared": "finished",
    }
    assert next(iter(found)) == "more/running"  # what goes on comes first
    running, finished = found["more/running"], found["finished"]
    assert (running["unit"], running["done"], running["total"]) == ("rounds", 1, 6)
    assert (finished["epsilon_budget"], finished["simulated"]) == (1.0, True)
    assert 0.9 < finished["epsilon"] <= 1.0
    assert finished["facts"].keys() == {"accuracy", "loss"}
    assert finished["report"]
    assert found["compared"]["kind"] == "comparison"
    server, *parties = (each for each in told["members"] if "error" not in each)
    assert server["directory"] == "clinics/server"
    assert {each["state"] for each in (server, *parties)} == {"down"}  # none was started


def test_rounds_and_spending_are_told_while_a_run_goes_on(tmp_path: Path) -> None:
    opened = session.start(prepare(parse_experiment(STUDY)), tmp_path / "run")
    progress: list[tuple[int, float]] = []

    def watch(_record: Record, told: Round) -> None:
        assert told.epsilon is not None
        at = overview(tmp_path)["activities"][0]
        assert (at["state"], at["total"]) == ("running", 6)
        progress.append((at["done"], at["epsilon"] or 0.0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedpriv.simulations.run.progress._PAUSE", 0.0)
        assert session.carry_on(opened, on_round=watch) is not None
    assert [done for done, _ in progress] == [0, 1, 2, 3, 4, 5]  # of the rounds before
    spent = [epsilon for _, epsilon in progress]
    assert spent == sorted(spent)
    assert spent[0] < spent[-1] < 1.0
    assert not (tmp_path / "run" / "private" / "progress.json").exists()


def test_time_left_is_the_pace_of_this_process_alone(tmp_path: Path) -> None:
    ProgressFile(tmp_path, unit="rounds", done=60, total=100)
    start = Progress.read(tmp_path)
    assert start is not None
    assert start.alive
    assert start.seconds_left is None
    later = asdict(start) | {"done": 80, "updated": start.since + 10.0}
    write_json(tmp_path / "private" / "progress.json", later)
    known = Progress.read(tmp_path)
    assert known is not None
    assert known.seconds_left == pytest.approx(10.0)  # 20 rounds in 10 s, and 20 to go


def test_what_cannot_be_followed_is_refused(fedpriv: Command, tmp_path: Path) -> None:
    assert "DIR must be a directory" in fedpriv("dashboard", tmp_path / "nothing").message
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = fedpriv("dashboard", tmp_path, "--port", port).message
    assert f"--port {port} cannot be used" in message
    assert fedpriv("dashboard", tmp_path, "--json").json()["activities"] == []


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Dashboard]:
    with Dashboard(root) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_only_who_knows_the_secret_and_this_host_may_look(served: Dashboard) -> None:
    with httpx.Client(trust_env=False) as client:
        here = client.get(f"{served.address}now.json")
        assert here.json()["directory"] == str(served.root.resolve())
        bare = served.address.removesuffix(f"{served.secret}/")
        for address in (bare, f"{bare}now.json", f"{bare}{'x' * len(served.secret)}/now.json"):
            assert client.get(address).status_code == 404
        bent = {"Host": f"attacker.example:{served.server_port}"}  # a name bent to point here
        assert client.get(f"{served.address}now.json", headers=bent).status_code == 404
        for path in ("report/../../secret", "report/0000000000000000", "style.css/", "../now.json"):
            assert client.get(f"{served.address}{path}").status_code == 404
        assert client.post(served.address).status_code == 501  # there is nothing to change
        assert "default-src 'none'" in here.headers["Content-Security-Policy"]
        known = by_place(here.json())["finished"]
        page = client.get(f"{served.address}report/{known['id']}")
        assert page.text == (served.root / "finished" / "report.html").read_text()
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert served.server_address[0] == "127.0.0.1"


def test_a_request_that_is_none_is_refused_without_a_word(
    served: Dashboard, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever is logged in here reaches the port: the terminal was theirs to write to."""
    for line in (b"GET x HTTP/1.1", b"GET http:evil HTTP/1.1", b"GET \xff\xfe HTTP/1.1"):
        with socket.create_connection(("127.0.0.1", served.server_port), timeout=10) as asked:
            host = f"Host: 127.0.0.1:{served.server_port}".encode()
            asked.sendall(line + b"\r\n" + host + b"\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: asked.recv(4096), b"")).split()[1] == b"404"
        with socket.create_connection(("127.0.0.1", served.server_port), timeout=10) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(line + b"\r\n" + host + b"\r\n\r\n")
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_a_report_that_came_from_elsewhere_learns_nothing_and_sends_nothing(
    served: Dashboard, tmp_path: Path
) -> None:
    """It states its own policy, or none: it read what the dashboard shows, and could send it."""
    ours = served.root / "finished" / "report.html"
    theirs = """<!doctype html><title>nice</title><script>
    document.title = "began";
    fetch("../now.json").then((r) => r.text()).then((t) => { document.title = "read " + t; })
      .catch(() => { document.title = "refused"; });
    </script>"""
    known = by_place(overview(served.root))["finished"]["id"]
    genuine = ours.read_text()
    try:
        ours.write_text(theirs)
        with browser(tmp_path) as window:
            window.open(f"{served.address}report/{known}")
            for _ in range(100):
                if (title := window.run("return document.title")) != "began":
                    break
                window.wait_for_a_frame()
            assert title == "refused"
    finally:
        ours.write_text(genuine)
    with browser(tmp_path) as window:
        window.open(f"{served.address}report/{known}")
        assert window.log("browser") == []  # of one of ours nothing is forbidden


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_a_browser_shows_what_goes_on_and_takes_names_as_text(
    served: Dashboard, tmp_path: Path
) -> None:
    with browser(tmp_path) as window:
        window.open(served.address)
        for _ in range(200):
            cards = window.run(
                "return Array.from(document.querySelectorAll('.card h3')).map((e) => e.innerText)"
            )
            if len(cards) == 8:
                break
            window.wait_for_a_frame()
        heads = [" ".join(card.split()) for card in cards]
        assert f"{HOSTILE} running gradient-perturbation" in heads
        assert f"{HOSTILE} interrupted gradient-perturbation" in heads
        assert "clinics/server down" in heads
        assert window.run("return document.title") == "fedpriv dashboard"
        texts = window.run("return document.querySelector('main').innerText")
        assert "1 of 6 rounds" in texts
        assert re.search(r"accuracy \d+\.\d\d %", texts)
        assert not re.search(r"e-\d+ left", texts)  # what rounding leaves of a budget is nothing
        assert "Continue with: fedpriv run --resume more/interrupted" in texts
        asked = [each for each in window.requested() if each != "data:,"]  # no icon
        assert {address.startswith(served.address) for address in asked} == {True}, asked
        assert window.log("browser") == []
        assert window.barriers() == []
        link = window.run("return document.querySelector('.where a').href")
        assert link.startswith(f"{served.address}report/")
        # Teeth: what the page would load from elsewhere is seen, and forbidden.
        window.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
        assert "Content Security Policy" in window.log("browser")[0]["message"]
