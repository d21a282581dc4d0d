"""Files of a report: `report.html` and `report.json` beside the results that they are about."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedpriv._durable import replace_file
from fedpriv.simulations.report.details import AUDIT
from fedpriv.simulations.report.machine import MACHINE, machine
from fedpriv.simulations.report.of_runs import runs_document
from fedpriv.simulations.report.results import RunFiles
from fedpriv.simulations.run.files import CELLS, read_json, write_json
from fedpriv.simulations.run.release_outcome import FILES, REPORT, sift

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedpriv.simulations.compare.comparison import Comparison
    from fedpriv.simulations.report.parts import Document

PAGE, NUMBERS = "report.html", "report.json"


def read_document(results: Sequence[Path]) -> Document:
    """The report of a finished comparison, or of one or more finished runs.

    Raises:
        ValueError: Something is missing, or does not go on one page.
    """
    compared = [path for path in results if (path / CELLS).is_dir()]
    if not compared:
        for path in results:
            if not (path / "result.json").exists():
                raise ValueError(
                    f"{str(path)!r} holds no result.json and no cells of a comparison: it is not "
                    "the directory of a finished run."
                )
        return runs_document([RunFiles.read(path) for path in results])
    if len(results) > 1:
        raise ValueError(
            f"RESULTS must be one comparison, or runs, got {len(results)} directories with "
            f"{str(compared[0])!r} among them, which is a comparison: it has a page of its own."
        )
    from fedpriv.simulations.compare.comparison import read_comparison

    return comparison_document_in(read_comparison(results[0]))


def comparison_document_in(comparison: Comparison) -> Document:
    """The report of a comparison, with what lies beside it."""
    from fedpriv.simulations.report.of_comparison import comparison_document

    found = [comparison.directory / name for name in (MACHINE, AUDIT)]
    known = [read_json(path) if path.exists() else None for path in found]
    return comparison_document(comparison, machine=known[0], audit=known[1])


def write_report(document: Document, directory: Path) -> list[Path]:
    """Write `report.json`, and the page if Jinja is there; of a release only what is stated."""
    values = document.to_dict()
    if not document.simulated:
        _require_stated(values)
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    paths = [directory / NUMBERS]
    if find_spec("jinja2") is not None:
        from fedpriv.simulations.report.render import page

        replace_file(directory / PAGE, page(json.loads(text)))
        paths.insert(0, directory / PAGE)
    replace_file(directory / NUMBERS, text)  # last: where it is, all of the report is
    return paths


def _require_stated(values: dict[str, Any]) -> None:
    """Refuse a section that `fedpriv.simulations.run.release_outcome` has no origin for."""
    sift({"head": True, **{section["id"]: True for section in values["sections"]}}, REPORT)
    if unstated := {PAGE, NUMBERS} - FILES.keys():
        raise RuntimeError(
            f"{sorted(unstated)} must be stated in simulations/run/release_outcome.py."
        )


def leave_report(directory: Path, *, simulated: bool) -> None:
    """Write the report of a run that has just finished; a fault is told, and undoes nothing."""
    try:
        if simulated:
            write_json(directory / MACHINE, machine())
        write_report(read_document([directory]), directory)
    except Exception as error:  # the run is done and paid for
        warnings.warn(
            f"the report of {str(directory)!r} was not written: {error} The results are complete; "
            f"try again with: fedpriv report {directory}.",
            stacklevel=2,
        )
