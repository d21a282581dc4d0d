"""The end of a run: its result comes last, and what it needs no more is gone."""

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
    """Write the result, which says that everything else is there; the page is made from it.

    A secret goes before: what it drew was released, and a finished run need not be looked at again.
    """
    forget_secret(session.directory)
    write_json(session.directory / "result.json", result)
    tidy(session)
    return result


def tidy(session: Session) -> None:
    """Forget what a finished run needs no more, and leave its page, unless that was done before."""
    (private(session.directory) / CHECKPOINT).unlink(missing_ok=True)
    forget_secret(session.directory)  # which an older version kept until now
    forget_progress(session.directory)
    if not session.prepared.experiment.describing:
        from fedpriv.simulations.report.files import NUMBERS, leave_report  # slow to import

        if not (session.directory / NUMBERS).exists():
            leave_report(session.directory, simulated=not session.identity.release)


def note(session: Session, ledger: Ledger, result: dict[str, Any]) -> None:
    """Leave one uncharged row about a simulation in a ledger: the same whenever it is repeated.

    Nothing in it follows from a record, for a ledger is exported to auditors: no number of rounds,
    which under the seed of a simulation is that of the records, where the budget or a fit ends it.
    """
    keys = (
        "strategy", "data", "config_hash", "epsilon", "delta", "adjacency", "unit", "parties",
    )  # fmt: skip
    ledger.record_simulation(session.identity.run, {key: result[key] for key in keys})
