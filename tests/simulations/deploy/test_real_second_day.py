"""The life of a federation, in real processes: two runs, and all that comes after the first day.

Noise at the server, then at the parties; a bound that adapts, and noise that is learned; evaluated
privately; a fourth party; a run that is
cancelled while a party is away; the model handed over; keys rotated; a party expelled; one more run
with who is left. Every statement is verified offline, and every ledger is right to the digit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.folders import PartyFolder
from fedpriv.simulations.deploy.health.reach import free_port
from fedpriv.simulations.deploy.members.membership import nodes
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.processes import processes, stop
from fedpriv.simulations.deploy.run.jobs.dispatch import report_of
from fedpriv.simulations.server_app import FAILURE
from tests.federation.deployed.prices import charged, require_right_to_the_digit
from tests.simulations.deploy import fates
from tests.simulations.deploy.conftest import NAMES, SIZES, write_records
from tests.simulations.deploy.standing import HELD, Standing, standing, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.simulations.conftest import Command

QUERIES = ["gradient", "accuracy"]
STRATEGIES = ["gradient-perturbation", "adaptive-clipping", "learned-protection"]
ADAPTIVE: dict[str, Any] = {"name": "adaptive-clipping", "rounds": 2, "largest_clip": 1.0}
LEARNED: dict[str, Any] = {  # one round, of two releases
    "name": "learned-protection", "horizon": 1, "clip": 1.0, "rounds": None, "learning_rate": None
}  # fmt: skip
EPSILON = 100.0  # of an evaluation that leaves little noise


@pytest.fixture(scope="module")
def live() -> Iterator[Standing]:
    """Three parties that hold out records, and let them be counted."""
    with standing(NAMES, min_noise=0.0, queries=QUERIES, strategies=STRATEGIES) as made:
        fates.patience(made.server.root, attempts=3, seconds=60.0)
        for number, folder in enumerate(made.parties):
            write_records(folder.root / "test.csv", SIZES[number], seed=100 + number)
            made.change(folder, party={"test": "test.csv"})
        try:
            yield made
        finally:
            for root in (made.root / "elsewhere").glob("*"):
                stop(PartyFolder(root))  # who came later


class Day:
    """What people do at a federation, by the command line."""

    def __init__(self, live: Standing, fedpriv: Command) -> None:
        self.live, self._fedpriv = live, fedpriv
        self.homes = dict(zip(NAMES, live.parties, strict=True))
        self.runs: list[Path] = []

    def do(self, *words: object) -> str:
        """A command of the coordinator or a party, which succeeds."""
        done = self._fedpriv("deploy", *words)
        assert done.code == 0, done.err
        return done.out

    def at_server(self, *words: object) -> tuple[int, Any]:
        """A command of the server's that answers in JSON, and its exit status."""
        done = self._fedpriv("deploy", *words, "--server", self.live.server.root, "--json")
        return done.code, json.loads(done.out)

    def run(self, name: str, **changes: dict[str, Any]) -> Path:
        """A run to its end, with the signatures of all who are there."""
        directory = self.begin(name, **changes)
        assert self.live.end(directory) is not None, (directory / FAILURE).read_text()
        wait_until(report_of(directory, "attest").exists, what="signatures")
        self.runs.append(directory)
        return directory

    def begin(self, name: str, **changes: dict[str, Any]) -> Path:
        return self.live.begin(self.live.written(name, **changes)).directory

    def join(self, name: str, records: int) -> PartyFolder:
        """A party on a machine of its own, with keys that nobody else has seen."""
        root, server = self.live.root / "elsewhere" / name, self.live.server
        root.parent.mkdir()
        port = free_port()
        self.do("join", server.invitation, "--name", name, "--output", root, "--port", port)
        home = self.homes[name] = PartyFolder(root)
        write_records(home.root / "records.csv", records, seed=7)
        self.do("bundle", home.root)
        said = self.do("add", home.bundle, "--server", server.root)
        assert f"admitted the node of {name}" in said
        return home

    def accept(self, home: PartyFolder) -> str:
        """Take the newest roster, by the fingerprint that another party reads out."""
        server = self.live.server
        told = read_roster(server.roster).fingerprint
        return self.do("accept", server.roster, "--fingerprint", told, "--party", home.root)

    def verified(self, directory: Path, *, epoch: int) -> dict[str, Any]:
        """The verdict on a signed statement, from files alone."""
        roster = self.live.server.rosters / f"{epoch:04}.toml"
        done = self._fedpriv("verify", directory, "--roster", roster, "--complete", "--json")
        verdict: dict[str, Any] = done.json()
        assert verdict["missing"] == []
        return verdict

    def filed(self, directory: Path, *, epoch: int) -> dict[str, Any]:
        """The verdict on a dossier that the server signs, from files alone."""
        server = self.live.server
        out = self.live.root / "dossiers" / directory.name
        told = self._fedpriv("dossier", directory, "--key", server.identity, "--out", out, "--json")
        signer = ("--signer", told.json()["signer"])
        roster = server.rosters / f"{epoch:04}.toml"
        ledger = self.books()["server"]
        given = ("--roster", roster, "--ledger", ledger, "--complete", "--json")
        verdict: dict[str, Any] = self._fedpriv("verify", out, *signer, *given).json()
        passed = {each["check"]: each["passed"] for each in verdict["findings"]}
        assert passed["signed for"] is passed["dossier"] is passed["roster"] is True
        assert passed["ledger"] is passed["threshold"] is passed["epsilon"] is True
        return verdict

    def books(self) -> dict[str, Path]:
        """Every ledger of the federation."""
        parties = {name: read_party(home.policy).ledger for name, home in self.homes.items()}
        return {"server": self.live.server.root / "clinics.ledger", **parties}


