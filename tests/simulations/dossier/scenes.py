"""Finished runs to make dossiers of: a release, a simulation, a deployed run by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv import __version__
from fedpriv.privacy.statement import to_registry_yaml, to_text
from fedpriv.privacy.statement.signed_files import hash_of
from fedpriv.simulations.run.release_outcome import SIGNED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.federation.deployed.statement_scenes import Scene
    from tests.simulations.conftest import Command

STUDY = """
[data]
name = "synthetic"

[strategy]
name = "gradient-perturbation"
rounds = 3

[privacy]
epsilon = 1.0
delta = 1e-6
"""


def study(folder: Path, text: str = STUDY) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def released(fedpriv: Command, folder: Path, text: str = STUDY) -> Path:
    """The directory of a release, paid for by ``own.ledger`` beside it."""
    book = ("--release", "--new-ledger", "--ledger", folder / "own.ledger")
    done = fedpriv("run", study(folder, text), *book, "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


def simulated(fedpriv: Command, folder: Path, text: str = STUDY) -> Path:
    done = fedpriv("run", study(folder, text), "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


def deployed(scene: Scene, folder: Path, *, version: str = __version__) -> Path:
    """What a deployed run leaves, as far as a dossier reads it; all parties signed."""
    folder.mkdir()
    statement = replace(scene.statement(), version=version)
    model = b"parameters"
    config = b'[data]\nname = "clinics"\nfeature_norm = 1.0\nscaling = "clip"\n'
    document = scene.document()
    document["statement"]["fedpriv"] = version
    document |= {"experiment": hash_of(config), "model": hash_of(model)}
    signed = scene.signed(document)
    result: dict[str, Any] = {
        "run": statement.facts.run,
        "engine": "deployment",
        "simulated": False,
        "fedpriv": statement.version,
        "config_hash": "0f" * 32,
    }
    values = document["statement"]
    for name, data in {
        "config.toml": config,
        "model.npz": model,
        "plan.json": json.dumps(values["plan"]).encode(),
        "result.json": json.dumps(result).encode(),
        "statement.json": json.dumps(values).encode(),
        "statement.txt": to_text(statement).encode(),
        "statement.yaml": to_registry_yaml(statement).encode(),
        SIGNED: signed.to_text().encode(),
    }.items():
        (folder / name).write_bytes(data)
    return folder
