"""Audit in the statement of a run: what `fedpriv audit` measured of the same experiment.

A lower bound beside the upper one. It is taken over if it is of this very experiment, by this
version, and contradicts nothing: audits use public facts of an experiment and records of their own
making, so that what one has measured tells nothing of the records of the run.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Any

import fedpriv
from fedpriv.simulations.report.details import AUDIT
from fedpriv.simulations.run.files import PRIVATE, private, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.run.prepare import Prepared

LEAST_CONFIDENCE = 0.95


def read_audit(path: Path, prepared: Prepared, plan: Plan | None) -> dict[str, Any]:
    """The audit in a file, or in a directory of `fedpriv audit`, if it is of this experiment.

    Raises:
        ValueError: It is of another one, or of another version, or found the claim broken.
    """
    found = read_json(path / AUDIT if path.is_dir() else path)
    where = f"--audit {str(path)!r}"
    try:
        known = (found["config_hash"], found["fedpriv"], found["claimed"]["epsilon"])
        sound, bound = bool(found["passed"]), found["epsilon"]
        confidence = float(found["confidence"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{where} is not what `fedpriv audit` wrote.") from None
    epsilon = None if plan is None else plan.epsilon
    if known != (prepared.experiment.config_hash, fedpriv.__version__, epsilon):
        raise ValueError(
            f"{where} is of another experiment, or of another version of fedpriv: audit this one, "
            "with the same settings."
        )
    if not sound or not isinstance(bound, float) or bound < 0:
        raise ValueError(
            f"{where} contradicts the claim of this experiment: its guarantee does not hold. Do "
            "not release it; report the fault."
        )
    if not confidence >= LEAST_CONFIDENCE:
        raise ValueError(
            f"{where} must have a confidence of {LEAST_CONFIDENCE} or more, which a statement says "
            f"that it has, got {confidence:g}: audit again, with --confidence."
        )
    return dict(found)


def keep_audit(directory: Path, audit: Mapping[str, Any], *, release: bool) -> None:
    """Keep it for the statement; beside a simulation for its page as well."""
    write_json(private(directory) / AUDIT, audit)
    if not release:
        write_json(directory / AUDIT, audit)


def audited_epsilon(directory: Path) -> float | None:
    """The lower bound on ε that was kept for a run, rounded down; None if there was no audit."""
    path = directory / PRIVATE / AUDIT
    return floor(1000 * read_json(path)["epsilon"]) / 1000 if path.exists() else None
