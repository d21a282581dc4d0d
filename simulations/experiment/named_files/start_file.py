"""The file of a pretrained start: known by its SHA-256 from the moment an experiment is read.

As with code of the user's own, the hash stands in the experiment from then on and is compared
wherever the file is read again. The bytes that are hashed are the bytes that are used. A deployed
party, whose experiment comes from elsewhere, never reads it.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.model_section import ModelSection


def pin_start(values: dict[str, Any]) -> None:
    """State the hash of the start that the tables of an experiment name, unless they do already."""
    section = values.get("model")
    if isinstance(section, dict) and isinstance(section.get("start"), str):
        path = Path(section["start"])
        section.setdefault("start_sha256", sha256(_read(path)).hexdigest())


def start_bytes(section: ModelSection) -> bytes:
    """The file of the start, which must be the one that the experiment states."""
    path = Path(str(section.start))
    content = _read(path)
    digest = sha256(content).hexdigest()
    if digest != section.start_sha256:
        raise ValueError(
            f"model.start {path.name!r} is not the file that the experiment states: its sha256 is "
            f"{digest[:8]}…, and {str(section.start_sha256)[:8]}… is stated. Put that file back, "
            "or leave out start_sha256 and begin a new run."
        )
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"model.start {str(path)!r} cannot be read: {error.strerror}. It is the model.npz of "
            "a run; its path is relative to the experiment file."
        ) from None