def test_the_second_day(live: Standing, fedpriv: Command) -> None:
    day, server = Day(live, fedpriv), live.server
    epoch = read_roster(server.roster).epoch

    # Noise at the server, then at the parties, and an evaluation: one budget.
    first = day.run("first")
    second = day.run("second", privacy={"noise_at": "parties"})
    adaptive = day.run("adaptive", strategy=ADAPTIVE)
    learned = day.run("learned", strategy=LEARNED, privacy={"epsilon": 2.0})
    code, result = day.at_server("evaluate", second, "--epsilon", EPSILON)
    assert code == 0
    assert result["noise_at"] == "parties"
    assert result["low"] <= result["accuracy"] <= result["high"]
    assert result["records"] == pytest.approx(sum(SIZES), abs=10)
    for directory in (first, second, adaptive, learned):
        assert day.verified(directory, epoch=epoch)["sound"]
        assert day.filed(directory, epoch=epoch)["sound"]
    spent = {name: require_right_to_the_digit(path).total for name, path in day.books().items()}
    assert len({total.amount for total in spent.values()}) == 1  # everybody pays the same
    assert {len(charged(path)) for path in day.books().values()} == {1 + 1 + 2 + 2 + 1}

    # A fourth party comes with its own keys. Those beside the server follow by themselves.
    east = day.join("east", HELD[3])
    live.change(east, policy={"min_noise": 0.0, "queries": QUERIES})
    assert "Tolerates 1 party colluding with the server and 1 missing" in day.accept(east)
    live.start(east)
    wait_until(lambda: all(node.status == "online" for node in nodes(server)), what="its node")

    # A run of four is cancelled while one of them is away, who hears of it later.
    third = day.begin("third", strategy={"rounds": 200})
    name = json.loads((third / "private" / "run.json").read_text())["run"]
    wait_until(
        lambda: all(name in dict(live.reserved(home)) for home in day.homes.values()),
        what="a release of the third run",
    )
    stop(east)
    told: dict[str, str] = {}

    def left() -> bool:
        code, words = day.at_server("cancel", third)
        assert code == 1  # as long as one is away
        told.update(words)
        return all(told[name] == "left it" for name in NAMES)

    wait_until(left, what="the parties that are there")
    seats = json.loads((third / "private" / "seats.json").read_text())
    for home in live.parties:  # keys, masks and shares are gone
        assert not any((home.root / "state" / "seats" / run).stat().st_size for run in seats)
    refused = fedpriv("deploy", "run", "--resume", third, "--server", server.root)
    assert refused.code == 2
    assert "closed for good: it was cancelled" in refused.message
    live.start(east)
    wait_until(lambda: day.at_server("cancel", third)[0] == 0, what="the one who was away")
    before = {name: charged(path) for name, path in day.books().items()}

    # The model of the first run goes to those who paid for it, and costs nothing.
    assert day.at_server("handover", first) == (0, dict.fromkeys(NAMES, "has it"))
    (model,) = (live.party("north").root / "models").iterdir()
    assert day.verified(model, epoch=epoch)["sound"]
    roster, own = server.rosters / f"{epoch:04}.toml", day.books()["north"]
    assert fedpriv("verify", model, "--roster", roster, "--ledger", own).code == 0
    done = fedpriv("predict", model, live.party("north").root / "records.csv", "--json")
    assert len(done.json()["prediction"]) == SIZES[0]
    assert before == {name: charged(path) for name, path in day.books().items()}

    # New keys for south, signed by the old ones; west is expelled, and its node is let in no more.
    south, west = day.homes["south"], day.homes["west"]
    day.do("rotate", south.root)
    said = day.do("add", south.bundle, "--server", server.root)
    assert "admitted the node of south" in said
    assert "the old node key of south" in said
    stop(south)
    live.start(south)
    day.accept(east)
    assert "the old node key of west" in day.do("expel", "west", "--server", server.root)
    day.accept(east)
    wait_until(
        lambda: not any(each.name == "supernode" and each.alive for each in processes(west)),
        what="the end of an expelled node",
    )
    assert read_roster(server.roster).names == ("north", "south", "east")
    assert read_roster(server.roster).permanent_number("east") == len(NAMES)

    # And the next run is one of three, under the newest roster, with the new keys.
    fourth = day.run("fourth", privacy={"noise_at": "parties"})
    newest = read_roster(server.roster)
    assert day.verified(fourth, epoch=newest.epoch)["sound"]
    for name, path in day.books().items():
        require_right_to_the_digit(path)
        assert len(charged(path)) == len(before[name]) + (name != "west")
    done = fedpriv("verify", fourth, "--roster", server.rosters / f"{epoch:04}.toml", "--json")
    assert done.code == 1  # by the roster of the first day these are strangers
