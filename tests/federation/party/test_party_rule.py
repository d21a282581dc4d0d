"""By which rule a party's ledger adds up: its own file says so, and no server's first question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.deployed.policy import parse_party
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.north_party import CLEAR, answer, noisy, query
from tests.federation.deployed.policies import FILE

if TYPE_CHECKING:
    from pathlib import Path

FREE = GaussianEvent(relative_noise=1e6, adjacency=Adjacency.REPLACE_ONE)


def deployed(tmp_path: Path, composition: str) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path, budget={"composition": composition}, **CLEAR)


def test_a_nearly_free_release_does_not_lock_shares_out(tmp_path: Path) -> None:
    """It once made the ledger gdp for life, whatever the party had wanted."""
    deployment = deployed(tmp_path, "rdp")
    answer(deployment, query(deployment, event=FREE))
    answer(deployment, noisy(deployment, 1))
    with deployment.ledger("north") as ledger:
        assert ledger.settings.composition == "rdp"
        ledger.verify()


def test_a_party_that_chose_gaussian_noise_refuses_shares_from_the_start(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, "gdp")
    for asked in (noisy(deployment), noisy(deployment, 1)):
        with pytest.raises(QueryRefused, match="no price for skellam releases"):
            answer(deployment, asked)
    with deployment.ledger("north") as ledger:
        assert [row.kind for row in ledger.rows()] == ["created", "composition"]
    answer(deployment, query(deployment, 2))


@pytest.mark.parametrize(
    ("noise_at", "delta", "rule"),
    [("server", 1e-6, "rdp"), ("parties", 1e-6, "rdp"), ("server", 0.0, "basic"),
     ("parties", 0.0, "basic")],
)  # fmt: skip
def test_without_a_word_the_rule_follows_from_the_party_s_own_file(
    tmp_path: Path, noise_at: str, delta: float, rule: str
) -> None:
    values: dict[str, Any] = {
        **FILE,
        "budget": {**FILE["budget"], "delta": delta},
        "policy": {**FILE["policy"], "noise_at": noise_at},
    }
    assert parse_party(values, folder=tmp_path).composition == rule


@pytest.mark.parametrize(
    ("stated", "message"),
    [("gpd", r"budget\.composition must be"), ("rdp:x", r"budget\.composition must be"),
     (7, r"budget\.composition must be text"), ("rdp:1.01", r"budget\.composition .* nothing")],
)  # fmt: skip
def test_a_rule_that_is_none_is_refused_with_the_file(
    tmp_path: Path, stated: object, message: str
) -> None:
    values = {**FILE, "budget": {**FILE["budget"], "composition": stated}}
    with pytest.raises(ValueError, match=message):
        parse_party(values, folder=tmp_path)


def test_a_changed_schema_is_no_other_data_set(tmp_path: Path) -> None:
    """A bound of the schema, and the records are the same; a changed record, and they are not."""
    deployment = deployed(tmp_path, "gdp")
    answer(deployment, query(deployment))
    home = deployment.home("north")
    schema = home / "schema.toml"
    text = schema.read_text()
    assert "max = " in text
    schema.write_text(text.replace("max = ", "max = 1", 1))
    answer(deployment, query(deployment, 1))
    records = home / "records.csv"
    records.write_bytes(records.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        answer(deployment, query(deployment, 2))
    from fedpriv.data import table_identity

    with Ledger.open(home / "north.ledger") as ledger:
        ledger.add_data(table_identity(records), reason="saved with other line ends")
    answer(deployment, replace(query(deployment, 2)))
