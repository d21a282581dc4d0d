"""Hostile orders: where a record stands decides how sums are rounded, and so how far they move.

A sensitivity for records that stay in place counts the rounding of one block of them. It holds only
if an exchanged record really moves no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.data import Records
from fedpriv.data.bounds import Bounds, enforce, to_unit_interval
from fedpriv.data.marks import marks
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare
from tests.audit.neighbours import GRADIENTS, Case, neighbours, table, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.simulations.run.prepare import Prepared

    Rows = NDArray[np.float64]

ONE_BY_HASH = {"partition": "hashed", "parties": 1, "test_fraction": 0.0}


@pytest.mark.parametrize(
    ("data", "fold"),
    [
        ({"test_fraction": 0.0}, False),
        ({}, True),
        (ONE_BY_HASH, False),
        ({"partition": "hashed", "parties": 1}, True),
    ],
    ids=["natural", "natural, a column", "one by hash", "one by hash, a column"],
)
def test_records_that_are_in_place_stay_there(
    data: dict[str, Any], fold: bool, tmp_path: Path
) -> None:
    case = Case(name="places", strategy=GRADIENTS, data=data, fold=fold)
    rows = table("binary")

    def prepared(rows: list[dict[str, str]], folder: Path) -> Prepared:
        write(case, rows, folder)
        return prepare(parse_experiment(case.experiment(folder)))

    one = prepared(rows, tmp_path / "one")
    assert one.task.in_place
    for number, (name, others) in enumerate(neighbours(case, rows)):
        other = prepared(others, tmp_path / str(number))
        here, there = one.data.dataset.train, other.data.dataset.train
        differ = (here.X != there.X).any(axis=1) | (here.y != there.y)
        assert np.count_nonzero(differ) <= 1, name
        assert (one.data.offsets == other.data.offsets).all()


BLOCKS = 400  # of 128 records: the sum of each is rounded by itself
CLIP = 0.5005
SMALL, LARGE = 0.99 * 2.0**-25, 0.5
"""Of 127 small ones after a large one, float32 adds none; before it, it adds all."""


def shifted(folder: Path) -> list[Path]:
    """Two tables that differ in one record, first by its hash in one and last in the other.

    By the hashes of the others, every large one stands between 127 small ones: at the end of a
    block, and if something comes first, at the beginning of the next.
    """
    schema = {
        "label": "y",
        "positive": "1",
        "columns": {
            "a": {"kind": "number", "min": -1, "max": 1},
            "b": {"kind": "number", "min": -1, "max": 1},
            "y": {"kind": "category", "values": ["0", "1"]},
        },
    }
    folder.mkdir()
    (folder / "schema.toml").write_text(to_toml(schema))
    seed = study(folder / "one").seed_of("partition")
    seed = int(np.random.default_rng(seed).integers(1 << 62))
    rng = np.random.default_rng(0)
    small, first = _many(127 * BLOCKS * 3, SMALL, seed, rng)
    large, second = _many(12 * BLOCKS, LARGE, seed, rng)
    rows, place = [], 10  # some places are left in front
    for _ in range(BLOCKS):
        rows.append(small[place : place + 127])
        chosen = np.searchsorted(second, first[place + 126])
        rows.append(large[chosen : chosen + 1])
        place = int(np.searchsorted(first, second[chosen]))
    others = rng.permutation(np.concatenate(rows))  # the order of the file says nothing
    made = []
    for name, value, which in (("one", -1.0, 0), ("other", 1.0, -1)):
        exchanged, _ = _many(200_000, value, seed, rng)
        (folder / name).mkdir()
        lines = np.insert(others, 1000, exchanged[which], axis=0).tolist()
        text = "a,b,y\n" + "".join(f"{a!r},{b!r},1\n" for a, b in lines)
        (folder / name / "table.csv").write_text(text)
        made.append(folder / name)
    return made


def _many(
    count: int, value: float, seed: int, rng: np.random.Generator
) -> tuple[Rows, NDArray[np.uint64]]:
    """Different records with a feature of this value, in the order of their hashes; these."""
    rows = np.column_stack([np.full(count, value), rng.uniform(-1e-5, 1e-5, count)])
    scaled = to_unit_interval(rows, -1.0, 1.0).astype(np.float32)
    X = enforce(scaled, Bounds(norm=2.0, intercept=0.0))
    _, kept = np.unique(X[:, 1], return_index=True)
    ones = np.ones(len(kept), np.float32)
    drawn = marks(Records(X=X[kept], y=ones), purpose="party", seed=seed)
    order = np.argsort(drawn)
    return rows[kept][order], drawn[order]


def study(folder: Path) -> Any:
    return parse_experiment(
        {
            "data": {
                "path": str(folder / "table.csv"),
                "schema": str(folder.parent / "schema.toml"),
                "feature_norm": 2.0,
                "intercept": 0.0,
                **ONE_BY_HASH,
            },
            "model": {"name": "huber-svm", "l2": 0.1},
            "strategy": {"name": "gradient-perturbation", "rounds": 1, "clip": CLIP},
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one"},
        }
    )


def test_a_record_that_is_exchanged_shifts_no_block_of_the_others(tmp_path: Path) -> None:
    """In the order of hashes a sum moved by 1.0024 where the noise was for 1.0020.

    Of 400 blocks; with 16,000 of them by 1.061.
    """
    sums, stated = [], 0.0
    for folder in shifted(tmp_path / "tables"):
        prepared = prepare(study(folder))
        strategy = build_strategy(prepared, run="orders")
        query = strategy.ask()
        assert query is not None
        assert strategy.plan is not None
        (mechanism,) = strategy.plan.mechanisms
        assert isinstance(mechanism, GaussianMechanism)
        stated = mechanism.sensitivity
        sums.append(build_federation(prepared, run="orders").sum(query).value)
    assert 1.99 * CLIP < np.linalg.norm(sums[0] - sums[1]) <= stated
