"""Records and data sets: read-only arrays with what is publicly known about them.

A record is one row (x, y); a person may have several. The repr of these objects shows only sizes
and public names, so one that ends up in a log reveals no record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv._validate import require_choice, require_positive
from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fedpriv.data.persons import Persons
    from fedpriv.data.preprocessing import Preprocessing
    from fedpriv.data.tables.load_report import LoadReport
    from fedpriv.data.tables.schema import Schema

Task = Literal["binary", "multiclass", "regression"]
TASKS: tuple[Task, ...] = ("binary", "multiclass", "regression")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Records:
    """Features, labels and, where known, the party that holds each record, and its person.

    The arrays are read-only and C-contiguous: ``X`` float32 (n, d); ``y`` (n,), int64 for classes
    and float32 otherwise; ``party`` int32 (n,), an index. Every number is finite. Two objects are
    equal only if they are the same object.
    """

    X: NDArray[np.float32]
    y: NDArray[np.float32] | NDArray[np.int64]
    party: NDArray[np.integer[Any]] | None = None
    person: Persons | None = None

    def __post_init__(self) -> None:
        y = np.asarray(self.y)
        label_type = np.int64 if y.dtype.kind in "iu" else np.float32
        object.__setattr__(self, "X", _read_only(self.X, np.float32))
        object.__setattr__(self, "y", _read_only(y, label_type))
        if self.party is not None:
            object.__setattr__(self, "party", _read_only(self.party, np.int32))
        if self.X.ndim != 2:
            raise DataError(f"X must have 2 dimensions, records × features; got {self.X.ndim}.")
        for name, array in (("y", self.y), ("party", self.party)):
            if array is not None and array.shape != (len(self),):
                raise DataError(
                    f"{name} must hold one entry for each of the {len(self)} records, "
                    f"got shape {array.shape}."
                )
        if self.person is not None and len(self.person) != len(self):
            raise DataError(
                f"person must name one for each of the {len(self)} records, got {len(self.person)}."
            )
        if self.person is not None:
            object.__setattr__(self, "person", replace(self.person))  # read-only, too
        if not (_finite(self.X) and _finite(self.y)):
            raise DataError("X and y must be finite; at least one entry is NaN or infinite.")

    @classmethod
    def mapped(
        cls,
        *,
        X: NDArray[np.float32],
        y: NDArray[np.float32] | NDArray[np.int64],
        party: NDArray[np.integer[Any]] | None,
        person: Persons | None,
    ) -> Records:
        """Records that lie on a disk, of the types above, checked when they were written.

        They are not read here and so not checked again; records taken from them are checked.
        """
        records = object.__new__(cls)
        for name, value in (("X", X), ("y", y), ("party", party), ("person", person)):
            object.__setattr__(records, name, value)
        return records

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"Records({len(self)} records × {self.X.shape[1]} features)"

    def take(self, rows: slice | NDArray[Any]) -> Records:
        """The chosen records, in the chosen order; a slice shares memory."""
        party = None if self.party is None else self.party[rows]
        person = None if self.person is None else self.person.take(rows)
        return Records(X=self.X[rows], y=self.y[rows], party=party, person=person)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Training records, a common test set, and public facts.

    Attributes:
        name: What the data set is called in reports.
        task: ``binary`` (labels −1 and +1), ``multiclass`` (class indices) or ``regression``.
        train: The records that the parties hold, and that privacy protects.
        test: Records to evaluate on; may be empty.
        feature_names: One name per column of X.
        max_norm: A bound on ‖x‖₂ that follows from public constants, never from the records. It is
            stated, not checked: `fedpriv.data.bound` enforces a norm whatever the records are.
        party_names: The natural parties that ``party`` indexes; empty if there are none.
        classes: The names of the classes; for a binary task those of −1 and of +1.
        schema: The schema by which a table was read; None for a built-in data set.
        preprocessing: What `bound` did to the features, for prediction; None before.
        image_shape: Channels, height and width of images whose pixels, row by row, are the first
            features; None if the records are not images.
        loading: What the rules of the schema did to a table when it was read, for its owner.
    """

    name: str
    task: Task
    train: Records
    test: Records
    feature_names: tuple[str, ...]
    max_norm: float
    party_names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    schema: Schema | None = None
    preprocessing: Preprocessing | None = None
    image_shape: tuple[int, int, int] | None = None
    loading: LoadReport | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_choice(TASKS, task=self.task)
        require_positive(max_norm=self.max_norm)
        if self.task == "binary" and len(self.classes) != 2:
            raise DataError(f"{self.name}: a binary task has 2 classes, got {len(self.classes)}.")
        if bool(self.party_names) != (self.train.party is not None):
            raise DataError(f"{self.name}: party_names and train.party must be given together.")
        for part, records in (("train", self.train), ("test", self.test)):
            where = f"{self.name}, {part}"
            if records.X.shape[1] != len(self.feature_names):
                raise DataError(
                    f"{where}: {len(self.feature_names)} feature names for "
                    f"{records.X.shape[1]} features."
                )
            self._check_labels(where, records.y)
            if records.party is not None and not _indexes(records.party, self.party_names):
                raise DataError(
                    f"{where}: party must index the {len(self.party_names)} party_names."
                )

    def _check_labels(self, where: str, y: NDArray[np.float32] | NDArray[np.int64]) -> None:
        if (self.task == "multiclass") != (y.dtype == np.int64):
            raise DataError(
                f"{where}: labels must be integers for a multiclass task and floats otherwise; "
                f"got {y.dtype} for {self.task}."
            )
        if self.task == "binary" and not (np.abs(y) == 1).all():
            raise DataError(f"{where}: binary labels must be -1 or +1.")
        if self.task == "multiclass" and not _indexes(y, self.classes):
            raise DataError(f"{where}: labels must index the {len(self.classes)} classes.")


def signs(positive: ArrayLike) -> NDArray[np.float32]:
    """Labels of a binary task: +1 where ``positive`` is true, −1 elsewhere."""
    return np.where(positive, np.float32(1), np.float32(-1))


def no_records(features: int, task: Task) -> Records:
    """An empty set of records, for a data set without a test set."""
    y = np.empty(0, np.int64) if task == "multiclass" else np.empty(0, np.float32)
    return Records(X=np.empty((0, features), np.float32), y=y)


def _finite(array: NDArray[Any]) -> bool:
    """Whether every number is finite, without a mask as large as the records."""
    return not array.size or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def _read_only(array: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        contiguous = np.ascontiguousarray(array, dtype=dtype)
    # A view, so that the flag binds this object and not the caller's own array.
    view = contiguous.view()
    view.flags.writeable = False
    return view


def _indexes(values: NDArray[Any], names: tuple[str, ...]) -> bool:
    return bool(((values >= 0) & (values < len(names))).all())
