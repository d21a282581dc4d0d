"""The file of a signed statement, and the roster that it is held against."""

from __future__ import annotations

from hashlib import file_digest
from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv.federation.deployed.statements.statement_document import Finding, Member
from fedpriv.federation.deployed.statements.verifying import Pinned
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.statement.signed import MOST_BYTES, NotCanonical, read_signed
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.describe.files import STATISTICS_FILE
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.run.model_file import NAME
from fedpriv.simulations.run.release_outcome import SIGNED
from fedpriv.simulations.run.statement.wording import Wording

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from fedpriv.privacy.statement.signed import SignedStatement
    from fedpriv.simulations.deploy.members.roster import Roster


TEXT, ENTRY = "statement.txt", "statement.yaml"
UNSIGNED, PLAN, RESULT = "statement.json", "plan.json", "result.json"
_COEFFICIENTS = f" The coefficients in {TEXT} are those of {RESULT}, which nobody has signed."
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)


def read_statement(path: Path) -> SignedStatement:
    """Read a signed statement, or that of a directory.

    Raises:
        ValueError: It cannot be read.
        NotCanonical: It can, and is none, or was changed.
    """
    if (path / RESULT).exists() and not (path / SIGNED).exists():
        raise ValueError(
            f"{str(path)!r} has no {SIGNED}: parties sign the statement of a deployed run, and no "
            "party signed this one. A release in one place, or a simulation, is signed as a whole: "
            f"make a dossier of it, with `fedpriv dossier {path} --new-key FILE`, and verify that."
        )
    path = path / SIGNED if path.is_dir() else path
    if path.exists() and not path.is_file():
        raise NotCanonical(f"{str(path)!r} is no file.")
    try:
        with path.open("rb") as file:
            return read_signed(file.read(MOST_BYTES + 2))  # which is too much
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
    statement = document.get("statement")
    plan = statement.get("plan") if isinstance(statement, dict) else None
    repeated = {UNSIGNED: statement, PLAN: plan}
    looked_at = (*stated, *repeated, TEXT, ENTRY, RESULT)
    if odd := [n for n in looked_at if (folder / n).exists() and not (folder / n).is_file()]:
        words = f"{', '.join(odd)} beside it: no file."  # a pipe, say, which might never end
        return Finding(check="files", passed=False, words=words)
    found = [name for name in stated if (folder / name).exists()]
    wrong = [name for name in found if _digest(folder / name) != stated[name]]
    there = [name for name in repeated if (folder / name).exists()]
    found += there
    wrong += [name for name in there if not _says(folder / name, repeated[name])]
    worded, remark = _other_words(folder, document)
    found += worded
    wrong += [name for name, complaint in worded.items() if complaint is not None]
    words = f"{', '.join(wrong or found)} beside it: "
    if wrong:
        words += f"not what was signed.{''.join({*filter(None, worded.values())})}"
        return Finding(check="files", passed=False, words=words)
    others = sorted(each.name for each in folder.iterdir() if each.name not in {*looked_at, SIGNED})
    unseen = f" Not looked at: {', '.join(others)}." if others else ""
    if not found:
        return Finding(check="files", passed=None, words=f"there are none beside it.{unseen}")
    words = f"{words}as they were signed.{remark}{unseen}"
    return Finding(check="files", passed=True, words=words)


def _says(path: Path, value: object) -> bool:
    """Whether a file of JSON is written like a value: to Python, true and 1 and 1.0 are equal."""
    try:
        return canonical_json(read_json(path)) == canonical_json(value)
    except ValueError:
        return False


def _digest(path: Path) -> str:
    """SHA-256 of a file, however long."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _other_words(folder: Path, document: Mapping[str, Any]) -> tuple[dict[str, str | None], str]:
    """By name, the text and the entry that lie beside a statement: None, if it says the same.

    Else what more there is to say: another version of fedpriv may have other words. A server names
    the version that it likes, and no party that signs has another one's words to hold it to: so it
    fails, too, as of a dossier, and only that version can tell. Then what of a text that says the
    same no party has signed.
    """
    there = [folder / name for name in (TEXT, ENTRY) if (folder / name).exists()]
    result = folder / RESULT
    try:
        known = read_json(result) if result.exists() else {}
        wording = Wording.of(document["statement"], result=known)
    except _DAMAGED:
        return dict.fromkeys((path.name for path in there), ""), ""
    said = {}
    for path in there:
        of = wording.of_text if path.name == TEXT else wording.of_entry
        try:
            departs = bool(of(path.read_bytes()))
        except _DAMAGED:
            departs = True
        said[path.name] = wording.elsewhere if departs else None
    unsigned = TEXT in said and not wording.vouched
    return said, _COEFFICIENTS if unsigned else ""


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
