"""Results as files: what a report of a run reads.

**Of a release a report reads files of its outcome and no other**: not the folder of what stays with
the owner, not what else lies there. So a page about a release is post-processing of what was
published, whatever the page says, and is covered by the same guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from fedpriv.privacy.statement.signed import read_signed
from fedpriv.simulations.report.details import AUDIT
from fedpriv.simulations.report.machine import MACHINE
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.run.release_outcome import FILES, RESULT, ROUND, SIGNED, sift

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.privacy.statement.signed import PartySignature


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """What the files of a finished run say.

    Attributes:
        name: What tables call it.
        result: ``result.json``.
        rounds: ``metrics.json``.
        plan: ``plan.json``; None for a run without noise.
        statement: ``statement.json``.
        statement_text: ``statement.txt``.
        configuration: ``config.toml``.
        signatures: Of the parties, in ``statement.signed.json`` of a deployment; not checked here.
        machine: Of a simulation, what it ran on.
        audit: Of a simulation, what an audit left beside it.
    """

    name: str
    result: Mapping[str, Any]
    rounds: tuple[Mapping[str, Any], ...]
    plan: Mapping[str, Any] | None
    statement: Mapping[str, Any]
    statement_text: str
    configuration: str
    signatures: tuple[PartySignature, ...] = ()
    machine: Mapping[str, Any] | None = None
    audit: Mapping[str, Any] | None = None

    @property
    def simulated(self) -> bool:
        """Whether it spent nothing, and may show anything."""
        return bool(self.result["simulated"])

    @classmethod
    def read(cls, directory: Path, *, name: str | None = None) -> Self:
        """The files in the directory of a finished run.

        Raises:
            ValueError: There is no result, or it is of a description.
        """
        result = read_json(directory / "result.json")
        if (directory / "statistics.json").exists():
            raise ValueError(
                f"{str(directory)!r} is a description, which `fedpriv describe` shows; a report is "
                "of runs that learn, or of a comparison."
            )
        released = not result["simulated"]
        if released:
            result = sift(result, RESULT)
        optional = () if released else (MACHINE, AUDIT)
        found = {file: _if_there(directory / file) for file in ("plan.json", *optional)}
        rounds = read_json(_stated(directory, "metrics.json", released=released))
        return cls(
            name=name or str(result["label"]),
            result=result,
            rounds=tuple(sift(row, ROUND) if released else row for row in rounds),
            plan=found["plan.json"],
            statement=read_json(_stated(directory, "statement.json", released=released)),
            statement_text=_stated(directory, "statement.txt", released=released).read_text(
                encoding="utf-8"
            ),
            configuration=_stated(directory, "config.toml", released=released).read_text(
                encoding="utf-8"
            ),
            signatures=_signatures(directory / SIGNED),
            machine=found.get(MACHINE),
            audit=found.get(AUDIT),
        )


def _stated(directory: Path, name: str, *, released: bool) -> Path:
    if released and name not in FILES:
        raise RuntimeError(f"{name} is no part of the outcome: a report must not read it.")
    return directory / name


def _if_there(path: Path) -> Any:
    return read_json(path) if path.exists() else None


def _signatures(path: Path) -> tuple[PartySignature, ...]:
    return read_signed(path.read_bytes()).parties if path.exists() else ()
