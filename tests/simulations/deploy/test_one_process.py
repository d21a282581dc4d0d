"""A deployed run in one process is one: signed by everybody, and paid for by every ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fedpriv._toml import to_toml
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.simulations.deploy.run.one_process import run_in_one_process

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Founder

ROUNDS = 2


def test_everybody_pays_and_signs_and_a_real_federation_is_left_alone(
    deployment: Founder, fedpriv: Command, tmp_path: Path
) -> None:
    made = deployment()
    study = {
        "data": {"schema": str(tmp_path / "clinics.toml")},
        "strategy": {"name": "gradient-perturbation", "rounds": ROUNDS},
        "run": {"engine": "deployment", "secure_aggregation": "active"},
    }
    file = tmp_path / "study.toml"
    file.write_text(to_toml(study))
    parties = made.root / "parties"
    directory = run_in_one_process(file, server=made.server.root, parties=parties)
    roster = made.server.roster
    verified = fedpriv("verify", directory, "--roster", roster, "--complete")
    assert verified.code == 0, verified.out
    for party in made.parties:
        with Ledger.open(next(party.root.glob("*.ledger")), read_only=True) as ledger:
            kinds = [row.kind for row in ledger.rows()]
        assert kinds.count(Kind.RESERVED) == ROUNDS

    (made.server.nodes / "north.json").write_text('{"node": "7", "key": "ssh"}')
    with pytest.raises(ValueError, match="it is a real federation, whose runs are those of"):
        run_in_one_process(file, server=made.server.root, parties=parties)
