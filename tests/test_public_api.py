"""The public API: pinned names and signatures, light to import, each with an example."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import fedpriv

HEAVY = ("torch", "ray", "flwr", "scipy", "pandas", "matplotlib", "numba", "pyarrow")

SIGNATURES = {
    "account": "(*, noise_multiplier: 'float | Sequence[float]', delta: 'float', "
    "adjacency: 'Adjacency | str', rounds: 'int | None' = None, sampling_rate: 'float' = 1.0, "
    "mechanism: 'str' = 'gaussian', accountant: 'str' = 'auto') -> 'Report'",
    "account_all": "(*, noise_multiplier: 'float | Sequence[float]', delta: 'float', "
    "adjacency: 'Adjacency | str', rounds: 'int | None' = None, sampling_rate: 'float' = 1.0, "
    "mechanism: 'str' = 'gaussian') -> 'list[Report]'",
    "calibrate": "(*, epsilon: 'float', delta: 'float', rounds: 'int', "
    "sampling_rate: 'float' = 1.0, adjacency: 'Adjacency | str', mechanism: 'str' = 'gaussian', "
    "shape: 'Sequence[float] | None' = None, accountant: 'str' = 'auto', "
    "unit: 'Unit | str' = <Unit.RECORD: 'record'>, parts: 'int' = 1) -> 'Calibration'",
    "compare": "(experiment: 'Source', /, *, out: 'str | Path | None' = None, "
    "workers: 'int | None' = None, **tables: 'Any') -> 'Comparison'",
    "fit": "(experiment: 'Source', /, *, out: 'str | Path | None' = None, "
    "release: 'bool' = False, ledger: 'str | Path | None' = None, new_ledger: 'bool' = False, "
    "**tables: 'Any') -> 'Result'",
    "describe": "(experiment: 'Source', /, *, out: 'str | Path | None' = None, "
    "release: 'bool' = False, ledger: 'str | Path | None' = None, new_ledger: 'bool' = False, "
    "**tables: 'Any') -> 'Statistics'",
    "load_model": "(source: 'str | Path', *, own_code: 'bool' = False) -> 'FittedModel'",
    "run": "(experiment: 'Source', /, *, out: 'str | Path | None' = None, "
    "release: 'bool' = False, ledger: 'str | Path | None' = None, new_ledger: 'bool' = False, "
    "trackers: 'Sequence[Tracker]' = (), **tables: 'Any') -> 'Result'",
}

MEMBERS = {
    "Comparison": {
        "directory", "experiment", "findings", "page", "plot", "report", "rows", "save", "to_frame",
    },
    "FittedModel": {
        "classes", "columns", "features", "file", "has_probabilities", "predict", "predict_proba",
        "scores",
    },
    "Result": {
        "adjacency", "coefficients", "delta", "directory", "epsilon", "history", "load", "metrics",
        "model", "own_code", "page", "plot", "save", "statement", "summary", "to_frame", "unit",
    },
    "Statistics": {"columns", "epsilon", "plot", "statement", "statistics", "summary", "to_frame"},
}  # fmt: skip

OTHERS = {
    "Budget", "Ledger", "Plan", "Query", "Sum", "SumStrategy", "Task", "VectorizedFederation",
    "__version__",
}  # fmt: skip


def test_the_names_are_pinned() -> None:
    assert set(fedpriv.__all__) == {*SIGNATURES, *MEMBERS, *OTHERS}
    assert set(fedpriv.__all__) <= set(dir(fedpriv))


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_pinned(name: str) -> None:
    assert str(inspect.signature(getattr(fedpriv, name))) == SIGNATURES[name]


@pytest.mark.parametrize("name", MEMBERS)
def test_the_members_of_a_result_are_pinned(name: str) -> None:
    kind: Any = getattr(fedpriv, name)
    public = {member for member in dir(kind) if not member.startswith("_")}
    assert public | set(kind.__dataclass_fields__) == MEMBERS[name]


@pytest.mark.parametrize("name", sorted(set(fedpriv.__all__) - {"__version__"}))
def test_a_name_is_documented_with_an_example(name: str) -> None:
    documented = inspect.getdoc(getattr(fedpriv, name)) or ""
    assert ">>>" in documented


def test_no_name_hides_a_subpackage() -> None:
    modules = {module.name for module in pkgutil.iter_modules(fedpriv.__path__)}
    assert {"simulations", "strategies", "privacy"} <= modules
    assert not modules & set(fedpriv.__all__)


def test_a_name_that_is_not_there_is_the_usual_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'fedpriv' has no attribute 'epsilon'"):
        _ = fedpriv.epsilon  # type: ignore[attr-defined]


IMPORT = "import fedpriv; fedpriv.__version__; dir(fedpriv)"
HELP = """
import sys
from fedpriv.simulations.cli import main
sys.argv = ["fedpriv", "--help"]
try:
    main()
except SystemExit:
    pass
"""


@pytest.mark.parametrize("program", [IMPORT, HELP], ids=["import", "--help"])
def test_nothing_heavy_is_loaded_before_it_is_used(program: str) -> None:
    shown = f"{program}\nimport sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"
