"""A data set of the user's own, from a function in a file: for simulations.

The function's result is taken as it is: no schema separates the records from their public facts, so
scale, classes and parties may all depend on the records. A release refuses it and requires a table
with a schema instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpriv.data import Dataset, Persons, Records, Task
from fedpriv.data.dataset import no_records, signs
from fedpriv.simulations.experiment.named_files import guests

_KEYS = ("X", "y", "party", "person", "max_norm")


def own_data(reference: str, pin: str | None) -> Dataset:
    """Call the function that ``reference`` names; a Dataset, or arrays to make one of.

    Args:
        reference: ``file.py:Name``, or an entry point.
        pin: The hash that the experiment states for its code.
    """
    guest = guests.load("data", reference, guests.as_pins("data", reference, pin) if pin else {})
    if not callable(guest.value):
        raise ValueError(f"{guest.title!r} must be a function, got {guest.value!r}.")
    with guest.blamed():
        made: Any = guest.value()
    if isinstance(made, Dataset):
        return made
    if not isinstance(made, Mapping) or not {"X", "y"} <= set(made) <= set(_KEYS):
        raise ValueError(
            f"{guest.title!r} must return a Dataset of fedpriv.data, or a dictionary with X, y "
            f"and, where there are, party, person and max_norm; got {type(made).__name__}."
        )
    return _dataset(guest.title, made)


def _dataset(name: str, arrays: Mapping[str, Any]) -> Dataset:
    """Two labels are a binary task, the larger of them +1; other integers classes, else numbers."""
    X, y = np.asarray(arrays["X"], np.float32), np.asarray(arrays["y"])
    labels = np.unique(y)
    task: Task
    holders, party = (
        np.unique(arrays["party"], return_inverse=True) if "party" in arrays else ((), None)
    )
    person = Persons.of(arrays["person"]) if "person" in arrays else None
    if len(labels) == 2:
        task, values, classes = "binary", signs(y == labels[1]), tuple(map(str, labels))
    elif y.dtype.kind in "iu":
        values = np.searchsorted(labels, y).astype(np.int64)
        task, classes = "multiclass", tuple(map(str, labels))
    else:
        task, values, classes = "regression", y.astype(np.float32), ()
    longest = float(np.linalg.norm(X.astype(np.float64), axis=1).max(initial=0.0)) or 1.0
    return Dataset(
        name=name,
        task=task,
        train=Records(X=X, y=values, party=party, person=person),
        test=no_records(X.shape[1], task),
        feature_names=tuple(f"x{i}" for i in range(X.shape[1])),
        max_norm=float(arrays.get("max_norm", longest)),
        party_names=tuple(map(str, holders)),
        classes=classes,
    )
