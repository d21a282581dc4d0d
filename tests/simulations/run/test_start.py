"""A run that begins with a pretrained model, some of whose layers may stay as they are."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed, public_task
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.run.prepare import build_strategy, prepare

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

PAGE = Path(__file__).parents[3] / "docs" / "own-model.md"
DATA = {"name": "synthetic", "parties": 4, "partition": "iid"}
MLP = {"name": "mlp", "hidden": [4, 3]}
STEPS = {"name": "gradient-perturbation", "rounds": 3, "learning_rate": 0.5}
FIRST = 11 * 4 + 4  # parameters of the first layer
STRATEGIES = [
    "gradient-perturbation",
    "local-gradient-perturbation",
    "adaptive-clipping",
    "second-order",
    "agd",
]


def _study(model: dict[str, Any], **strategy: Any) -> dict[str, Any]:
    return {"data": DATA, "model": model, "strategy": {**STEPS, **strategy}}


def _theta(directory: Path) -> Any:
    with np.load(directory / "model.npz") as arrays:
        return arrays["theta"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that a run wrote."""
    folder = tmp_path_factory.mktemp("public")
    fedpriv.run(_study(MLP), out=folder / "mlp")
    fedpriv.run({"data": DATA, "strategy": STEPS}, out=folder / "linear")
    return folder


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_that_descends_begins_there(name: str, trained: Path) -> None:
    start = trained / "linear" / "model.npz"
    study = read_experiment(
        {"data": DATA, "model": {"start": str(start)}, "strategy": {"name": name}}
    )
    prepared = prepare(study)
    strategy = build_strategy(prepared, run="one")
    np.testing.assert_array_equal(strategy.theta, _theta(start.parent))
    assert strategy.theta.any()


def test_federated_averaging_and_learned_protection_begin_there(trained: Path) -> None:
    start = trained / "linear" / "model.npz"
    for strategy, privacy in (
        ({"name": "federated-averaging", "allow_swamped": True}, {"unit": "party"}),
        ({"name": "learned-protection"}, {"adjacency": "add-remove"}),
    ):
        values = {"data": DATA, "model": {"start": str(start)}, "strategy": strategy}
        prepared = prepare(read_experiment({**values, "privacy": privacy}))
        built = build_strategy(prepared, run="one")
        np.testing.assert_array_equal(built.theta, _theta(start.parent))


def test_frozen_layers_stay_and_the_rest_is_trained(trained: Path, tmp_path: Path) -> None:
    start = trained / "mlp" / "model.npz"
    study = _study({**MLP, "start": str(start), "frozen": ["dense1"]})
    result = fedpriv.run(study, out=tmp_path / "run")
    before, after = _theta(start.parent), _theta(tmp_path / "run")
    np.testing.assert_array_equal(before[:FIRST], after[:FIRST])
    assert (before[FIRST:] != after[FIRST:]).all()
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["dimension"] == before.size - FIRST == result.summary["dimension"]
    # The file needs no other one: it predicts as the run measured, and can be begun with.
    assert fedpriv.load_model(tmp_path / "run").predict(np.zeros((2, 10))).shape == (2,)
    again = _study({**MLP, "start": str(tmp_path / "run" / "model.npz")})
    assert prepare(read_experiment(again)).task.dimension == before.size


def test_the_hash_is_in_hash_plan_result_and_statement(trained: Path, tmp_path: Path) -> None:
    start = trained / "mlp" / "model.npz"
    digest = sha256(start.read_bytes()).hexdigest()
    study = _study({**MLP, "start": str(start)})
    fedpriv.run(study, out=tmp_path / "run")
    read = {
        name: (tmp_path / "run" / name).read_text()
        for name in ("config.toml", "plan.json", "result.json", "statement.txt", "statement.json")
    }
    assert all(digest in text for text in read.values())
    assert "taken to be public" in " ".join(read["statement.txt"].split())
    plain = read_experiment(_study(MLP))
    begun, moved = read_experiment(study), tmp_path / "moved.npz"
    moved.write_bytes(start.read_bytes())
    elsewhere = read_experiment(_study({**MLP, "start": str(moved)}))
    assert plain.config_hash != begun.config_hash == elsewhere.config_hash
    frozen = read_experiment(_study({**MLP, "start": str(start), "frozen": ["dense1"]}))
    assert frozen.config_hash != begun.config_hash


def test_another_file_than_the_one_that_was_stated_is_refused(
    trained: Path, tmp_path: Path, fedpriv: Command
) -> None:
    start = tmp_path / "start.npz"
    start.write_bytes((trained / "linear" / "model.npz").read_bytes())
    study = read_experiment({"data": DATA, "model": {"start": str(start)}, "strategy": STEPS})
    start.write_bytes((trained / "mlp" / "model.npz").read_bytes())
    with pytest.raises(ValueError, match="is not the file that the experiment states"):
        prepare(study)
    start.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        prepare(study)
    (tmp_path / "no.toml").write_text(
        '[data]\nname = "synthetic"\n[model]\nstart = "no.npz"\n[strategy]\nname = "agd"\n'
    )
    done = fedpriv("run", tmp_path / "no.toml")
    assert (done.code, "model.start" in done.message) == (2, True)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": MLP}, "another model"),
        ({"model": {"name": "huber-svm"}}, None),  # the loss gives no parameter its meaning
        ({"data": {**DATA, "intercept": 0.5}}, "another data.feature_norm"),
        ({"data": {**DATA, "feature_norm": 2.0}}, "another data.feature_norm"),
        ({"data": {"name": "synthetic:squared"}, "model": {"name": "squared"}}, "another task"),
        ({"strategy": {"name": "output-perturbation"}}, "for strategies that descend"),
        ({"strategy": {"name": "party-alone"}}, "for strategies that descend"),
    ],
)
def test_a_start_of_something_else_is_refused(
    tables: dict[str, Any], message: str | None, trained: Path
) -> None:
    values: dict[str, Any] = {"data": DATA, "strategy": STEPS, **tables}
    values["model"] = {**values.get("model", {}), "start": str(trained / "linear" / "model.npz")}
    if message is None:
        assert prepare(read_experiment(values)).task.start is not None
        return
    with pytest.raises(ValueError, match=message):
        prepare(read_experiment(values))


