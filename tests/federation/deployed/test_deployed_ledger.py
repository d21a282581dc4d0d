"""The ledger of a deployed party: it is the one of its state, and pays for nothing in vain."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fedpriv.data import DataError
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from tests.federation.deployed.deployments import SCHEMA, SIZES, Deployment
from tests.federation.deployed.fresh_parties import answer, deployed, journal, never, opened, plain

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("any_kind")
R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE


# The ledger.


def ledger_files(deployment: Deployment) -> list[Path]:
    return sorted(deployment.home("north").glob("north.ledger*"))


def test_a_ledger_that_was_put_back_pays_for_nothing(deployment: Deployment) -> None:
    """It has forgotten what was spent, and would pay for it again."""
    costly = GaussianEvent(relative_noise=3.0, adjacency=R)
    answer(deployment, plain(deployment, event=replace(costly, relative_noise=1e6)))
    (path,) = ledger_files(deployment)
    earlier = path.read_bytes()
    answer(deployment, plain(deployment, 1, event=costly))
    path.write_bytes(earlier)
    for round_ in (1, 2):
        with pytest.raises(QueryRefused, match="older than its state directory"):
            answer(deployment, plain(deployment, round_, event=costly))
    assert path.read_bytes() == earlier


def test_a_fresh_ledger_pays_for_nothing(deployment: Deployment) -> None:
    answer(deployment, plain(deployment))
    for path in ledger_files(deployment):
        path.unlink()
    settings = {"data_name": "north", "adjacency": R}
    budget = opened(deployment)._file.budget
    Ledger.create(deployment.home("north") / "north.ledger", budget=budget, **settings).close()  # type: ignore[arg-type]
    with pytest.raises(QueryRefused, match="is another one"):
        answer(deployment, plain(deployment, 1))


def test_a_ledger_without_its_mark_pays_for_nothing(deployment: Deployment) -> None:
    answer(deployment, plain(deployment))
    (deployment.home("north") / "state" / "ledger").unlink()
    with pytest.raises(QueryRefused, match="older than its state directory"):
        answer(deployment, plain(deployment, 1))


def test_a_ledger_that_has_gone_on_is_the_same_ledger(deployment: Deployment) -> None:
    """A party that was killed between its ledger and its journal answers as before."""
    answer(deployment, plain(deployment))
    mark = deployment.home("north") / "state" / "ledger"
    earlier = mark.read_bytes()
    answer(deployment, plain(deployment, 1))
    mark.write_bytes(earlier)
    answer(deployment, plain(deployment, 2))
    assert len(deployment.reserved("north")) == 3


def test_a_ledger_of_before_the_state_directory_is_taken_up(deployment: Deployment) -> None:
    """A state directory that was lost: the ledger remembers what matters, for runs to come.

    In which epoch an earlier one began, and whether its statement was signed, only the state knew.
    """
    answer(deployment, plain(deployment))
    shutil.rmtree(deployment.home("north") / "state")
    deployment.accept("north")
    with pytest.raises(QueryRefused, match="answered already"):
        answer(deployment, plain(deployment))
    with pytest.raises(QueryRefused, match="began before"):
        answer(deployment, plain(deployment, 1))
    answer(deployment, replace(plain(deployment, 1), run=f"{plain(deployment).run}b"))
    assert len(deployment.reserved("north")) == 2


# Records that cannot be used.


def edit(deployment: Deployment, old: str, new: str) -> Path:
    path = deployment.home("north") / "records.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def test_records_that_cannot_be_used_cost_nothing(deployment: Deployment) -> None:
    path = deployment.home("north") / "records.csv"
    text = path.read_text()
    costly = plain(deployment, event=GaussianEvent(relative_noise=5.0, adjacency=R))
    for old, new, message in (
        ("yes", "maybe", "cannot be used"),
        ("\n", "\n1,1,1,yes\n", "cannot be used"),
        ("\n", "\n50,0.5,yes\n", "states 40 records for 'north', and its data file has another"),
    ):
        edit(deployment, old, new)
        with pytest.raises(QueryRefused, match=message):
            answer(deployment, costly)
        path.write_text(text)
        assert deployment.reserved("north") == []
        assert not list((deployment.home("north") / "state" / "answers").iterdir())
    answer(deployment, costly)
    edit(deployment, "yes", "no")
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        answer(deployment, plain(deployment, 1))
    assert len(deployment.reserved("north")) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('[columns.sick]\nkind = "category"\nvalues = ["no", "yes"]\n', "", "label 'sick'"),
        ('label = "sick"', 'label = "sick"\nparty = "clinic"', "party"),
        ('label = "sick"', 'label = "sick"\nmissing = "drop"', "missing"),
    ],
    ids=["label", "party", "drop"],
)
def test_a_party_whose_schema_leaves_something_to_the_file_does_not_open(
    deployment: Deployment, old: str, new: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it answer, if it was opened before."""
    party, query = opened(deployment), plain(deployment)
    assert old in SCHEMA
    (deployment.home("north") / "schema.toml").write_text(SCHEMA.replace(old, new))
    monkeypatch.setattr("fedpriv.data.tables.files.read_table", never)
    with pytest.raises(DataError, match=f"^schema: {message}"):
        opened(deployment)
    with journal(deployment).held(), pytest.raises(QueryRefused, match="cannot be used"):
        party.answer(query)
    assert deployment.reserved("north") == []


def test_under_add_remove_the_number_of_records_decides_nothing(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, budget={"adjacency": "add-remove"}, sizes=(45, *SIZES[1:]))
    event = GaussianEvent(relative_noise=10.0, adjacency=A)
    answer(deployment, plain(deployment, event=event))
    assert opened(deployment).size == 45
    shutil.rmtree(deployment.home("north") / "state")
    deployment.accept("north")
    (deployment.home("north") / "north.ledger").unlink()
    edit(deployment, "\n", "\n" + 6 * "50,0.5,yes\n")
    answer(deployment, plain(deployment, event=event))  # of 46 records, one more than stated
    assert opened(deployment).size == 45
