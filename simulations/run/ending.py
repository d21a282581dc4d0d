"""The end of a run: the result is written last, after files no longer needed are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.simulations.run.files import private, write_json
from fedpriv.simulations.run.kept_secret import forget_secret
from fedpriv.simulations.run.progress import forget_progress

if TYPE_CHECKING:
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.simulations.run.session import Session

CHECKPOINT = "checkpoint.npz"


def finish(session: Session, result: dict[str, Any]) -> dict[str, Any]:
    """Write the result, whose presence marks the run complete, and make the page from it.

    A secret is removed first: its draws were released, and a finished run is not reopened.
    """
    forget_secret(session.directory)
    write_json(session.directory / "result.json", result)
    tidy(session)
    return result


def tidy(session: Session) -> None:
    """Remove what a finished run no longer needs, and write its page, unless already done."""
    (private(session.directory) / CHECKPOINT).unlink(missing_ok=True)
    forget_secret(session.directory)  # which an older version kept until now
    forget_progress(session.directory)
    if not session.prepared.experiment.describing:
        from fedpriv.simulations.report.files import NUMBERS, leave_report  # slow to import

        if not (session.directory / NUMBERS).exists():
            leave_report(session.directory, simulated=not session.identity.release)


def note(session: Session, ledger: Ledger, result: dict[str, Any]) -> None:
    """Leave one uncharged row about a simulation in a ledger: the same whenever it is repeated.

    Nothing in it may depend on a record, since a ledger is exported to auditors. So it has no
    number of rounds: in a seeded simulation that depends on the records, if the budget or a fit
    ends the run.
    """
    keys = (
        "strategy", "data", "config_hash", "epsilon", "delta", "adjacency", "unit", "parties",
    )  # fmt: skip
    ledger.record_simulation(session.identity.run, {key: result[key] for key in keys})
