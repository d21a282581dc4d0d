"""Magnitudes: columns of numbers without bounds, as cells between powers of two.

For owners without public bounds, who pay for a noisy look at the range of the numbers. The cells
are the same for every table, with edges (−2⁴⁰, …, −2⁻¹⁰, 2⁻¹⁰, …, 2⁴⁰) and one open cell at either
end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.tables.columns import ColumnFacts, coded
from fedpriv.data.tables.readers import read_source
from fedpriv.data.tables.table_reader import TableReader

if TYPE_CHECKING:
    from fedpriv.data.dataset import Dataset
    from fedpriv.data.tables.schema import Schema

_POWERS = tuple(2.0**k for k in range(-10, 41))
EDGES = (*(-power for power in reversed(_POWERS)), *_POWERS)
"""The inner edges of the cells, ascending."""


def magnitude_facts(names: tuple[str, ...]) -> tuple[ColumnFacts, ...]:
    """The columns as categories, with a value per cell."""
    below = tuple(f"below {edge:g}" for edge in EDGES)
    return tuple(ColumnFacts(name=name, values=(*below, f"from {EDGES[-1]:g}")) for name in names)


def read_magnitudes(
    path: str | Path,
    schema: Schema,
    names: tuple[str, ...],
    *,
    empty: bool = False,
    tested: bool = True,
) -> Dataset:
    """Read columns of numbers as cell indices; party and person come from the schema.

    As in `read_columns`, ``tested=False`` leaves out records that are set apart for testing.
    """
    path, columns = Path(path), magnitude_facts(names)
    others = {
        name: key for name, key in schema.named.items() if key in ("party", "person", "test_column")
    }
    source = read_source(
        path,
        {**dict.fromkeys(names, "--suggest-bounds"), **others},
        delimiter=schema.delimiter,
        missing_values=schema.missing_values,
        empty=empty,
    )
    X = np.empty((source.rows, len(names)), np.float32)
    for place, name in enumerate(names):
        values = source.numbers(name)
        codes = np.searchsorted(EDGES, values, side="right")
        codes[np.isnan(values)] = columns[place].codes - 1
        X[:, place] = codes
    return coded(path, schema, TableReader(schema, source), columns, X, tested=tested)
