"""A study that runs in a moment: its file, a table for it, and its model."""

from pathlib import Path
from typing import Any

import numpy as np

SHORT = """
[data]
name = "synthetic"

[model]
l2 = 0.01

[strategy]
name = "gradient-perturbation"
rounds = 12
optimiser = "adam"
averaging = "tail"
learning_rate = 0.1

[privacy]
epsilon = 1.0
delta = 1e-6
"""


def theta(directory: Path) -> np.ndarray[Any, Any]:
    with np.load(directory / "model.npz") as arrays:
        return np.array(arrays["theta"])


def write_table(table: Path, schema: Path) -> None:
    schema.write_text(
        'label = "ill"\npositive = "yes"\nparty = "clinic"\n[columns.age]\nkind = "number"\n'
        "min = 0\nmax = 100\n"
    )
    rng = np.random.default_rng(0)
    lines = [
        f"{'north' if i % 3 else 'south'},{age},{'yes' if age > 50 else 'no'}"
        for i, age in enumerate(rng.integers(0, 100, 300))
    ]
    table.write_text("\n".join(["clinic,age,ill", *lines]) + "\n")
