"""A fitted model: labels for raw tables, by the path of training; files that are no models."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import fedpriv
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.release_outcome import MODEL, Origin
from tests.simulations.api.tables import clinic

if TYPE_CHECKING:
    from collections.abc import Callable

Study = dict[str, Any]


def held_out(folder: Path) -> pd.DataFrame:
    """The rows that the table sets apart for testing."""
    frame = pd.read_csv(folder / "clinic.csv", dtype={"year": str}, keep_default_na=False)
    return frame[frame.year == "2025"]


@pytest.mark.parametrize("label", ["outcome", "grade", "days"])
@pytest.mark.parametrize("scaling", ["clip", "divide"])
def test_raw_rows_become_the_features_that_training_saw(
    tmp_path: Path, label: str, scaling: str
) -> None:
    study = clinic(tmp_path, label=label)
    study["data"] |= {"scaling": scaling, "feature_norm": 0.7, "intercept": 0.5}
    result = fedpriv.run(study)
    dataset = prepare(parse_experiment(study)).data.dataset
    features = result.model.file.preprocessing.features(held_out(tmp_path))
    np.testing.assert_array_equal(features, dataset.test.X)


@pytest.mark.parametrize("model", ["logistic", "huber-svm", "mlp"])
def test_two_classes_are_predicted_as_the_table_calls_them(tmp_path: Path, model: str) -> None:
    result = fedpriv.run(clinic(tmp_path, model=model))
    rows = held_out(tmp_path)
    predicted = result.model.predict(rows)
    assert set(predicted) <= set(result.model.classes) == {"well", "ill"}
    assert (predicted == rows.outcome).mean() == result.metrics["accuracy"]
    if model == "huber-svm":
        with pytest.raises(ValueError, match="no probabilities"):
            result.model.predict_proba(rows)
    else:
        likely = result.model.predict_proba(rows)
        np.testing.assert_allclose(likely.sum(axis=1), 1)
        assert (np.array(result.model.classes)[likely.argmax(axis=1)] == predicted).all()


def test_several_classes_are_predicted_in_their_order(tmp_path: Path) -> None:
    result = fedpriv.run(clinic(tmp_path, label="grade"))
    rows = held_out(tmp_path)
    assert result.model.classes == ("mild", "severe", "none")
    assert (result.model.predict(rows) == rows.grade).mean() == result.metrics["accuracy"]
    assert result.model.scores(rows).shape == result.model.predict_proba(rows).shape


def test_a_number_is_predicted_in_its_own_unit(tmp_path: Path) -> None:
    model = fedpriv.run(clinic(tmp_path, label="days")).model
    rows = held_out(tmp_path)
    np.testing.assert_allclose(model.predict(rows), 20 * (model.scores(rows) + 1), rtol=1e-6)
    assert np.abs(model.predict(rows) - rows.days.astype(float)).mean() < 10


def test_a_class_that_the_schema_does_not_name_is_not_invented(tmp_path: Path) -> None:
    study = clinic(tmp_path)
    schema = tmp_path / "schema.toml"
    schema.write_text(schema.read_text().split("[columns.outcome]")[0])
    assert fedpriv.run(study).model.classes == ("not ill", "ill")


def test_the_file_says_nothing_of_parties_and_test_records(tmp_path: Path) -> None:
    result = fedpriv.run(clinic(tmp_path))
    with np.load(result.directory / "model.npz", allow_pickle=False) as arrays:
        assert set(arrays) == set(MODEL)
        assert {key for key, origin in MODEL.items() if origin is not Origin.PUBLIC} == {"theta"}
        described = json.loads(str(arrays["schema"]))
    assert set(described["columns"]) == {"age", "blood", "outcome"}
    assert not {"party", "test_column", "test_values"} & set(described)


def test_a_loaded_model_predicts_as_the_one_that_was_trained(tmp_path: Path) -> None:
    result = fedpriv.run(clinic(tmp_path))
    saved = result.save(tmp_path / "saved")
    rows = held_out(tmp_path)
    for source in (saved, str(saved), saved / "model.npz"):
        loaded = fedpriv.load_model(source)
        np.testing.assert_array_equal(loaded.scores(rows), result.model.scores(rows))


def test_a_party_alone_has_no_common_model(tmp_path: Path) -> None:
    result = fedpriv.run(clinic(tmp_path), strategy={"name": "party-alone"})
    with pytest.raises(ValueError, match="party-alone trains one model per party"):
        _ = result.model


class Bomb:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Path.touch, (Path("exploded"),)  # type: ignore[return-value]


@pytest.fixture
def arrays() -> dict[str, Any]:
    study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    result = fedpriv.run(study)
    with np.load(result.directory / "model.npz") as found:
        return dict(found)


def changed_model(arrays: dict[str, Any], **keys: Any) -> str:
    return json.dumps(json.loads(str(arrays["model_settings"])) | keys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {"theta": a["theta"][:-1]}, "theta must be 11 numbers"),
        (lambda a: {"theta": a["theta"].astype(np.float32)}, "theta must be 11 numbers"),
        (lambda a: {"theta": a["theta"] * np.nan}, "theta must be finite"),
        (lambda _: {"format": 2}, "another version"),
        (lambda _: {"format": np.zeros(3)}, "not a model that can be used"),
        (lambda _: {"task": "ranking"}, "task must be one of"),
        (lambda _: {"classes": ["a", "b", "c"]}, "2 classes"),
        (lambda _: {"classes": [1, 2]}, "list of names"),
        (lambda _: {"feature_norm": -1.0}, "norm must lie in"),
        (lambda _: {"max_norm": np.inf}, "max_norm must be positive"),
        (lambda _: {"scaling": "standard"}, "scaling must be one of"),
        (lambda _: {"scaling": 3}, "a text is missing"),
        (lambda _: {"schema": "{"}, "not a model that can be used"),
        (lambda _: {"schema": "{}"}, "label"),
        (lambda _: {"model_settings": "{"}, "not a model that can be used"),
        (lambda a: {"model_settings": changed_model(a, name="softmax")}, "does not fit"),
        (lambda a: {"model_settings": changed_model(a, hidden=[1], surprise=1)}, "surprise"),
        (lambda _: {"surprise": 1}, "its arrays are not those of a model"),
        (lambda _: {"theta": np.array([Bomb()])}, "cannot be read as a model"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arrays: dict[str, Any],
    change: Callable[[dict[str, Any]], dict[str, Any]],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "model.npz", **{**arrays, **change(arrays)})
    with pytest.raises(ValueError, match=message):
        fedpriv.load_model(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_file_never_names_code_that_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('exploded', 'w')")
    for key in ("name", "loss"):
        model = changed_model(arrays, **{key: f"{tmp_path}/evil.py:Network"})
        np.savez("model.npz", **{**arrays, "model_settings": model})
        with pytest.raises(ValueError, match="not a model that can be used"):
            fedpriv.load_model("model.npz")
    assert not Path("exploded").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", pickle.dumps({"theta": 1})])
def test_another_file_is_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as a model"):
        fedpriv.load_model(tmp_path)


def test_a_file_is_not_unpacked_and_may_be_cut(tmp_path: Path, arrays: dict[str, Any]) -> None:
    packed, whole = tmp_path / "packed.npz", tmp_path / "whole.npz"
    np.savez_compressed(packed, **arrays)
    np.savez(whole, **arrays)
    cut = tmp_path / "cut.npz"
    cut.write_bytes(whole.read_bytes()[:-40])
    for path in (packed, cut):
        with pytest.raises(ValueError, match="cannot be read as a model"):
            fedpriv.load_model(path)
    with pytest.raises(ValueError, match=r"absent.*cannot be read: No such file"):
        fedpriv.load_model(tmp_path / "absent")


def test_the_command_predicts_as_the_function_does(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    from fedpriv import load_model, run

    result = run(clinic(tmp_path), out=tmp_path / "out")
    table, out = tmp_path / "clinic.csv", tmp_path / "predicted.csv"
    expected = load_model(tmp_path / "out").predict(table).tolist()
    found = fedpriv("predict", tmp_path / "out", table, "--json").json()
    assert found["prediction"] == expected == result.model.predict(table).tolist()
    assert min(found["probability"]) >= 0.5
    printed = fedpriv("predict", tmp_path / "out" / "model.npz", table).out
    assert fedpriv("predict", tmp_path / "out", table, "--out", out).out.startswith(
        "400 predictions"
    )
    assert out.read_text() == printed
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["prediction"] for row in rows] == expected


def test_the_command_refuses_in_one_message(fedpriv: Callable[..., Any], tmp_path: Path) -> None:
    done = fedpriv("predict", tmp_path, tmp_path / "clinic.csv")
    assert (done.code, "cannot be read" in done.message) == (2, True)


def test_a_convolutional_network_predicts_after_it_was_read_back() -> None:
    study = {
        "data": {"name": "digits", "partition": "iid", "parties": 3, "intercept": 0},
        "model": {"name": "cnn"},
        "strategy": {"name": "gradient-perturbation", "rounds": 1, "learning_rate": 0.5},
    }
    result = fedpriv.run(study)
    again = fedpriv.load_model(result.directory)
    images = np.linspace(0, 1, 3 * 64, dtype=np.float32).reshape(3, 64)
    assert (again.scores(images) == result.model.scores(images)).all()
    assert again.scores(images).shape == (3, 10)


OWN_MODULE = """
from torch import nn

