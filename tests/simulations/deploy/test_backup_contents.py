"""What is in a backup: no secret, no record, nothing half done, and nothing of others."""

from __future__ import annotations

import shutil
import tarfile
import threading
from typing import TYPE_CHECKING

import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.privacy.ledger import LedgerMismatch
from fedpriv.simulations.deploy.backups.archive import Archive, read_archive, write_archive
from fedpriv.simulations.deploy.backups.newest import Assurance
from fedpriv.simulations.deploy.backups.restore import restore
from tests.federation.deployed.north_party import RUN, answer, query
from tests.simulations.deploy.backed_up import head, lose, of_another_run, put_back, saved

if TYPE_CHECKING:
    from pathlib import Path

    from tests.federation.deployed.deployments import Deployment


def test_a_backup_holds_no_secret_of_the_protocol_and_no_record(party: Deployment) -> None:
    journal = Journal(party.home("north") / "state")
    memory = journal.memory(RUN)
    given = journal.given(query(party).run)
    assert given is not None
    backup = saved(party)
    data = backup.read_bytes()
    for secret in (memory.channel, given.salt, given.vector.tobytes()):
        assert secret not in data
    keyed = saved(party, "keyed.backup", keys=True)
    assert {name.split("/")[0] for name in read_archive(backup).parts} == {"ledgers"}
    home = {name for name, _ in read_archive(keyed).under("home")}
    assert home == {"ca.crt", "identity.key", "party.toml", "roster.toml", "schema.toml"}
    assert {path.stat().st_mode & 0o777 for path in (backup, keyed)} == {0o600}


def test_a_backup_waits_for_the_message_that_is_being_handled(party: Deployment) -> None:
    taking = threading.Thread(target=saved, args=(party,))
    with Journal(party.home("north") / "state").held():
        taking.start()
        taking.join(0.2)
        assert taking.is_alive()
    taking.join()
    assert (party.folder / "north.backup").exists()


def test_an_old_ledger_is_not_backed_up(party: Deployment) -> None:
    path = party.home("north") / "north.ledger"
    old = path.read_bytes()
    answer(party, query(party, 1))
    path.write_bytes(old)
    with pytest.raises(ValueError, match="older than the state directory"):
        saved(party)


def test_with_keys_a_party_is_put_back_on_an_empty_machine(party: Deployment) -> None:
    backup, then = saved(party, keys=True), head(party)
    records = (party.home("north") / "records.csv").read_bytes()
    shutil.rmtree(party.home("north"))
    put_back(party, backup, head=then)
    assert (party.home("north") / "identity.key").stat().st_mode & 0o777 == 0o600
    (party.home("north") / "records.csv").write_bytes(records)
    answer(party, of_another_run(party))


def test_a_backup_of_another_party_or_budget_is_refused(party: Deployment) -> None:
    backup = saved(party)
    with pytest.raises(ValueError, match=r"is of party 'north', and the directory of party 'east'"):
        restore(backup, party.home("east"), Assurance(lost=True))
    lose(party)
    party.write_party("north", epsilon=3.0)
    with pytest.raises(LedgerMismatch, match="budget"):
        put_back(party, backup, lost=True)
    assert not (party.home("north") / "north.ledger").exists()


def test_a_damaged_or_hostile_archive_is_refused(tmp_path: Path) -> None:
    good = tmp_path / "good"
    parts = {"ledgers/a": b"1" * 5000}
    write_archive(good, Archive(role="party", name="north", facts={}, parts=parts))
    with pytest.raises(ValueError, match="a backup replaces no other"):
        write_archive(good, Archive(role="party", name="north", facts={}, parts=parts))
    data = good.read_bytes()
    for name, changed, match in (
        ("cut", data[:4000], "no backup of fedpriv, or is cut short"),
        ("changed", data.replace(b"1" * 5000, b"2" * 5000), "damaged or was changed"),
        ("text", b"no tar", "no backup of fedpriv"),
    ):
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(ValueError, match=match):
            read_archive(tmp_path / name)
    for name in ("../identity.key", "/etc/passwd", "a//b"):
        path = tmp_path / "hostile"
        path.unlink(missing_ok=True)
        write_archive(path, Archive(role="party", name="n", facts={}, parts={name: b""}))
        with pytest.raises(ValueError, match="must not have a part"):
            read_archive(path)
    with tarfile.open(tmp_path / "good") as tar:
        assert tar.getnames() == ["backup.json", "ledgers/a"]
