"""Crafted records as a table of an experiment, as if read from a file.

They enter after the table is read. Bounds, test split and parties are the experiment's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import Persons, Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data import Dataset
    from fedpriv.simulations.run.prepare import Prepared

_LONG = 1e4  # of a raw row, in units of the intercept and of B: bounds then leave no intercept


def crafted(
    own: Prepared,
    rows: NDArray[np.float64],
    positive: NDArray[np.bool_],
    held: NDArray[np.int64],
    *,
    persons: list[str] | None = None,
) -> Dataset:
    """Raw rows in the place of an experiment's records.

    Args:
        own: The experiment, of which public facts are used alone.
        rows: As `raw_rows` makes them.
        positive: Which of two labels each has.
        held: The party of each, where parties are not drawn by hash.
        persons: Whose each is, for the person unit of privacy.
    """
    source = own.data.dataset
    hashed = own.experiment.data.partition == "hashed"
    records = Records(
        X=rows.astype(np.float32),
        y=_labels(own, positive),
        party=None if hashed else held,
        person=None if persons is None else Persons.of(persons),
    )
    path = source.preprocessing
    return replace(
        source,
        train=records,
        test=records.take(slice(0, 0)),
        feature_names=source.feature_names[: rows.shape[1]],
        max_norm=source.max_norm if path is None else path.max_norm,
        party_names=() if hashed else tuple(map(str, range(own.task.parties))),
        preprocessing=None,
    )


def raw_rows(own: Prepared, rows: NDArray[np.float64], mark: int = 0) -> NDArray[np.float64]:
    """Rows that the bounds of the experiment turn into ``rows``, times B, and an intercept.

    The ``mark`` changes the last digits of a long one, and with them its hash.
    """
    section, path = own.experiment.data, own.data.dataset.preprocessing
    norm, constant = section.feature_norm, abs(section.intercept)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if section.scaling == "divide" and path is not None:
        short = lengths * float(np.hypot(path.max_norm, constant))
    elif constant >= norm:  # every row is scaled to B: the proportions decide
        short = constant * lengths / np.sqrt(np.maximum(1 - lengths**2, 1 / _LONG**2))
    else:
        short = norm * lengths
    long = _LONG * max(norm, constant, 1.0) * (1 + mark / 1000)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = np.where(lengths > 0, rows / lengths, 0.0)
    return unit * np.where(lengths > 1 - 1e-9, long, short)


def _labels(own: Prepared, positive: NDArray[np.bool_]) -> Any:
    if own.data.dataset.task == "multiclass":
        return positive.astype(np.int64)
    return np.where(positive, np.float32(1), np.float32(-1))
