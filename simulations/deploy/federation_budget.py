"""The budget of a federation: one ledger at its server, for all runs; proposed to its parties, too.

It is fixed when the federation is founded, and stands in ``[budget]`` of the server's federation
file. A party decides about its own budget, in its own file, and keeps a ledger of its own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.budget_terms import parse_budget
from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY
from fedpriv.privacy.ledger import LedgerMismatch, create_if_first
from fedpriv.privacy.unit import DEFAULT_UNIT
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.run.files import PRIVATE, read_json

if TYPE_CHECKING:
    from fedpriv.federation.deployed.budget_terms import BudgetTerms
    from fedpriv.simulations.deploy.federation import FederationFile
    from fedpriv.simulations.deploy.folders import ServerFolder

DEFAULTS: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "adjacency": DEFAULT_ADJACENCY.value,
    "unit": DEFAULT_UNIT.value,
}


def budget_of(federation: FederationFile) -> BudgetTerms:
    """The terms of a federation, with what its file leaves open filled in."""
    return parse_budget({**DEFAULTS, **federation.budget})


def budget_table(federation: FederationFile) -> dict[str, Any]:
    """``[budget]`` with every key, so that no later version fills one in otherwise."""
    composition = budget_of(federation).composition
    return {**DEFAULTS, **federation.budget, "composition": composition}


def ledger_path(folder: ServerFolder) -> Path:
    """Where the ledger of a federation is, or will be."""
    name = read_federation(folder.federation).name
    return folder.root.resolve() / f"{name}.ledger"


def federation_ledger(folder: ServerFolder, runs: Path) -> Path:
    """The ledger of a federation, which its first run makes; never a second one.

    Args:
        folder: The server's.
        runs: Where the runs are that were paid from it.

    Raises:
        LedgerMissing: A run was paid for, and the ledger is gone.
        LedgerMismatch: It was made with another budget than the federation file states.
    """
    federation = read_federation(folder.federation)
    terms, path = budget_of(federation), ledger_path(folder)
    create_if_first(
        path,
        used_by=_earlier_run(runs, path.name),
        create=partial(terms.new_ledger, path, name=federation.name),
    )
    try:
        terms.open_ledger(path, read_only=True).close()
    except LedgerMismatch as error:
        raise LedgerMismatch(
            f"{error} Let [budget] of {str(folder.federation)!r} say what {path.name!r} was made "
            "with."
        ) from None
    return path


def _earlier_run(runs: Path, name: str) -> str | None:
    """A run that was paid for, in words; None if there was none."""
    for file in sorted(runs.glob(f"*/{PRIVATE}/run.json")):
        paid_from = read_json(file).get("ledger")
        if paid_from is not None:
            known = Path(paid_from).name
            renamed = "" if known == name else f", as {known!r},"
            return f"the run in {str(file.parents[1])!r}{renamed}"
    return None
