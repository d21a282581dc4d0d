"""Identity of the people in a data set: a digest of their records as written, not as scaled.

A ledger is bound to this digest. It does not depend on a schema, a bound, a split or a partition:
those say how records are used, and the same people have the same budget however they are used.

A table is identified by its bytes. Sorting, correcting, extending or converting it changes them,
and no program can tell a correction from another person: the owner declares it (`fedpriv ledger
bind`) and continues with the same ledger. A built-in data set is identified by its name without a
variant: all variants share some records.

The digest is not salted. It stays in memory, on its way to the salted fingerprint of a ledger; to
write it down would let anybody test a guess about the records.
"""

from __future__ import annotations

from hashlib import file_digest
from typing import TYPE_CHECKING

from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def table_identity(path: Path) -> bytes:
    """The identity of the people in the owner's file: a digest of all its bytes."""
    try:
        with path.open("rb") as file:
            return b"table " + file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def built_in_identity(name: str) -> bytes:
    """The identity of the people in a built-in data set: its name, without a variant."""
    return b"built-in " + name.partition(":")[0].encode()
