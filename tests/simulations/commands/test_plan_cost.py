"""`fedpriv plan-cost`: tables and JSON of what secure aggregation costs, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.cost.prediction import predict
from fedpriv.federation.cost.setting import Setting
from fedpriv.federation.cost.unit_costs import RECORDED_COSTS
from fedpriv.secagg import Mode
from fedpriv.simulations.commands.plan_cost import _bytes, _time
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = """
[data]
name = "synthetic"
parties = 6

[strategy]
name = "gradient-perturbation"
rounds = 3
clip = 0.3

[run]
engine = "local"
"""


def test_every_combination_has_a_row(fedpriv: Callable[..., Any]) -> None:
    asked = ("--parties", "10,2000", "--dimension", "1e3,4", "--mode", "semi-honest,active")
    found = fedpriv("plan-cost", *asked, "--json").json()["predictions"]
    cases = {(one["parties"], one["dimension"], one["mode"]) for one in found}
    assert len(cases) == len(found) == 8
    beyond = {(one["parties"], one["mode"]) for one in found if one["beyond_the_protocol"]}
    assert beyond == {(2000, "active")}
    text = fedpriv("plan-cost", *asked).out
    assert "not to be run: active mode ends at 1024 parties" in " ".join(text.split())
    assert "18 November 2026" in text


def test_an_experiment_is_predicted_to_the_byte(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    source = tmp_path / "study.toml"
    source.write_text(FILE)
    (found,) = fedpriv("plan-cost", "--from", source, "--json").json()["predictions"]
    assert (found["parties"], found["mode"], found["rounds"]) == (6, "semi-honest", 3)
    prepared = prepare(read_experiment(source))
    strategy = build_strategy(prepared, run=prepared.run)
    federation: Any = build_federation(prepared, run=prepared.run, rounds=3)
    train(strategy, federation, lambda *_: True)
    total = federation.report.total
    assert found["exchanges"] == total.exchanges
    assert found["server"]["received_bytes"] == total.received
    # Numbers in a query are as long as their digits.
    assert found["server"]["sent_bytes"] == pytest.approx(total.sent, rel=0.01)


def test_options_change_what_an_experiment_says(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    source = tmp_path / "study.toml"
    source.write_text(FILE)
    asked = ("--parties", "40", "--mode", "active", "--rounds", "2", "--set", "run.dropout=0.1")
    (found,) = fedpriv("plan-cost", "--from", source, *asked, "--json").json()["predictions"]
    assert (found["parties"], found["mode"], found["rounds"]) == (40, "active", 2)
    assert found["dropout"] == 0.1


def test_calibration_is_of_this_machine(
    fedpriv: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedpriv.federation.cost.unit_costs._SECONDS", 0.0)
    asked = ("plan-cost", "--parties", "10", "--dimension", "10", "--json")
    recorded, here = fedpriv(*asked).json(), fedpriv(*asked, "--calibrate").json()
    assert here["machine"] == "this machine, measured now"
    assert here["unit_seconds"] != recorded["unit_seconds"]
    (one,), (other,) = here["predictions"], recorded["predictions"]
    assert one["party"]["sent_bytes"] == other["party"]["sent_bytes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dimension", "3"], "--parties must be given, or an experiment"),
        (["--parties", "3"], "--dimension must be given, or an experiment"),
        (["--parties", "ten", "--dimension", "3"], "--parties must be whole numbers"),
        (["--parties", "10,", "--dimension", "3"], "--parties must be whole numbers"),
        (["--parties", "10", "--dimension", "0.5"], "--dimension must be whole numbers"),
        (["--parties", "nan", "--dimension", "3"], "--parties must be whole numbers"),
        (["--parties", ",".join(["10"] * 101), "--dimension", "3"], "at most 100 numbers"),
        (["--parties", "1e9", "--dimension", "3"], "parties must lie between 2 and 10,000,000"),
        (["--parties", "10", "--dimension", "3", "--mode", "off"], "--mode must be of"),
        (["--parties", "10", "--dimension", "3", "--dropout", "0.9"], "no threshold is secure"),
        (["--parties", "10", "--dimension", "3", "--set", "run.seed=1"], "none is named"),
        (["--from", "no such file"], "no such file"),
    ],
)
def test_bad_input_is_one_message(
    fedpriv: Callable[..., Any], arguments: list[str], message: str
) -> None:
    done = fedpriv("plan-cost", *arguments)
    assert done.code == 2
    assert message in done.message


def test_the_table_of_the_page_is_what_the_command_says() -> None:
    """The page is docs/scale.md; a row of it per round, as people read it."""
    page = (Path(__file__).parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if "-honest" in line]
    rows += [line.strip("| ").split(" | ") for line in page.splitlines() if "| active" in line]
    rows = [row for row in rows if len(row) == 9]
    assert len(rows) == 12
    for parties, mode, graph, sends, receives, computes, sent, works, holds in rows:
        kind, _, star = mode.partition(" ")
        setting = Setting(parties=int(parties.replace(",", "")), dimension=10_000, mode=Mode(kind))
        found = predict(setting, RECORDED_COSTS)
        assert bool(setting.limit) == (star == "*")
        assert graph == f"{setting.holders:,}, {setting.threshold:,}"
        party, server = found.party, found.server
        assert [_bytes(one / 10) for one in (party.sent, party.received)] == [sends, receives]
        assert [_time(one.seconds / 10) for one in (party, server)] == [computes, works]
        assert [_bytes(server.sent / 10), _bytes(server.memory)] == [sent, holds]
