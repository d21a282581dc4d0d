"""Engagement: a run, as it presents itself to a deployed party."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fedpriv.data import bound
from fedpriv.federation.table_task import TableTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.data import Bounds, Dataset, Files, Records
    from fedpriv.federation.protocol.level import Protection
    from fedpriv.federation.task import Task
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.shares import Sharing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Engagement:
    """A run, as it presents itself to a party. Nothing here is believed where it can be checked.

    Attributes:
        strategy: What the run says that it does; the queries that it may put are checked apart.
        run: What the names of its queries' run begin with.
        task: Model and loss as the run states them, with the sizes of the party's own roster.
        bounds: How features become vectors of bounded norm.
        protection: How answers are protected on the way to a sum.
        roster: The digest of the party's own roster: runs and releases belong to one epoch of it.
        budget: (ε, δ) that the run says it may cost.
        shown: What the experiment is known by that the party was shown: all that it says, which is
            more than the name of the run covers, but for where files lie.
        sharing: Who brings shares of the noise, if the parties add it.
        forms: Which forms of query it puts (`forms_of`); None if any.
        magnitudes: Columns of numbers without bounds, whose magnitudes alone it describes.
    """

    strategy: str
    run: str
    task: Task
    bounds: Bounds
    protection: Protection
    roster: bytes
    budget: Budget
    shown: bytes
    sharing: Sharing | None = None
    forms: frozenset[str] | None = None
    magnitudes: tuple[str, ...] = ()

    @property
    def describes(self) -> bool:
        """Whether it describes tables, and learns nothing: parties then read columns of codes."""
        return isinstance(self.task, TableTask)

    def reader(self, files: Files) -> Callable[..., Dataset]:
        """Reads a party's table: features and labels, codes, or codes of numbers without bounds."""
        if self.magnitudes:
            return partial(files.magnitudes, names=self.magnitudes)
        return files.columns if self.describes else files.table

    def records(self, dataset: Dataset) -> Records:
        """What a party has read, with features of bounded norm; codes are bounded already."""
        return (dataset if self.describes else bound(dataset, self.bounds)).train
