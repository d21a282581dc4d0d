"""model.npz: the released parameters, and all that is needed to predict with them from a raw table.

Beside the noisy parameters it holds public facts only: how columns are scaled (from the schema),
the norm bound, and what kind of model it is (from the experiment). Read without pickle and without
running anything that the file names.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from fedpriv._json import parse_json
from fedpriv._validate import require_choice
from fedpriv.data import Bounds, Preprocessing, parse_schema
from fedpriv.data.dataset import TASKS, Dataset, Task, no_records
from fedpriv.data.tables.schema import CategoryColumn
from fedpriv.simulations.experiment.model_section import ModelSection
from fedpriv.simulations.experiment.models import learner
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.run.release_outcome import MODEL, sift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.data import Schema
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model
    from fedpriv.simulations.experiment.file import Experiment

NAME = "model.npz"
# How it was trained: all parameters are in theta.
_BEGUN = {"start", "start_sha256", "frozen"}
FORMAT = 1
"""Of the file; another number is another meaning."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelFile:
    """What a model file holds.

    Attributes:
        theta: The parameters, float64 (d,).
        model: What computes scores from parameters and features.
        loss: What the model was trained for; it gives scores their meaning.
        preprocessing: How a raw table becomes features.
        task: ``binary``, ``multiclass`` or ``regression``.
        classes: The names of the classes, in the order of the scores; those of −1 and +1 if binary.
    """

    theta: NDArray[np.float64]
    model: Model
    loss: Loss
    preprocessing: Preprocessing
    task: Task
    classes: tuple[str, ...]

    @property
    def label_range(self) -> tuple[float, float] | None:
        """Of a regression on a table: the range that was scaled to [−1, 1]."""
        schema = self.preprocessing.schema
        return None if schema is None else schema.label_range


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """A model file after reading: checked, and without any code that could run.

    Attributes:
        theta: The parameters.
        section: Of the experiment that they were trained by.
        guests: Hashes of the code that the section names, by place.
        seed: Of that run.
        preprocessing: How a raw table becomes features.
        task: What is learned.
        classes: As the data set has them.
        image_shape: Of a record, if it is an image; else empty.
    """

    theta: NDArray[np.float64]
    section: ModelSection
    guests: dict[str, str]
    seed: int
    preprocessing: Preprocessing
    task: Task
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]


def model_arrays(
    theta: NDArray[np.float64], experiment: Experiment, dataset: Dataset
) -> dict[str, Any]:
    """The arrays of model.npz, each of them stated in `outcome.MODEL`."""
    path = dataset.preprocessing
    if path is None:
        raise ValueError("dataset must have bounded features before a model of it is written.")
    return sift(
        {
            "theta": theta,
            "format": FORMAT,
            "model_settings": json.dumps(experiment.model.model_dump(mode="json", exclude=_BEGUN)),
            "guests": json.dumps(experiment.guests),
            "seed": experiment.run.seed,
            "task": dataset.task,
            "features": list(path.feature_names),
            "classes": list(dataset.classes),
            "image_shape": list(dataset.image_shape or ()),
            "schema": "" if path.schema is None else json.dumps(_for_prediction(path.schema)),
            "max_norm": path.max_norm,
            "feature_norm": path.bounds.norm,
            "intercept": path.bounds.intercept,
            "scaling": path.bounds.scaling,
        },
        MODEL,
    )


def read_model(source: str | Path, *, own_code: bool = False) -> ModelFile:
    """Read a model file, or that of a result directory; what does not fit together is refused."""
    path = Path(source)
    path = path / NAME if path.is_dir() else path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"model {str(path)!r} cannot be read: {error.strerror}. Name the directory of a "
            "finished run, or the model.npz in it."
        ) from None
    with usable(path):
        return _model(_contents(_arrays(content)), own_code=own_code)


