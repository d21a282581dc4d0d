"""`fedpriv describe`, end to end: equal to pandas without noise, and by its errors with it."""

from __future__ import annotations

import json
import tomllib
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedpriv
from fedpriv._toml import to_toml
from fedpriv.data import parse_schema
from fedpriv.data.tables.magnitudes import EDGES
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.cli import app
from fedpriv.simulations.describe.pictures import write_pictures
from fedpriv.simulations.describe.suggested import schema_lines
from fedpriv.simulations.run.release_outcome import DESCRIBED_FILES
from tests.simulations.describe.scenes import SCHEMA, study, written

if TYPE_CHECKING:
    from pathlib import Path

EXACT = {"epsilon": "inf"}
ADJACENCY = Adjacency.REPLACE_ONE
MU = 0.2367043807
"""μ of ε = 1 and δ = 1e-6."""


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return study(2000)


def test_without_noise_it_is_what_pandas_says(frame: pd.DataFrame, tmp_path: Path) -> None:
    experiment = written(tmp_path, frame, privacy=EXACT)
    found = fedpriv.describe(experiment, describe={"bins": 1024}).statistics
    assert found["total"] == {"count": 2000.0, "noise": 0.0, "public": True}
    for name in ("age", "weight", "time"):
        column, known = found["columns"][name], frame[name].dropna()
        assert column["missing"]["count"] == frame[name].isna().sum()
        half = 64 if name != "time" else 8
        assert column["mean"] == pytest.approx(known.mean(), abs=half * 2.0**-16)
        assert column["variance"] == pytest.approx(known.var(), abs=half**2 * 2.0**-14)
        for one in column["quantiles"]:
            # Within a bin of a 1024th of the range.
            assert one["value"] == pytest.approx(known.quantile(one["chance"]), abs=half / 256)
    counts, _ = np.histogram(frame["age"].dropna(), [0, 32, 64, 128])
    assert found["columns"]["age"]["histogram"]["counts"] == pytest.approx(counts)
    smoker = found["columns"]["smoker"]
    known = frame["smoker"].value_counts()
    assert smoker["counts"] == pytest.approx([known["no"], known["yes"]])
    assert smoker["missing"]["count"] == pytest.approx(frame["smoker"].isna().sum())
    crossed = pd.crosstab(frame["smoker"], frame["died"]).to_numpy()
    assert np.array(found["tables"][0]["counts"]) == pytest.approx(crossed)
    odds = crossed[0, 0] * crossed[1, 1] / (crossed[0, 1] * crossed[1, 0])
    assert found["tables"][0]["odds_ratio"] == pytest.approx(odds)
    assert found["tables"][0]["log_odds_ratio_error"] == pytest.approx(sqrt((1 / crossed).sum()))


def test_covariances_are_those_of_complete_records(frame: pd.DataFrame, tmp_path: Path) -> None:
    experiment = written(tmp_path, frame, privacy=EXACT)
    names = ["age", "weight", "time"]
    found = fedpriv.describe(experiment, describe={"correlation": names}).statistics["correlation"]
    complete = frame[names].dropna()
    assert found["complete"]["count"] == len(complete)
    assert np.array(found["covariance"]) == pytest.approx(complete.cov().to_numpy(), rel=1e-3)
    assert np.array(found["correlation"]) == pytest.approx(complete.corr().to_numpy(), abs=1e-4)
    assert found["mean"] == pytest.approx(complete.mean().to_list(), abs=1e-3)


def test_survival_is_the_actuarial_estimate(frame: pd.DataFrame, tmp_path: Path) -> None:
    experiment = written(tmp_path, frame, privacy=EXACT)
    by_group = {**experiment["describe"]["survival"], "by": "smoker"}
    for survival in (experiment["describe"]["survival"], by_group):
        found = fedpriv.describe(experiment, describe={"survival": survival}).statistics["survival"]
        for name, curve in found["curves"].items():
            kept = frame if name == "all" else frame[frame["smoker"] == name]
            expected, risk, value = [], len(kept), 1.0
            for low, high in zip(found["edges"], found["edges"][1:], strict=False):
                inside = kept[(kept["time"] >= low) & (kept["time"] < high)]
                if high == found["edges"][-1]:
                    inside = kept[kept["time"] >= low]
                events = (inside["died"] == "yes").sum()
                value *= 1 - events / (risk - (len(inside) - events) / 2)
                risk -= len(inside)
                expected.append(value)
            assert curve["survival"] == pytest.approx(expected[: len(curve["survival"])])


