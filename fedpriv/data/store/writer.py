"""The writer of a store: arrays as plain `.npy` files, written block by block, with their hashes.

A store is written under another name and renamed when complete: a folder with a manifest is a
finished store. Only its owner may read it.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedpriv._durable import OWNER_ONLY, create_file
from fedpriv.data.errors import DataError
from fedpriv.data.store.manifest import MANIFEST, ArrayFacts, Manifest, dataset_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from numpy.typing import NDArray

    from fedpriv.data.dataset import Records
    from fedpriv.data.partition import PartitionedDataset

    Blocks = Iterable[NDArray[Any]]

BLOCK_BYTES = 1 << 24
"""The approximate number of bytes of an array that are written at a time."""

_OWNERS_FOLDER = 0o700


class StoreWriter:
    """Writes one store: call `array` for each array, then `finish`; without it nothing remains.

    Args:
        folder: The folder to create; it must not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.unfinished = self._folder.with_name(f".{self._folder.name}.unfinished")
        self._arrays: dict[str, ArrayFacts] = {}
        if self._folder.exists():
            raise DataError(f"{self._folder} exists already: name a folder that does not.")
        try:
            shutil.rmtree(self.unfinished, ignore_errors=True)  # of an earlier attempt
            self.unfinished.mkdir(parents=True, mode=_OWNERS_FOLDER)
        except OSError as error:
            raise DataError(f"{self._folder} cannot be written: {error.strerror}.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def array(
        self, name: str, dtype: type[np.generic] | str, shape: tuple[int, ...], blocks: Blocks
    ) -> None:
        """Write an array of a known shape, from consecutive ``blocks`` of its rows."""
        kind, digest, rows = np.dtype(dtype), sha256(), 0
        path = self.unfinished / f"{name}.npy"
        create_file(path, b"", mode=OWNER_ONLY)
        header = BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {
                "descr": np.lib.format.dtype_to_descr(kind),
                "fortran_order": False,
                "shape": shape,
            },
        )
        with path.open("r+b") as file:
            digest.update(header.getvalue())
            file.write(header.getvalue())
            for block in blocks:
                content = np.ascontiguousarray(block, kind)
                rows += len(content)
                digest.update(content.data)
                file.write(content.data)
        if rows != shape[0]:
            raise DataError(f"{name} must have {shape[0]} rows, got {rows}.")
        self._arrays[name] = ArrayFacts(dtype=kind.str, shape=shape, sha256=digest.hexdigest())

    def finish(
        self, *, dataset: Mapping[str, Any], partition: str, parties: int, facts: Mapping[str, Any]
    ) -> Manifest:
        """Write the manifest and rename the folder."""
        manifest = Manifest(
            dataset=dataset, partition=partition, parties=parties, facts=facts, arrays=self._arrays
        )
        create_file(self.unfinished / MANIFEST, manifest.to_json(), mode=OWNER_ONLY)
        self.unfinished.rename(self._folder)
        return manifest


def write_store(
    folder: str | Path,
    data: PartitionedDataset,
    *,
    sizes: tuple[int, ...],
    facts: Mapping[str, Any],
    dataset: Mapping[str, Any] | None = None,
    features: tuple[Blocks, Blocks] | None = None,
) -> Manifest:
    """Write split and partitioned records, to be opened by `open_store`.

    Args:
        folder: The folder to create; it must not exist.
        data: The records, sorted by party.
        sizes: The public number of records of every party.
        facts: Further facts that `open_store` returns, JSON-ready.
        dataset: `dataset_facts`, if they are not those of the data.
        features: The features of the training and of the test records, in blocks as wide as
            ``dataset`` says, if they are not those of the data.
    """
    known = dataset or dataset_facts(data.dataset)
    train, test = data.dataset.train, data.dataset.test
    blocks = features or (_rows(train.X), _rows(test.X))
    names = data.dataset.party_names
    with StoreWriter(folder) as writer:
        for part, records, X in (("train", train, blocks[0]), ("test", test, blocks[1])):
            shape = len(records), len(known["feature_names"])
            writer.array(f"{part}_X", np.float32, shape, X)
            _write_columns(writer, part, records)
        writer.array("offsets", np.int64, data.offsets.shape, [data.offsets])
        writer.array("order", np.int64, data.order.shape, [data.order])
        writer.array("sizes", np.int64, (len(sizes),), [np.array(sizes, np.int64)])
        if names != numbered(len(names)):
            texts = np.array(names, np.str_)
            writer.array("party_names", texts.dtype.str, texts.shape, [texts])
        return writer.finish(dataset=known, partition=data.kind, parties=data.parties, facts=facts)


def numbered(parties: int) -> tuple[str, ...]:
    """The names of parties that have none of their own."""
    return tuple(f"party-{j}" for j in range(parties))


def _write_columns(writer: StoreWriter, part: str, records: Records) -> None:
    columns: dict[str, NDArray[Any]] = {"y": records.y}
    if records.party is not None:
        columns["party"] = records.party
    if records.person is not None:
        columns |= {"person": records.person.codes, "person_hashes": records.person.hashes}
    for name, column in columns.items():
        writer.array(f"{part}_{name}", column.dtype.str, column.shape, [column])


def _rows(X: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    count = max(1, BLOCK_BYTES // max(1, X[:1].nbytes))
    return (X[first : first + count] for first in range(0, len(X), count))
