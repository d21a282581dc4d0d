"""Preprocessing: from a raw table to the bounded features that a model is trained with.

Training and prediction share one path: `read_table` and `bound` for training, `Preprocessing` for
prediction, over the same functions. All its constants come from the schema and the experiment,
never from a record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_positive
from fedpriv.data.bounds import Bounds, enforce
from fedpriv.data.errors import DataError
from fedpriv.data.tables.readers import table_source
from fedpriv.data.tables.table import encode_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data.dataset import Dataset, Records
    from fedpriv.data.tables.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """How a raw table becomes features: clamp and fill, scale, intercept, norm bound.

    Guarantee. A row becomes the same float32 numbers as in training, to the bit, whatever other
    rows there are.

    Attributes:
        feature_names: The scaled features in order, without the intercept.
        max_norm: The public bound on the norm of scaled features, before ``bounds``.
        bounds: The norm bound and the intercept.
        schema: The rules by which columns are scaled; None for a built-in data set, whose features
            come scaled.
    """

    feature_names: tuple[str, ...]
    max_norm: float
    bounds: Bounds
    schema: Schema | None = None

    def __post_init__(self) -> None:
        require_positive(max_norm=self.max_norm)
        if self.schema is not None and self.schema.feature_names != self.feature_names:
            raise ValueError("feature_names must be those of the schema, in its order.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a raw table must have."""
        return self.feature_names if self.schema is None else tuple(self.schema.features)

    def features(self, table: Any) -> NDArray[np.float32]:
        """The features of every row.

        Args:
            table: A DataFrame, an Arrow table, a mapping of columns, or the path of a CSV or
                Parquet file, with `columns` among its columns; or an array of scaled features,
                (n, d) in the order of ``feature_names``.

        Raises:
            DataError: If a value breaks a rule of the schema; it names the column and the row.
        """
        return self.bounded(self._scaled(table))

    def bounded(self, scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scaled features with the intercept appended and their norm bounded."""
        return enforce(scaled, self.bounds, max_norm=self.max_norm)

    def _scaled(self, table: Any) -> NDArray[np.float32]:
        if isinstance(table, np.ndarray):
            return self._array(table)
        if self.schema is not None:
            return encode_features(table, self.schema)
        source = table_source(table, dict.fromkeys(self.feature_names, "a feature"))
        X = np.empty((source.rows, len(self.feature_names)), np.float32)
        for place, name in enumerate(self.feature_names):
            values = source.numbers(name)
            wrong = ~np.isfinite(values)
            if wrong.any():
                raise DataError(
                    f"{source.file}, column {name!r}: row {wrong.argmax() + 1} does not hold a "
                    "finite number."
                )
            X[:, place] = values
        return X

    def _array(self, array: NDArray[Any]) -> NDArray[np.float32]:
        wide = len(self.feature_names)
        if array.ndim != 2 or array.shape[1] != wide or array.dtype.kind not in "iufb":
            raise DataError(
                f"an array of scaled features must hold numbers, records × {wide} features, got "
                f"{array.dtype} of shape {array.shape}. The intercept is appended here."
            )
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            return array.astype(np.float32)


def bound(dataset: Dataset, bounds: Bounds) -> Dataset:
    """The data set with `enforce` applied to its training and test records alike."""
    path = Preprocessing(
        feature_names=dataset.feature_names,
        max_norm=dataset.max_norm,
        bounds=bounds,
        schema=dataset.schema,
    )

    def apply(records: Records) -> Records:
        return replace(records, X=path.bounded(records.X))

    extra = ("intercept",) if bounds.intercept else ()
    return replace(
        dataset,
        train=apply(dataset.train),
        test=apply(dataset.test),
        feature_names=(*dataset.feature_names, *extra),
        max_norm=bounds.norm,
        preprocessing=path,
    )