@pytest.mark.parametrize("engine", ["local", "vectorized"])
@pytest.mark.parametrize("noise_at", ["server", "parties"])
def test_every_engine_releases_the_same_sums(engine: str, noise_at: str, tmp_path: Path) -> None:
    frame = study(300)
    privacy = {"epsilon": 4.0, "noise_at": noise_at, "colluding": 0.0}
    experiment = written(tmp_path, frame, privacy=privacy, run={"engine": engine})
    found = fedpriv.describe(experiment, describe={"bins": 8})
    column = found.columns["weight"]
    assert abs(column["mean"] - frame["weight"].mean()) < 6 * column["mean_error"]
    if noise_at == "server":  # its noise follows from seed, run and round: the same everywhere
        twin = fedpriv.describe(experiment, describe={"bins": 8}, run={"engine": "vectorized"})
        assert found.statistics == twin.statistics


def test_who_dropped_out_is_not_counted(tmp_path: Path) -> None:
    frame = study(400)
    frame["site"] = [f"site {index % 8}" for index in range(len(frame))]
    schema = {**SCHEMA, "columns": {**SCHEMA["columns"]}}
    schema["columns"]["site"] = {"kind": "category", "values": [f"site {i}" for i in range(8)]}
    experiment = written(tmp_path, frame, privacy=EXACT, run={"dropout": 0.25})
    (tmp_path / "schema.toml").write_text(to_toml(schema))
    found = fedpriv.describe(experiment, describe={"bins": 8}).statistics
    assert found["total"]["count"] == 300
    assert sum(found["columns"]["died"]["noisy"]) == pytest.approx(300)


def test_persons_count_once(tmp_path: Path) -> None:
    frame = study(600)
    experiment = written(
        tmp_path,
        frame,
        data={"records": 300},
        privacy={"unit": "person", "epsilon": 8.0},
        persons={"records": 2, "parties": 2},
    )
    found = fedpriv.describe(experiment, describe={"bins": 8})
    there = len(frame[["who", "site"]].drop_duplicates())
    total = found.statistics["total"]
    assert not total["public"]
    assert abs(total["count"] - there) < 6 * total["noise"]
    assert found.statistics["counted"] == "persons"
    again = fedpriv.describe(experiment, describe={"bins": 8, "per_person": "records"}).statistics
    assert again["counted"] == "records"
    assert abs(again["total"]["count"] - 600) < 6 * again["total"]["noise"]
    # Records cost k times as much noise.
    assert again["total"]["noise"] == pytest.approx(2 * total["noise"], rel=1e-3)
    with pytest.raises(ValueError, match=r"persons\.records"):
        fedpriv.describe(experiment, describe={"per_person": "records"}, persons={"records": None})


