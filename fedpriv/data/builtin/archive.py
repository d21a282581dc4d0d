"""Data sets kept in a folder of ``.npz`` files, named by the environment variable FEDPRIV_DATA.

Each file is checked against the SHA-256 recorded here, so that a result names its exact data.
The files of `adult` and `kddcup99` hold columns divided by their maximum in the original
distribution, as the literature does: those maxima are taken to be public constants.
"""

from __future__ import annotations

import os
from hashlib import sha256
from io import BytesIO
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.builtin.digits import digit_dataset
from fedpriv.data.dataset import Dataset, Records, signs
from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

VARIABLE = "FEDPRIV_DATA"

_SHA256 = {
    "acs_income": "6b05e713e2a6b97f835ac9067f9f3af1262518b0daae15080c94ba2e096405f3",
    "adult": "12f77797a8d75aada2ebe7d53aec586f14a8b98053acb0da99bdfe1dfdde5ed0",
    "heart_disease": "acf293d2d170949a479812e06a8809038c491174f1c6176d3c07fb3e8a06b541",
    "kddcup99": "065f72dc91d3f0a4a927dd9a8d22ce4cb6a38fb0b6d96efd3f9aa0572023f06f",
    "mnist": "b3997ef8f6237065fa41080854cd59d76aac1ac5b57eea6c98194f3e1223800f",
}

# Round physiological ranges, not fitted to the file: years, mm Hg, mg/dl, beats/min, and mm of
# depression of the ST segment.
_HEART_RANGES = {
    "age": (0.0, 100.0),
    "trestbps": (0.0, 250.0),
    "chol": (0.0, 1000.0),
    "thalach": (0.0, 250.0),
    "oldpeak": (-10.0, 10.0),
}


def acs_income(root: Path | None) -> Dataset:
    """ACS 2018: income above 50,000 dollars; eight states are the natural parties."""
    arrays = _read("acs_income", root)
    return _split_by_mask(
        "acs_income",
        arrays,
        X=arrays["X"],
        party=arrays["party"],
        party_names=arrays["party_names"],
        # Three numbers in [0, 1] and eight one-hot groups.
        max_norm=sqrt(3 + 8),
        classes=("at most 50,000", "above 50,000"),
    )


def heart_disease(root: Path | None) -> Dataset:
    """UCI heart disease, prepared as by FLamby; four hospitals are the natural parties.

    The numbers are scaled from raw units by physiological ranges. Blood pressure and cholesterol
    recorded as 0 mean that they were not measured; they stay at the low end of the range.
    """
    arrays = _read("heart_disease", root)
    names = [str(name) for name in arrays["feature_names"]]
    X = arrays["X"].astype(np.float64)
    for name, (low, high) in _HEART_RANGES.items():
        column = names.index(name)
        X[:, column] = to_unit_interval(X[:, column], low, high)
    return _split_by_mask(
        "heart_disease",
        arrays,
        X=X,
        party=arrays["center"],
        party_names=arrays["center_names"],
        # Five numbers in [−1, 1], three in {0, 1}, two one-hot groups.
        max_norm=sqrt(5 + 3 + 2),
        classes=("no disease", "disease"),
    )


def adult(variant: str, root: Path | None) -> Dataset:
    """UCI Adult: income above 50,000 dollars. Variant ``workclass``: seven natural parties.

    Split by class of work, the columns that spell it out are dropped: within a party they are
    constant, and would tell the model which party a record came from.
    """
    if variant not in ("", "workclass"):
        raise DataError(f"adult has one variant, 'adult:workclass'; got {variant!r}.")
    arrays = _read("adult", root)
    names = arrays["feature_names"]
    kept = np.full(len(names), True)
    if variant:
        kept = ~np.char.startswith(names, "workclass_")

    def records(part: str) -> Records:
        party = arrays[f"party_{part}"] if variant else None
        return Records(X=arrays[f"X_{part}"][:, kept], y=signs(arrays[f"y_{part}"]), party=party)

    return Dataset(
        name="adult:workclass" if variant else "adult",
        task="binary",
        train=records("train"),
        test=records("test"),
        feature_names=_texts(names[kept]),
        # Six numbers in [0, 1] and eight one-hot groups, or seven without the class of work.
        max_norm=sqrt(6 + 8 - bool(variant)),
        party_names=_texts(arrays["party_names"]) if variant else (),
        classes=("at most 50K", "above 50K"),
    )


def kddcup99(root: Path | None) -> Dataset:
    """KDD Cup 1999, the 10 % file sampled: +1 is a normal connection, −1 an attack."""
    arrays = _read("kddcup99", root)
    return Dataset(
        name="kddcup99",
        task="binary",
        train=Records(X=arrays["X_train"], y=signs(arrays["y_train"])),
        test=Records(X=arrays["X_test"], y=signs(arrays["y_test"])),
        feature_names=_texts(arrays["feature_names"]),
        # 38 numbers in [0, 1] and three one-hot groups.
        max_norm=sqrt(38 + 3),
        classes=("attack", "normal"),
    )


def mnist(variant: str, root: Path | None) -> Dataset:
    """MNIST, 28 × 28 pixels, the official split."""
    arrays = _read("mnist", root)
    return digit_dataset(
        "mnist",
        variant,
        train=(arrays["X_train"], arrays["y_train"]),
        test=(arrays["X_test"], arrays["y_test"]),
        white=255,
    )


def _split_by_mask(
    name: str,
    arrays: Arrays,
    *,
    X: NDArray[Any],
    party: NDArray[Any],
    party_names: NDArray[Any],
    max_norm: float,
    classes: tuple[str, str],
) -> Dataset:
    everything = Records(X=X.astype(np.float32), y=signs(arrays["y"]), party=party)
    return Dataset(
        name=name,
        task="binary",
        train=everything.take(arrays["is_train"]),
        test=everything.take(~arrays["is_train"]),
        feature_names=_texts(arrays["feature_names"]),
        max_norm=max_norm,
        party_names=_texts(party_names),
        classes=classes,
    )


def _read(name: str, root: Path | None) -> Arrays:
    folder = root or os.environ.get(VARIABLE)
    if not folder:
        raise DataError(
            f"{name} is not bundled: set the environment variable {VARIABLE} to the folder that "
            f"holds {name}.npz, or pass root."
        )
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise DataError(f"{path} does not exist: {VARIABLE}, or root, must name its folder.")
    content = path.read_bytes()
    digest = sha256(content).hexdigest()
    if digest != _SHA256[name]:
        raise DataError(
            f"{path} is not the {name} this version knows: its SHA-256 begins {digest[:12]}, "
            f"expected {_SHA256[name][:12]}. Fetch the file again."
        )
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _texts(names: NDArray[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in names)
