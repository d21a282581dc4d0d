"""Cache of a built-in data set: its columns as plain arrays, in the user's cache folder.

Some packages carry their data as pickled data frames, and importing pandas to read one takes longer
than training on it. So its columns are read once and cached under the hash of the package's file:
another version of the package gets another cache entry.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from fedpriv._durable import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]


def kept_columns(package: str, file: str, *, read: Callable[[], Columns]) -> Columns:
    """The columns of a file in an installed package: cached, or else as ``read`` returns them.

    Args:
        package: The package that carries the file.
        file: Its path within the package's folder.
        read: Reads the columns from it; called if nothing is cached or the file does not exist.
    """
    source = _source(package, file)
    if source is None:
        return read()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpriv"
    place = folder / f"{source.name}-{sha256(source.read_bytes()).hexdigest()}.npz"
    with suppress(OSError, ValueError, EOFError, BadZipFile):
        return dict(np.load(io.BytesIO(place.read_bytes())))
    columns = read()
    with suppress(OSError):  # without a writable cache folder, the file is read every time
        folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **columns)
        replace_file(place, content.getvalue())
    return columns


def _source(package: str, file: str) -> Path | None:
    """The file, found without an import of the package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    source = Path(spec.origin).parent / file
    return source if source.is_file() else None