class Frozen(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.encoder = nn.Linear(features, 4).requires_grad_(False)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.encoder(x).tanh())
"""


def test_a_module_of_ones_own_is_read_back_by_those_who_trust_it_and_as_it_was(
    tmp_path: Path,
) -> None:
    """Its frozen weights, which are in no file, follow from the seed of the run."""
    (tmp_path / "own.py").write_text(OWN_MODULE)
    study = {
        "data": {"name": "synthetic"},
        "model": {"name": f"{tmp_path / 'own.py'}:Frozen"},
        "strategy": {"name": "gradient-perturbation", "rounds": 1, "learning_rate": 0.5},
        "run": {"seed": 5},
    }
    result = fedpriv.run(study)
    with pytest.raises(ValueError, match="own_code = True"):
        fedpriv.load_model(result.directory)
    again = fedpriv.load_model(result.directory, own_code=True)
    rows = np.eye(10, dtype=np.float32)
    assert (again.scores(rows) == result.model.scores(rows)).all()
    (tmp_path / "own.py").write_text(OWN_MODULE + "# another version\n")
    with pytest.raises(ValueError, match="sha256"):
        fedpriv.load_model(result.directory, own_code=True)


def test_the_command_runs_code_of_ones_own_only_if_it_is_told_to(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    from fedpriv import run

    (tmp_path / "own.py").write_text(OWN_MODULE)
    study = clinic(tmp_path)
    study["model"] = {"name": f"{tmp_path / 'own.py'}:Frozen"}
    study["strategy"] = {"name": "gradient-perturbation", "rounds": 1, "learning_rate": 0.5}
    result = run(study, out=tmp_path / "out")
    asked = "predict", tmp_path / "out", tmp_path / "clinic.csv", "--json"
    refused = fedpriv(*asked)
    assert (refused.code, "--own-code" in refused.message) == (2, True)
    expected = result.model.predict(tmp_path / "clinic.csv").tolist()
    assert fedpriv(*asked, "--own-code").json()["prediction"] == expected
