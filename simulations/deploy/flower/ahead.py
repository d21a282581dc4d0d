"""Preparation of a party's worker before a message comes: compiled code, and the party's files.

None of it decides anything. The copy of the worker that answers a message opens policy, ledger,
journal, roster and keys itself, and reads again whatever was edited meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedpriv.data import KeptFiles, keep
from fedpriv.data.tables.files import Version
from fedpriv.federation.deployed.policy import read_party

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A party's files, as they were when the worker last looked.

    Attributes:
        policy: The version of the party's own file; None if there was none.
        data: Where its records are, by that file.
        schema: Where their schema is.
        files: Both, as they were read.
    """

    policy: Version | None = None
    data: Path | None = None
    schema: Path | None = None
    files: KeptFiles = field(default_factory=KeptFiles, repr=False)

    def looked_at(self, party: Path) -> Ahead:
        """The same, if no file has changed; otherwise all that can be read of the present files.

        Never raises because of a faulty file: whoever needs the file reports it.
        """
        policy = Version.of(party)
        data, schema = self.data, self.schema
        if policy != self.policy:
            data, schema = None, None
            with suppress(ValueError):
                file = read_party(party)
                data, schema = file.data, file.schema
        if data is None or schema is None:
            return Ahead(policy=policy)
        if policy == self.policy and self.files.holds(data, schema=schema):
            return self
        files = keep(data, schema=schema)
        return Ahead(policy=policy, data=data, schema=schema, files=files)
