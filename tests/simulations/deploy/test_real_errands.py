"""After a run, in real processes: attested, cancelled with a party away, handed over, verified."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.cli import app
from fedpriv.simulations.deploy.processes import stop
from fedpriv.simulations.deploy.run.jobs import report_of
from fedpriv.simulations.server_app import FAILURE
from tests.simulations.deploy import fates
from tests.simulations.deploy.standing import FOUR, HELD, Standing, standing, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import PartyFolder


@pytest.fixture(scope="module")
def live() -> Iterator[Standing]:
    with standing(min_noise=0.001) as made:
        fates.patience(made.server.root, attempts=3, seconds=60.0)
        yield made


def fedpriv(*words: object) -> tuple[int, dict[str, Any]]:
    """What a command says in JSON, and its exit status."""
    found = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert found.stdout.strip(), (found.exception, found.stderr)
    return found.exit_code, json.loads(found.stdout)


def open_seats(folder: PartyFolder) -> list[Path]:
    """The runs in which a party holds keys, masks or shares."""
    seats = (read_party(folder.policy).state / "seats").glob("[!.]*")
    return [seat for seat in seats if seat.stat().st_size]


def test_the_end_of_two_runs(live: Standing) -> None:
    server, away = live.server, live.party("east")
    first = live.begin(live.written("first")).directory
    assert live.end(first) is not None, (first / FAILURE).read_text()
    wait_until(report_of(first, "attest").exists, what="signatures")
    status, said = fedpriv("verify", first, "--roster", server.roster, "--complete")
    assert (status, said["missing"]) == (0, []), said

    # A second run has paid for releases, and is cancelled while a party is away.
    second = live.begin(live.written("second", strategy={"rounds": 200})).directory
    name = json.loads((second / "private" / "run.json").read_text())["run"]
    wait_until(
        lambda: all(name in dict(live.reserved(folder)) for folder in live.parties),
        what="a release of the second run",
    )
    stop(away)
    words: dict[str, str] = {}

    def left() -> bool:
        """Cancel again, as long as somebody who is there has not heard of it."""
        status, told = fedpriv("deploy", "cancel", second, "--server", server.root)
        assert status == 1  # one is away
        words.update(told)
        return all(words[name] == "left it" for name in FOUR if name != "east")

    wait_until(left, what="the parties that are there")
    assert words["east"] in ("not there", "no reply")
    spent = {folder.root: live.reserved(folder) for folder in live.parties}
    for folder in live.parties:
        # The first run's is one of the seats: a run that ended is closed by those after it.
        assert len(open_seats(folder)) == (2 if folder is away else 1)
    resumed = CliRunner().invoke(
        app, ["deploy", "run", "--resume", str(second), "--server", str(server.root)]
    )
    assert "closed for good: it was cancelled" in str(resumed.exception)

    # Whoever comes back is told, gets the model, and pays nothing for either.
    live.start(away)
    wait_until(
        lambda: fedpriv("deploy", "cancel", second, "--server", server.root)[0] == 0, what=away
    )
    assert len(open_seats(away)) == 1
    status, words = fedpriv("deploy", "handover", first, "--server", server.root)
    assert (status, words) == (0, dict.fromkeys(FOUR, "has it"))
    assert spent == {folder.root: live.reserved(folder) for folder in live.parties}
    (model,) = (away.root / "models").iterdir()
    ledger = read_party(away.policy).ledger
    status, said = fedpriv("verify", model, "--roster", away.roster, "--ledger", ledger)
    assert status == 0, said
    status, said = fedpriv("predict", model, away.root / "records.csv")
    assert len(said["prediction"]) == HELD[FOUR.index("east")]
