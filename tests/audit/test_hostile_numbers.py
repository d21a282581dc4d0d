"""Hostile numbers of records: what one more of them does where a declared number ends.

Numbers of records are private under add-remove adjacency, and may be beyond all that is declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.one_by_one import sum_one_by_one
from fedpriv.learning.losses import HuberHinge, Logistic, Loss
from fedpriv.learning.models import LinearModel, MlpModel, Model
from tests.audit.examination import difference
from tests.audit.neighbours import GRADIENTS
from tests.audit.wide_networks import Wide

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Row

HIDDEN = 5


def _at_kinks(columns: int) -> NDArray[np.float32]:
    """A record at kinks of the first network: active in float32 and not in float64, or not so."""
    model = MlpModel(widths=(columns, HIDDEN, 1), activation="relu")
    first = model.initial(np.random.default_rng(0)).double()
    wide = first[: HIDDEN * columns].view(HIDDEN, -1)
    null = np.linalg.svd(wide.numpy())[2][HIDDEN:]
    drawn = np.random.default_rng(0).normal(size=(500, len(null))) @ null
    drawn = (drawn / np.abs(drawn).max(1, keepdims=True) / 1.01).astype(np.float32)

    def flips(x: NDArray[np.float32]) -> int:
        narrow = (wide.float() @ torch.tensor(x).repeat(192, 1).T).T[0] > 0
        return int((narrow != (wide @ torch.tensor(x).double() > 0)).sum())

    found: NDArray[np.float32] = max(drawn, key=flips)
    assert flips(found) > 0
    return found


@pytest.mark.parametrize(
    "strategy",
    [
        {**GRADIENTS, "rounds": 1, "learning_rate": 0.1},
        {"name": "adaptive-clipping", "rounds": 1, "learning_rate": 0.1, "clip": 0.3},
    ],
    ids=lambda strategy: strategy["name"],
)
def test_one_record_more_changes_the_precision_of_no_other(
    strategy: dict[str, Any], laboratory: Laboratory, tmp_path: Path
) -> None:
    """Beyond twice the declared number all gradients were of float64: a sum moved by 41 C."""
    declared = 20
    case = Wide(
        name="more",
        strategy=strategy,
        adjacency="add-remove",
        model={"name": "mlp", "hidden": [HIDDEN], "activation": "relu"},
        data={
            "test_fraction": 0.0,
            "intercept": 0.0,
            "feature_norm": 8.0,
            "records": [declared] * 7,
        },
    )
    values = enumerate(_at_kinks(case.columns))
    row: Row = {f"x{i:02}": repr(float(value)) for i, value in values} | {"y": "1"}
    sizes = dict.fromkeys("abcdefg", 5) | {"a": 2 * declared}
    rows = [{**row, "p": party} for party, size in sizes.items() for _ in range(size)]
    one = laboratory.run(case, [rows[0], *rows], tmp_path / "one")
    assert one.code == 0, one.said
    other = laboratory.run(case, rows, tmp_path / "other", script=one)
    assert difference(case, one, other) == []


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (LinearModel(width=6), Logistic()),
        (LinearModel(width=6), HuberHinge(smoothing=0.01)),
        (MlpModel(widths=(6, 4, 1), activation="relu"), Logistic()),
    ],
)
def test_sums_one_by_one_are_those_of_blocks_up_to_rounding(model: Model, loss: Loss) -> None:
    """A record that cannot be used adds nothing to either."""
    rng = np.random.default_rng(1)
    features = torch.tensor(rng.normal(size=(700, 6)), dtype=torch.float32)
    features[400:500] = torch.inf
    labels = torch.tensor(rng.choice([-1.0, 1.0], size=700), dtype=torch.float32)
    batch = RecordBatch(features=features, labels=labels, offsets=torch.tensor([0, 300, 700]))
    theta = torch.tensor(rng.normal(size=model.dimension), dtype=torch.float32)
    clipping = Clipping(clip_norm=0.5)
    blocks = clipped_gradient_sums(model, loss, theta, batch, clipping).value.numpy()
    total = sum_one_by_one(model, loss, theta, batch, clipping, party=1)
    assert np.linalg.norm(total) > 1
    assert np.linalg.norm(total - blocks[1]) < 400 * 0.5 * 130 * 2.0**-24