def parse_contents(content: bytes, path: Path) -> Contents:
    """What the bytes of a model file say; nothing that the file names is run."""
    with usable(path):
        return _contents(_arrays(content))


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Name the model file in whatever is wrong with it."""
    try:
        yield
    except _Damaged:
        raise ValueError(
            f"{str(path)!r} cannot be read as a model: it is another file, or damaged."
        ) from None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"{str(path)!r} is not a model that can be used: {error}") from None


class _Damaged(Exception):
    """The bytes are no arrays."""


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    with suppress(ValueError, EOFError, BadZipFile, MemoryError, RuntimeError, OverflowError):
        with ZipFile(BytesIO(content)) as entries:
            packed = any(entry.compress_type != ZIP_STORED for entry in entries.infolist())
        if not packed:  # so no more is read into memory than lies on the disk
            with np.load(BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
    raise _Damaged


def _contents(arrays: dict[str, NDArray[Any]]) -> Contents:
    if arrays.keys() != MODEL.keys():
        raise ValueError(
            "its arrays are not those of a model. party-alone trains one model per party, and "
            "files of older versions do not say how a table is scaled."
        )
    if int(arrays["format"]) != FORMAT:
        raise ValueError(f"format must be {FORMAT}: the file is of another version of fedpriv.")
    task = cast("Task", _text(arrays["task"]))
    require_choice(TASKS, task=task)
    schema = _text(arrays["schema"])
    return Contents(
        theta=arrays["theta"],
        section=ModelSection.model_validate_json(_text(arrays["model_settings"])),
        guests=parse_json(_text(arrays["guests"])),
        seed=int(arrays["seed"]),
        preprocessing=Preprocessing(
            feature_names=_texts(arrays["features"]),
            max_norm=float(arrays["max_norm"]),
            bounds=Bounds(
                norm=float(arrays["feature_norm"]),
                intercept=float(arrays["intercept"]),
                scaling=_text(arrays["scaling"]),  # type: ignore[arg-type]  # checked there
            ),
            schema=parse_schema(parse_json(schema)) if schema else None,
        ),
        task=task,
        classes=_texts(arrays["classes"]),
        image_shape=tuple(map(int, arrays["image_shape"])),
    )


def _model(contents: Contents, *, own_code: bool) -> ModelFile:
    section, preprocessing = contents.section, contents.preprocessing
    own = guests.is_guest("model", section.name) or guests.is_guest("loss", section.loss)
    if own and not own_code:
        raise ValueError(
            "its model is code of its author, which reading a file does not run. If you trust that "
            "code, give own_code = True (fedpriv predict --own-code)."
        )
    model, loss = learner(
        section,
        _facts(preprocessing, contents.task, contents.classes, contents.image_shape),
        seed=contents.seed,
        pins=contents.guests,
    )
    require_parameters(contents.theta, model.dimension)
    return ModelFile(
        theta=contents.theta,
        model=model,
        loss=loss,
        preprocessing=preprocessing,
        task=contents.task,
        classes=_own_names(contents.classes, preprocessing.schema),
    )


def require_parameters(theta: NDArray[Any], dimension: int) -> None:
    """Refuse what is no vector of so many finite numbers."""
    if theta.dtype != np.float64 or theta.shape != (dimension,):
        raise ValueError(
            f"theta must be {dimension} numbers of float64, got {theta.dtype} of shape "
            f"{theta.shape}."
        )
    if not np.isfinite(theta).all():
        raise ValueError("theta must be finite.")


def _facts(
    preprocessing: Preprocessing, task: Task, classes: tuple[str, ...], image: tuple[int, ...]
) -> Dataset:
    """The data set that a model was made for, without its records."""
    names = preprocessing.feature_names
    names = (*names, "intercept") if preprocessing.bounds.intercept else names
    empty = no_records(len(names), task)
    return Dataset(
        name="the data of the model",
        task=task,
        train=empty,
        test=empty,
        feature_names=names,
        max_norm=preprocessing.bounds.norm,
        classes=classes,
        image_shape=(image[0], image[1], image[2]) if len(image) == 3 else None,
    )


def _for_prediction(schema: Schema) -> dict[str, Any]:
    """The schema without parties and test records, which prediction has no use for."""
    values = schema.model_dump(mode="json", exclude_none=True)
    for name in ("party", "test_column", "test_values"):
        values.pop(name, None)
    values["columns"].pop(schema.party, None)
    return values


def _own_names(classes: tuple[str, ...], schema: Schema | None) -> tuple[str, ...]:
    """The classes as the table calls them: of two declared labels, the other is not "not yes"."""
    label = None if schema is None else schema.columns.get(schema.label)
    if schema is not None and schema.positive is not None and isinstance(label, CategoryColumn):
        others = [value for value in label.values if value != schema.positive]
        if len(others) == 1:
            return others[0], schema.positive
    return classes


def _text(array: NDArray[Any]) -> str:
    if array.dtype.kind != "U" or array.ndim:
        raise ValueError("a text is missing.")
    return str(array)


def _texts(array: NDArray[Any]) -> tuple[str, ...]:
    if array.ndim != 1 or (array.size and array.dtype.kind != "U"):
        raise ValueError("a list of names is missing.")
    return tuple(map(str, array))
