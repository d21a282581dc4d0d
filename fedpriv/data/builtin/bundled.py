"""Data sets that come with scikit-learn: `breast_cancer` and `digits`, scaled by public bounds."""

from __future__ import annotations

from math import sqrt

import numpy as np

from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.builtin.digits import digit_dataset
from fedpriv.data.dataset import Dataset, Records, no_records, signs
from fedpriv.data.errors import import_optional

# Upper ends of the ranges, rounded up from the table of ranges in the published description of the
# data; the lower ends are 0. Ten measurements of a cell nucleus: radius, texture, perimeter, area,
# smoothness, compactness, concavity, concave points, symmetry, fractal dimension.
_BREAST_CANCER_HIGH = (
    *(30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1),  # means
    *(3, 5, 25, 600, 0.04, 0.15, 0.4, 0.06, 0.1, 0.03),  # standard errors
    *(40, 50, 260, 4500, 0.25, 1.2, 1.3, 0.3, 0.7, 0.25),  # worst
)


def breast_cancer() -> Dataset:
    """569 biopsies, 30 measurements; +1 is malignant. No split of its own: see `hold_out`."""
    source = import_optional("sklearn.datasets", extra="data").load_breast_cancer()
    X = to_unit_interval(source.data, 0.0, np.array(_BREAST_CANCER_HIGH))
    return Dataset(
        name="breast_cancer",
        task="binary",
        train=Records(X=X.astype(np.float32), y=signs(source.target == 0)),
        test=no_records(X.shape[1], "binary"),
        feature_names=tuple(str(name) for name in source.feature_names),
        max_norm=sqrt(X.shape[1]),
        classes=("benign", "malignant"),
    )


def digits(variant: str) -> Dataset:
    """1,797 images of 8 × 8 pixels with values 0 to 16. No split of its own: see `hold_out`."""
    source = import_optional("sklearn.datasets", extra="data").load_digits()
    return digit_dataset(
        "digits",
        variant,
        train=(source.data, source.target),
        test=(source.data[:0], source.target[:0]),
        white=16,
    )
