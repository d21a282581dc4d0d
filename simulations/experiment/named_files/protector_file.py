"""The file of a protector: known by its hash from the moment an experiment is read.

As with a pretrained start, the hash is then part of the experiment, hence of its hash and the name
of its runs, and is compared whenever the file is read again. It is the hash that the file states,
by which statements name it; it is verified when the file is used. A deployed party, whose
experiment comes from elsewhere, never reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_STRATEGY = "learned-protection"


def anchor_protector(values: dict[str, Any]) -> None:
    """The file of a protector is named from where the command runs."""
    strategy = values.get("strategy")
    if isinstance(strategy, dict) and str(strategy.get("protector")).endswith(".json"):
        strategy["protector"] = str(Path(strategy["protector"]).absolute())


def pin_protector(values: dict[str, Any]) -> None:
    """State the hash of the file that the tables of an experiment name, unless they do already.

    A file that is not a protector gets no hash; building the strategy reports the error.
    """
    strategy = values.get("strategy")
    if not isinstance(strategy, dict) or strategy.get("name") != _STRATEGY:
        return
    if str(strategy.get("protector")).endswith(".json"):
        digest = _stated(Path(strategy["protector"]))
        if digest is not None:
            strategy.setdefault("protector_sha256", digest)


def _stated(path: Path) -> str | None:
    try:
        digest = json.loads(path.read_bytes())["sha256"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return digest if isinstance(digest, str) else None