def test_a_release_is_paid_once_and_its_files_are_the_outcome(tmp_path: Path) -> None:
    experiment = written(tmp_path, study(400))
    (tmp_path / "e.toml").write_text(to_toml(experiment))
    ledger, out = tmp_path / "book.ledger", tmp_path / "out"
    runner = CliRunner()
    command = ["describe", str(tmp_path / "e.toml"), "--release", "--ledger", str(ledger)]
    done = runner.invoke(app, [*command, "--new-ledger", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["statistics"] == json.loads((out / "statistics.json").read_text())
    files = {path.name for path in out.iterdir()} - {"private"}
    assert files <= set(DESCRIBED_FILES)
    assert {"statistics.json", "statement.txt", "plan.json", "result.json"} <= files
    with Ledger.open(ledger, read_only=True) as book:
        assert book.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    # Taken up again, it is what was released; a second one is not paid for.
    again = runner.invoke(app, ["describe", "--resume", str(out), "--json"])
    assert json.loads(again.output)["statistics"] == told["statistics"]
    # Killed after it was paid and drawn: the ledger has it, and its noise is not drawn again.
    for name in ("result.json", "statistics.json"):
        (out / name).unlink()
    changed = runner.invoke(app, ["describe", "--resume", str(out), "--set", "privacy.epsilon=9"])
    assert "resumed run continues with the experiment that it began with" in str(changed.exception)
    late = runner.invoke(app, ["describe", "--resume", str(out), "--json"])
    assert json.loads(late.output)["statistics"] == told["statistics"]
    refused = runner.invoke(app, [*command, "--out", str(tmp_path / "two")])
    assert refused.exit_code != 0
    assert not (tmp_path / "two").exists()


def test_the_terminal_has_a_line_for_everything(tmp_path: Path) -> None:
    experiment = written(tmp_path, study(400))
    experiment["describe"] = {**experiment["describe"], "correlation": ["age", "weight"]}
    (tmp_path / "e.toml").write_text(to_toml(experiment))
    done = CliRunner().invoke(
        app, ["describe", str(tmp_path / "e.toml"), "--out", str(tmp_path / "o")]
    )
    assert done.exit_code == 0, done.output
    for word in ("epsilon <= 1", "age", "quantile", "smoker × died", "survival", "correlation"):
        assert word in done.output
    assert "not told" in done.output  # 400 records at ε = 1 hide something


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["agee"]}, "Did you mean 'age'"),
        ({"bins": 100}, "power of two"),
        ({"edges": {"age": [64, 32]}}, "ascend"),
        ({"edges": {"age": [500]}}, "bounds of the column"),
        ({"edges": {"smoker": [1]}}, "must be a number"),
        ({"correlation": ["age"]}, "two columns"),
        ({"tables": [["age", "died"]]}, "must be a category"),
        ({"weights": {"heigth": 2.0}}, "weights"),
        ({"columns": [], "tables": [], "survival": None}, "something"),
        ({"survival": {"time": "time", "event": "died", "seen": "maybe", "edges": [1]}}, "seen"),
    ],
)
def test_what_is_asked_for_is_checked_before_anything_is_read(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    experiment = written(tmp_path, study(20))
    experiment["describe"] = {k: v for k, v in options.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        fedpriv.describe(experiment)


def test_a_pure_budget_and_whole_parties_are_refused(tmp_path: Path) -> None:
    experiment = written(tmp_path, study(50))
    with pytest.raises(ValueError, match="delta must be positive"):
        fedpriv.describe(experiment, privacy={"delta": 0.0})
    with pytest.raises(ValueError, match="unit must be 'record' or 'person' for describe"):
        fedpriv.describe(experiment, privacy={"unit": "party"}, data={"records": 50})
    with pytest.raises(ValueError, match="fedpriv describe"):
        fedpriv.run(experiment)


def test_a_learning_experiment_can_be_described_as_it_is(tmp_path: Path) -> None:
    experiment = written(tmp_path, study(200))
    del experiment["describe"]
    learning = {**experiment, "strategy": {"name": "output-perturbation"}, "model": {"l2": 0.1}}
    found = fedpriv.describe(learning, describe={"quantiles": []})
    assert set(found.columns) == {"age", "weight", "smoker", "time", "died"}
    assert set(found.to_frame().columns) == {"missing", "mean", "std"}


def test_bounds_are_suggested_as_lines_of_a_schema(tmp_path: Path) -> None:
    frame = study(3000)
    frame["change"] = -100 * np.abs(frame["weight"])  # a column without bounds
    experiment = written(tmp_path, frame)
    (tmp_path / "e.toml").write_text(to_toml(experiment))
    asked = ["--suggest-bounds", "change", "--suggest-bounds", "age", "--json"]
    command = ["describe", str(tmp_path / "e.toml"), "--out", str(tmp_path / "o"), *asked]
    told = json.loads(CliRunner().invoke(app, command).output)
    columns = told["statistics"]["columns"]
    assert told["epsilon"] <= 1.0
    assert (columns["change"]["min"], columns["change"]["max"]) == (-16384.0, -4096.0)
    assert columns["age"]["min"] <= 16
    assert columns["age"]["max"] == 128
    noise = columns["age"]["noise"]
    exact = np.histogram(frame["age"].dropna(), [-np.inf, *EDGES, np.inf])[0]
    assert np.abs(np.array(columns["age"]["noisy"])[: len(exact)] - exact).max() < 6 * noise
    lines = schema_lines("change", columns["change"])
    parsed = parse_schema(
        {**SCHEMA, "columns": {**SCHEMA["columns"], **tomllib.loads(lines)["columns"]}}
    )
    assert parsed.columns["change"].kind == "number"


def test_pictures_follow_from_the_statistics_alone(tmp_path: Path) -> None:
    experiment = written(tmp_path, study(400), privacy=EXACT)
    (tmp_path / "e.toml").write_text(to_toml(experiment))
    out = tmp_path / "out"
    command = ["describe", str(tmp_path / "e.toml"), "--out", str(out), "--pictures"]
    assert CliRunner().invoke(app, command).exit_code == 0
    again = write_pictures(tmp_path, json.loads((out / "statistics.json").read_text()))
    assert again.read_bytes() == (out / "statistics.svg").read_bytes()
    assert b"survival" in again.read_bytes()


def test_built_in_data_have_no_schema() -> None:
    with pytest.raises(ValueError, match="schema"):
        fedpriv.describe({"data": {"name": "synthetic"}})
