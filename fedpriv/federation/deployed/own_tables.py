"""Own tables of a deployed party: read by the rules, and bound to its ledger as they were read.

A ledger that is bound to one table, and an answer that is of another, would not be about the same
people. So the identity of a table is given only while its file is the one that was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.data import require_releasable, table_identity
from fedpriv.data.tables.files import Version
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data import Dataset, Files
    from fedpriv.federation.deployed.engagement import Engagement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnTable:
    """A table that was read.

    Attributes:
        path: Its file.
        version: The file's, before it was read.
        dataset: What was read.
    """

    path: Path
    version: Version | None
    dataset: Dataset

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        schema: Path,
        files: Files,
        run: Engagement | None = None,
    ) -> OwnTable:
        """Read a table by the rules of a deployment; `ValueError` if it cannot be used.

        Features and labels, or what ``run`` reads.
        """
        require_releasable(files.schema(schema), deployed=True)
        version = Version.of(path)
        dataset = (files.table if run is None else run.reader(files))(path, schema=schema)
        if dataset.schema is not None:  # which may have changed since the first line
            require_releasable(dataset.schema, deployed=True)
        return cls(path=path, version=version, dataset=dataset)

    def identity(self) -> bytes:
        """What a ledger is bound to; `ValueError` if the file is not the one that was read."""
        identity = table_identity(self.path)
        if Version.of(self.path) != self.version:
            raise ValueError("its table was changed while it was read. Ask again.")
        return identity

    def whom(self, unit: Unit) -> str | None:
        """The column that says who is one person, if persons are the unit: the ledger keeps it."""
        schema = self.dataset.schema
        return None if schema is None or unit is not Unit.PERSON else schema.person
