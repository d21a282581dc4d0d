"""The manifest of a store: which arrays there are, their hashes, and what is known of the data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv._json import parse_json
from fedpriv.data.bounds import Bounds
from fedpriv.data.errors import DataError
from fedpriv.data.preprocessing import Preprocessing
from fedpriv.data.tables.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.data.dataset import Dataset

MANIFEST = "manifest.json"
FORMAT = "fedpriv store 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFacts:
    """One array of a store: type, shape, and the SHA-256 of its file."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a store holds.

    Attributes:
        dataset: The public facts of the data set: see `dataset_facts`.
        partition: How its parties were made.
        parties: How many there are.
        facts: Further facts from the preparer of the records, JSON-ready.
        arrays: By name.
    """

    dataset: Mapping[str, Any]
    partition: str
    parties: int
    facts: Mapping[str, Any]
    arrays: Mapping[str, ArrayFacts]

    @property
    def digest(self) -> str:
        """SHA-256 of the whole manifest, including the hashes of the arrays: **private**.

        With it, a guess about the records can be tested.
        """
        return sha256(json.dumps(self._values(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The file."""
        return json.dumps({**self._values(), "digest": self.digest}, indent=1) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of the store in a folder."""
        path = folder / MANIFEST
        try:
            values = parse_json(path.read_text(encoding="utf-8"))
            known = values.pop("digest")
            if values.pop("format") != FORMAT:
                raise DataError(f"{path} is of another version of fedpriv: make the store anew.")
            arrays = {
                name: ArrayFacts(**{**facts, "shape": tuple(facts["shape"])})
                for name, facts in values.pop("arrays").items()
            }
            manifest = cls(arrays=arrays, **values)
        except OSError as error:
            raise DataError(f"{folder} is no store that can be read: {error.strerror}.") from None
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError):
            raise DataError(f"{path} is not the manifest of a store.") from None
        if manifest.digest != known:
            raise DataError(f"{path} was changed since it was written: make the store anew.")
        return manifest

    def _values(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "dataset": dict(self.dataset),
            "partition": self.partition,
            "parties": self.parties,
            "facts": dict(self.facts),
            "arrays": {
                name: {**asdict(facts), "shape": list(facts.shape)}
                for name, facts in self.arrays.items()
            },
        }


def is_store(path: str | Path) -> bool:
    """Whether there is a store at ``path``."""
    return (Path(path) / MANIFEST).is_file()


def dataset_facts(dataset: Dataset) -> dict[str, Any]:
    """What is publicly known of a data set, JSON-ready; without its records and parties."""
    path = dataset.preprocessing
    return {
        "name": dataset.name,
        "task": dataset.task,
        "feature_names": list(dataset.feature_names),
        "max_norm": dataset.max_norm,
        "classes": list(dataset.classes),
        "image_shape": None if dataset.image_shape is None else list(dataset.image_shape),
        "schema": None if dataset.schema is None else dataset.schema.model_dump(mode="json"),
        "preprocessing": None
        if path is None
        else {
            "feature_names": list(path.feature_names),
            "max_norm": path.max_norm,
            "bounds": asdict(path.bounds),
        },
    }


def dataset_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Dataset` from `dataset_facts`."""
    schema = None if facts["schema"] is None else Schema.model_validate(facts["schema"])
    path, shape = facts["preprocessing"], facts["image_shape"]
    return {
        "name": facts["name"],
        "task": facts["task"],
        "feature_names": tuple(facts["feature_names"]),
        "max_norm": facts["max_norm"],
        "classes": tuple(facts["classes"]),
        "image_shape": None if shape is None else tuple(shape),
        "schema": schema,
        "preprocessing": None
        if path is None
        else Preprocessing(
            feature_names=tuple(path["feature_names"]),
            max_norm=path["max_norm"],
            bounds=Bounds(**path["bounds"]),
            schema=schema,
        ),
    }
