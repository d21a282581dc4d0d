"""What is installed: one name, `fedpriv`, with its data, whatever folders lie beside a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
import sys
import fedpriv
assert fedpriv.__file__.startswith(sys.argv[1]), fedpriv.__file__
study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
print(fedpriv.run(study).summary["strategy"])
"""
COMMAND = "from fedpriv.simulations.cli import main; main()"
SETTINGS = ("--set", "data.name=synthetic", "--set", "strategy.name=output-perturbation")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; its build backend is fetched if it is not installed."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "-w", str(folder)]
    done = subprocess.run(
        [*build, str(ROOT)], capture_output=True, text=True, check=False, timeout=300
    )
    if "hatchling" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("hatchling is neither installed nor to be had")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with a user's own `strategies` and `simulations`, which must never be imported."""
    for name in ("strategies", "simulations"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return tmp_path


def works(folder: Path, home: Path, **environment: str) -> None:
    """The function and the command run in ``folder``, by the fedpriv in ``home``."""
    for command, said in (
        ([PROGRAM, str(home)], "output-perturbation"),
        ([COMMAND, "run", "quickstart", *SETTINGS, "--out", "out"], "results: out"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=folder,
            env={**os.environ, **environment},
        )
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [said]), done.stderr


def test_a_wheel_has_one_name_and_all_its_data(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fedpriv"}
    experiments = {f"fedpriv/{p.relative_to(ROOT)}" for p in ROOT.glob("simulations/experiments/*")}
    protectors = {f"fedpriv/{p.relative_to(ROOT)}" for p in ROOT.glob("strategies/protectors/*")}
    pages = {f"fedpriv/{p.relative_to(ROOT)}" for p in ROOT.glob("simulations/report/page/*")}
    assert experiments
    assert protectors
    assert {name.rsplit(".", 1)[1] for name in pages} == {"html", "css", "js"}
    code = {"fedpriv/strategies/__init__.py", "fedpriv/simulations/cli.py"}
    assert experiments | protectors | pages | code | {"fedpriv/py.typed"} <= names


@pytest.mark.deep
def test_an_editable_install_works_beside_folders_of_the_same_names(planted: Path) -> None:
    works(planted, ROOT)


@pytest.mark.skipif("FEDPRIV_STRESS" not in os.environ, reason="FEDPRIV_STRESS=1 installs a wheel")
def test_a_wheel_works_beside_folders_of_the_same_names(
    wheel: Path, planted: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target"]
    subprocess.run(
        [*install, str(target), str(wheel)], capture_output=True, check=True, timeout=300
    )
    works(planted, target, PYTHONPATH=str(target))
