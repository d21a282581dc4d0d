"""Models that were handed over to a party: kept as data, beside the statement about them.

    models/RUN/model.npz                the released parameters, as the statement's digest says
    models/RUN/statement.signed.json    who signed what about them

A model is numbers and text in a file of arrays that loads without pickle: nothing in it is run, by
being received or by `fedpriv predict`. The files are readable by their owner alone. All models
together have a limit: a server with many cheap runs would else fill the disk of the ledger.
"""

from __future__ import annotations

import re
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from fedpriv._durable import OWNER_ONLY, replace_file
from fedpriv.federation.party.guard import QueryRefused

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.statement.signed import SignedStatement

MODEL, STATEMENT = "model.npz", "statement.signed.json"
_RUN = re.compile(r"[a-z0-9][a-z0-9-]{0,199}")  # nothing that leads out of the folder
_FOLDER = 0o700
_MOST_ARRAYS = 64
_MOST_BYTES = 1 << 30  # of all models and statements together: 32 of the largest
_MOST_RUNS = 4096


def keep_model(folder: Path, run: str, signed: SignedStatement, model: bytes) -> bytes:
    """Keep the model of a run, and the newest statement about it; the model's SHA-256.

    Args:
        folder: Of all models.
        run: The name of the run.
        signed: The statement, which was checked.
        model: The bytes of the file.

    Raises:
        QueryRefused: They are not the model that the statement names, no plain arrays, or there is
            another model of this run already; or there is no room for it.
    """
    digest = sha256(model).digest()
    if signed.document.get("model") != digest.hex():
        raise QueryRefused("the model is not the one that the statement names.")
    if not _RUN.fullmatch(run):
        raise QueryRefused("the name of the run must be lower-case letters, digits and '-'.")
    if not _plain(model):
        raise QueryRefused("the model must be plain arrays of numbers and text, not compressed.")
    place, statement = folder / run, signed.to_text()
    taken = sum(path.stat().st_size for path in place.glob("*"))
    _require_room(folder, len(model) + len(statement) - taken, another=not place.exists())
    for each in (folder, place):
        each.mkdir(mode=_FOLDER, exist_ok=True)
        each.chmod(_FOLDER)
    known = place / MODEL
    if known.exists() and known.read_bytes() != model:
        raise QueryRefused("this party has another model of this run already.")
    replace_file(place / STATEMENT, statement, mode=OWNER_ONLY, locked=True)
    if not known.exists():
        replace_file(known, model, mode=OWNER_ONLY, locked=True)
    return digest


def kept_model(folder: Path, run: str) -> str | None:
    """The SHA-256 of the model of a run that was taken over, in hexadecimal digits, if one was."""
    if not _RUN.fullmatch(run):
        return None
    try:
        return sha256((folder / run / MODEL).read_bytes()).hexdigest()
    except OSError:  # moved away by the owner
        return None


def _require_room(folder: Path, size: int, *, another: bool) -> None:
    """Refuse ``size`` more bytes, or a model more, beside those that were handed over before."""
    kept = [path.stat().st_size for path in folder.glob("*/*")]
    runs = sum(1 for _ in folder.glob("*"))
    if (another and runs >= _MOST_RUNS) or (size > 0 and sum(kept) + size > _MOST_BYTES):
        raise QueryRefused(
            f"this party keeps {runs} models already, {sum(kept)} bytes of at most {_MOST_BYTES}, "
            f"and {_MOST_RUNS} of them at most: its owner moves away what is not needed there."
        )


def _plain(model: bytes) -> bool:
    """Whether a file has arrays that load without pickle, and take no more memory than it has."""
    try:
        with ZipFile(BytesIO(model)) as entries:
            listed = entries.infolist()
        if len(listed) > _MOST_ARRAYS or any(each.compress_type != ZIP_STORED for each in listed):
            return False
        with np.load(BytesIO(model), allow_pickle=False) as arrays:
            return bool(arrays.files) and all(
                isinstance(arrays[name], np.ndarray) for name in arrays.files
            )
    except (
        ValueError,
        LookupError,
        EOFError,
        OSError,
        BadZipFile,
        MemoryError,
        RuntimeError,
        ArithmeticError,
    ):
        return False