def test_a_damaged_start_is_refused(tmp_path: Path) -> None:
    start = tmp_path / "start.npz"
    for content in (b"", b"PK\x03\x04", b"no archive"):
        start.write_bytes(content)
        study = read_experiment({"data": DATA, "model": {"start": str(start)}, "strategy": STEPS})
        with pytest.raises(ValueError, match="cannot be read as a model"):
            prepare(study)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "logistic", "frozen": ["dense1"]}, "for networks"),
        ({**MLP, "frozen": ["dense1"]}, "frozen needs start"),
        ({"start": "model.npz"}, "belong together"),
        ({"start_sha256": "0" * 64}, "belong together"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_experiment(_study(model))


PARTY = """
party = "site"
[columns.site]
kind = "category"
values = ["a", "b"]
"""
SCHEMA = f"""
label = "y"
positive = "yes"
{PARTY}
[columns.x]
kind = "number"
min = 0
max = 1
[columns.y]
kind = "category"
values = ["no", "yes"]
"""
TABLE = "x,y,site\n" + "0.1,no,a\n0.9,yes,b\n" * 20


def test_a_deployed_party_reads_no_start_and_its_server_does(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "deployed.toml").write_text(SCHEMA.replace(PARTY, ""))
    table = {"schema": str(tmp_path / "schema.toml"), "path": str(tmp_path / "table.csv")}
    local = {"data": table, "strategy": STEPS}
    fedpriv.run(local, out=tmp_path / "run")
    start = tmp_path / "run" / "model.npz"
    deployed = {
        "data": {"schema": str(tmp_path / "deployed.toml")},
        "model": {"start": str(start)},
        "strategy": STEPS,
        "run": {"engine": "deployment"},
    }
    study = read_experiment(deployed)
    prepared = prepare_deployed(study, sizes=(20, 20))
    np.testing.assert_array_equal(prepared.task.initial(0), _theta(start.parent))
    start.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        prepare_deployed(study, sizes=(20, 20))
    schema = prepared.data.dataset.schema
    assert schema is not None
    assert public_task(checked(study), schema, sizes=(20, 20)).start is None
    sha = str(study.model.start_sha256)
    model = {**MLP, "start": str(start), "start_sha256": sha, "frozen": ["dense1"]}
    with pytest.raises(ValueError, match="reads no file that an experiment names"):
        parse_experiment({**deployed, "model": model})


def test_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "wider.toml").write_text(SCHEMA.replace("max = 1", "max = 2"))
    (tmp_path / "table.csv").write_text(TABLE)
    data = {"schema": str(tmp_path / "schema.toml"), "path": str(tmp_path / "table.csv")}
    fedpriv.run({"data": data, "strategy": STEPS}, out=tmp_path / "run")
    model = {"start": str(tmp_path / "run" / "model.npz")}
    same = {"data": data, "model": model, "strategy": STEPS}
    assert prepare(read_experiment(same)).task.start is not None
    other = {**same, "data": {**data, "schema": str(tmp_path / "wider.toml")}}
    with pytest.raises(ValueError, match="another schema"):
        prepare(read_experiment(other))


def test_the_page_about_it_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn", reason="the digits come with the extra 'data'")
    (code,) = re.findall(r"```python\n(import fedpriv\n.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace('"rounds": 20', '"rounds": 2'), "own-model.md", "exec"), {})  # noqa: S102
    before, after = _theta(tmp_path / "public"), _theta(tmp_path / "private")
    kept = 16 * 9 + 16 + 32 * 16 * 9 + 32
    np.testing.assert_array_equal(before[:kept], after[:kept])
    assert (before[kept:] != after[kept:]).all()


def test_a_module_begins_at_weights_of_its_own_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="the digits come with the extra 'data'")
    page = PAGE.read_text()
    for code, name in re.findall(r"```(?:python|toml)\n(# (nets\.\S+)\n.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(code)
    (code,) = re.findall(
        r"```python\n(import numpy as np\n\nimport fedpriv\n.*?)```", page, re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    still = 'strategy={"rounds": 1, "learning_rate": 1e-12}, privacy={"epsilon": "inf"}, out="own"'
    code = code.replace('model={"start": "mine.npz"}', f'model={{"start": "mine.npz"}}, {still}')
    names: dict[str, Any] = {}
    exec(compile(code, "own-model.md", "exec"), names)  # noqa: S102
    np.testing.assert_allclose(_theta(tmp_path / "own"), names["arrays"]["theta"], atol=1e-10)


def test_the_frame_of_a_comparison_needs_no_start(trained: Path) -> None:
    """Its minimisers are the same from anywhere; what descends begins at the start."""
    study = {
        **_study({"start": str(trained / "linear" / "model.npz")}),
        "compare": {"strategies": ["gradient-perturbation"], "epsilons": [1.0], "seeds": 1},
    }
    rows = {row.label: row for row in fedpriv.compare(study, workers=1).rows}
    free = fedpriv.compare({**study, "model": {}}, workers=1).rows
    for row in free:
        same = rows[row.label].values == row.values
        assert same is (row.label in ("non-private", "party-alone")), row.label
