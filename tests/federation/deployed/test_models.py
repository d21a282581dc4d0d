"""Models at a party: data, in its own folder, of the digest that was signed, and nothing else."""

from __future__ import annotations

import io
import pickle
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed import models
from fedpriv.federation.deployed.models import keep_model
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.statement.signed import SignedStatement, read_signed
from tests.federation.deployed.statement_scenes import RUN, Scene

if TYPE_CHECKING:
    from pathlib import Path

SCENE = Scene.make()


def packed(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def about(model: bytes) -> SignedStatement:
    return SCENE.signed({**SCENE.document(), "model": sha256(model).hexdigest()})


def test_a_model_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    model = packed(theta=np.arange(4.0), task="binary")
    signed = about(model)
    for _ in range(2):  # a repeated errand has the same end
        assert keep_model(tmp_path / "models", RUN, signed, model) == sha256(model).digest()
    place = tmp_path / "models" / RUN
    assert (place / "model.npz").read_bytes() == model
    assert read_signed((place / "statement.signed.json").read_bytes()) == signed
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert modes == {"model.npz": 0o600, "statement.signed.json": 0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_models_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run could hand over one, however little it had cost."""
    model = packed(theta=np.arange(4.0))
    signed = about(model)
    keep_model(tmp_path, "a-run", signed, model)
    taken = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    for limit, value in (("_MOST_BYTES", 2 * taken - 1), ("_MOST_RUNS", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(models, limit, value)
            with pytest.raises(QueryRefused, match="keeps 1 models already"):
                keep_model(tmp_path, "another-run", signed, model)
            assert not (tmp_path / "another-run").exists()
            keep_model(tmp_path, "a-run", signed, model)  # a newer statement of one that is there
    monkeypatch.setattr(models, "_MOST_BYTES", 2 * taken)  # statements count, too
    keep_model(tmp_path, "another-run", signed, model)


def test_another_model_is_refused(tmp_path: Path) -> None:
    model, other = packed(theta=np.arange(4.0)), packed(theta=np.arange(5.0))
    with pytest.raises(QueryRefused, match="not the one that the statement names"):
        keep_model(tmp_path, RUN, about(model), other)
    keep_model(tmp_path, RUN, about(model), model)
    with pytest.raises(QueryRefused, match="another model of this run"):
        keep_model(tmp_path, RUN, about(other), other)
    assert (tmp_path / RUN / "model.npz").read_bytes() == model


@pytest.mark.parametrize(
    "run", ["../up", "a/b", "/etc", "..", ".", "", "A", "a b", "a\n", "a\0", "x" * 201]
)
def test_a_name_that_leads_elsewhere_is_refused(run: str, tmp_path: Path) -> None:
    model = packed(theta=np.arange(4.0))
    with pytest.raises(QueryRefused, match="name of the run"):
        keep_model(tmp_path / "models", run, about(model), model)
    assert not list(tmp_path.iterdir())


class Bomb:
    """Who unpickles this runs code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a model was unpickled",))


def _compressed() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, theta=np.zeros(1_000_000))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "model",
    [
        b"",
        b"not a file of arrays",
        pickle.dumps(Bomb()),
        packed(theta=np.array([Bomb()], dtype=object)),
        _compressed(),
        packed(**{f"a{index}": 0 for index in range(65)}),
        packed(theta=np.arange(4.0))[:-30],
    ],
    ids=["empty", "text", "pickle", "objects", "compressed", "many", "cut"],
)
def test_what_is_no_plain_array_is_refused(model: bytes, tmp_path: Path) -> None:
    with pytest.raises(QueryRefused, match="plain arrays"):
        keep_model(tmp_path / "models", RUN, about(model), model)
    assert not list(tmp_path.iterdir())
