"""What strategies know: sums alone, and no strategy imports what can hold an answer."""

from __future__ import annotations

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv import strategies
from tests.federation.worlds import SilentFederation, build, streams, train
from tests.strategies.every_strategy import ALL, ROUNDS, TASK, WIDTH, federation


@pytest.mark.parametrize("name", ALL)
def test_a_strategy_learns_from_sums_alone(name: str) -> None:
    """The federation of this test cannot give anything else."""
    strategy = build(name, TASK, **ROUNDS.get(name, {}))
    train(strategy, SilentFederation(TASK, sampling=streams(0, "p")))
    assert strategy.name == name
    assert strategy.theta.shape == (WIDTH,)
    assert np.isfinite(strategy.theta).all()


@pytest.mark.parametrize("name", ALL)
def test_no_strategy_holds_more_numbers_than_a_sum_has(name: str) -> None:
    """After a run on real records, nothing that it can reach has a row for every party."""
    strategy = train(build(name, TASK, **ROUNDS.get(name, {})), federation())
    seen: set[int] = set()

    def arrays(value: object) -> list[np.ndarray]:
        if id(value) in seen or inspect.isfunction(value) or inspect.ismodule(value):
            return []
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            return [value]
        parts: list[object] = []
        if isinstance(value, dict):
            parts = list(value.values())
        elif isinstance(value, list | tuple | set):
            parts = list(value)
        elif hasattr(value, "__dict__"):
            parts = list(vars(value).values())
        return [array for part in parts for array in arrays(part)]

    found = arrays(vars(strategy))
    assert found
    shapes: set[Any] = {(WIDTH,), (strategy.width,)}
    if strategy.last_release is not None:  # as published
        shapes.add(strategy.last_release.shape)
    if name == "second-order":  # of its matrix
        shapes.add((WIDTH, WIDTH))
    assert {array.shape for array in found} <= shapes


FOLDER = Path(inspect.getfile(strategies)).parent
# Where the answer of a single party can be found; strategies have no business there.
PARTY_SIDE = {
    "fedpriv.federation.party",
    "fedpriv.federation.deployed",
    "fedpriv.federation.engines",
    "fedpriv.federation.protocol",
    "fedpriv.federation.queries.encoding",
    "fedpriv.data",
    "fedpriv.learning.batch",
    "fedpriv.learning.clipping.clipped_sum",
    "fedpriv.learning.erm.solver",
    "fedpriv.learning.training.trainer",
}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_no_strategy_imports_what_can_hold_an_answer(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert not [name for name in imported if on_party_side(name)]


def on_party_side(module: str) -> bool:
    return any(module == side or module.startswith(f"{side}.") for side in PARTY_SIDE)


def test_the_import_check_has_teeth() -> None:
    assert all(find_spec(side) for side in PARTY_SIDE)
    assert on_party_side("fedpriv.federation.party.answers")
    assert on_party_side("fedpriv.federation.party")
    assert not on_party_side("fedpriv.federation.queries.kinds")
