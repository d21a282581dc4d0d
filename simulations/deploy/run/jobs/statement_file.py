"""The file of a signed statement, and the roster that it is held against."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv.federation.deployed.statements.statement_document import Finding, Member
from fedpriv.federation.deployed.statements.verifying import Pinned
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.statement.signed import NotCanonical, read_signed
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.describe.files import STATISTICS_FILE
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.run.model_file import NAME
from fedpriv.simulations.run.release_outcome import SIGNED

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.statement.signed import SignedStatement
    from fedpriv.simulations.deploy.members.roster import Roster


def read_statement(path: Path) -> SignedStatement:
    """Read a signed statement, or that of a directory.

    Raises:
        ValueError: It cannot be read.
        NotCanonical: It can, and is none, or was changed.
    """
    path = path / SIGNED if path.is_dir() else path
    try:
        return read_signed(path.read_bytes())
    except OSError as error:
        raise ValueError(
            f"signed statement {str(path)!r} cannot be read: {error.strerror}."
        ) from None
    except NotCanonical as error:
        raise NotCanonical(
            f"{str(path)!r} is not a signed statement: {error} A deployed run leaves one as "
            f"{SIGNED}; statement.json beside it is not signed."
        ) from None


def files_beside(folder: Path, signed: SignedStatement) -> Finding:
    """Whether the files in the directory of a statement are those that it is about."""
    document = signed.document
    stated = {
        NAME: document.get("model"),
        STATISTICS_FILE: document.get("model"),
        "config.toml": document.get("experiment"),
    }
    found = [name for name in stated if (folder / name).exists()]
    wrong = [
        name for name in found if sha256((folder / name).read_bytes()).hexdigest() != stated[name]
    ]
    unsigned = folder / "statement.json"
    if unsigned.exists():
        found.append(unsigned.name)
        try:
            same = canonical_json(read_json(unsigned)) == canonical_json(document.get("statement"))
        except ValueError:
            same = False
        wrong += [] if same else [unsigned.name]
    words = f"{', '.join(wrong or found)} beside it: "
    if wrong:
        return Finding(check="files", passed=False, words=f"{words}not what was signed.")
    if not found:
        return Finding(check="files", passed=None, words="there are none beside it.")
    return Finding(check="files", passed=True, words=f"{words}as they were signed.")


def write_statement_file(directory: Path, signed: SignedStatement) -> None:
    """Keep a signed statement in the directory of its run."""
    replace_file(directory / SIGNED, signed.to_text())


def members(roster: Roster) -> tuple[Member, ...]:
    """The parties of a roster as a statement names them."""
    return tuple(
        Member(number=roster.number(each.name), name=each.name, identity=each.identity)
        for each in roster.seats
    )


def pinned(path: Path) -> Pinned:
    """A roster file that a verifier trusts."""
    roster = read_roster(path)
    return Pinned(digest=roster.digest.hex(), server=roster.server, members=members(roster))
