"""The reader of a store: arrays mapped from the disk, so that records need not fit the memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.dataset import Dataset, Records
from fedpriv.data.errors import DataError
from fedpriv.data.partition import KINDS, PartitionedDataset
from fedpriv.data.persons import Persons
from fedpriv.data.store.manifest import Manifest, dataset_fields
from fedpriv.data.store.writer import numbered

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Store:
    """An opened store.

    Attributes:
        data: The records, mapped, sorted by party.
        sizes: The public number of records of every party.
        manifest: The store's manifest.
    """

    data: PartitionedDataset
    sizes: tuple[int, ...]
    manifest: Manifest


def open_store(folder: str | Path, *, digest: str | None = None) -> Store:
    """Open a store; no record is read.

    Types, shapes and lengths of the files are compared with the manifest; `verify_store` compares
    their content. Code that computes with records checks, when it stacks them, that they are finite
    and keep the bound on their norm.

    Args:
        folder: Where it is.
        digest: The manifest's digest, if one particular store is required.
    """
    path = Path(folder)
    manifest = Manifest.read(path)
    if digest is not None and manifest.digest != digest:
        raise DataError(f"{path} is another store than the one that the run began with.")
    arrays = {name: _mapped(path, name, manifest) for name in manifest.arrays}
    names = arrays.get("party_names")
    dataset = Dataset(
        train=_records(arrays, "train"),
        test=_records(arrays, "test"),
        party_names=numbered(manifest.parties) if names is None else tuple(names.tolist()),
        **dataset_fields(manifest.dataset),
    )
    if manifest.partition not in KINDS:
        raise DataError(f"{path}: {manifest.partition!r} is no kind of partition.")
    data = PartitionedDataset(
        dataset=dataset,
        kind=manifest.partition,
        offsets=arrays["offsets"],
        order=arrays["order"],
        mapped=True,
    )
    _require_consistent(path, data, len(arrays["sizes"]))
    return Store(data=data, sizes=tuple(arrays["sizes"].tolist()), manifest=manifest)


def verify_store(folder: str | Path) -> Manifest:
    """Read every file of a store and compare its hash with the manifest.

    Raises:
        DataError: A file is missing, or was changed.
    """
    path = Path(folder)
    manifest = Manifest.read(path)
    for name, facts in manifest.arrays.items():
        try:
            with (path / f"{name}.npy").open("rb") as file:
                found = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{path / name}.npy cannot be read: {error.strerror}.") from None
        if found != facts.sha256:
            raise DataError(f"{path / name}.npy was changed since it was written: make it anew.")
    return manifest


def _mapped(folder: Path, name: str, manifest: Manifest) -> NDArray[Any]:
    path, facts = folder / f"{name}.npy", manifest.arrays[name]
    empty = 0 in facts.shape  # there is nothing to map
    try:
        array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise DataError(f"{path} is missing, or not what was written: make it anew.") from None
    if array.dtype.str != facts.dtype or array.shape != facts.shape:
        raise DataError(f"{path} has another type or shape than the manifest says: make it anew.")
    plain = np.asarray(array)
    plain.flags.writeable = False
    return plain


def _records(arrays: dict[str, NDArray[Any]], part: str) -> Records:
    codes, person = arrays.get(f"{part}_person"), None
    if codes is not None:
        person = Persons(codes=codes, hashes=arrays[f"{part}_person_hashes"])
    return Records.mapped(
        X=arrays[f"{part}_X"],
        y=arrays[f"{part}_y"],
        party=arrays.get(f"{part}_party"),
        person=person,
    )


def _require_consistent(path: Path, data: PartitionedDataset, sizes: int) -> None:
    offsets, records = data.offsets, len(data.dataset.train)
    if sizes != data.parties or len(data.dataset.party_names) != data.parties:
        raise DataError(f"{path} has sizes or names of another number of parties.")
    if offsets[0] != 0 or offsets[-1] != records or (np.diff(offsets) < 0).any():
        raise DataError(f"{path}: offsets must rise from 0 to the {records} training records.")
