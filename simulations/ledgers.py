"""The ledger of a run: opened, or made, and bound to the records that it speaks of."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from simulations.records import raw_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulations.session import Session


@contextmanager
def open_ledger(session: Session) -> Iterator[Ledger | None]:
    """The ledger that the run started with; None if it has none.

    A real release binds it to the whole data set, before split and partition: another data set is
    refused. Where there is no file yet, a real release makes one with the budget of its experiment.
    """
    identity, experiment = session.identity, session.prepared.experiment
    if identity.ledger is None:
        yield None
        return
    path = Path(identity.ledger)
    privacy = experiment.privacy
    if identity.release and not path.exists():
        if not path.parent.is_dir():
            raise ValueError(f"--ledger {str(path)!r}: its folder does not exist.")
        Ledger.create(
            path,
            data_name=experiment.data.title,
            budget=Budget(epsilon=privacy.epsilon, delta=privacy.delta),
            adjacency=privacy.adjacency,
        ).close()
    with Ledger.open(path, adjacency=privacy.adjacency) as ledger:
        if identity.release:
            ledger.bind_data(*raw_arrays(experiment.data))
        yield ledger
