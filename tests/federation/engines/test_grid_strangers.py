"""Who does not belong to a Flower grid is not let in, and no sum has an answer of theirs."""

from __future__ import annotations

from dataclasses import replace

from fedpriv.federation.engines.simulated_keys import simulated_keys
from tests.federation.engines.grids import ROSTER, SIZES, Stage, host, who

ALL = set(range(len(SIZES)))


def test_a_party_that_wants_another_protection_is_not_let_in() -> None:
    stage = Stage("semi-honest", other_hosts={2: host(2, "active")})
    assert who(stage.sums(1)[0]) == ALL - {2}
    assert stage.federation.report.rejected == {"other protection": 1}


def test_a_second_node_with_the_same_number_is_not_let_in() -> None:
    stage = Stage("semi-honest", other_hosts={3: host(2)})
    assert who(stage.sums(1)[0]) == ALL - {3}
    assert stage.federation.report.rejected == {"stranger": 1}


def test_an_impostor_without_the_identity_key_stays_out_of_the_sum() -> None:
    """It joins under a free number; its signature is not the one that the roster pins."""
    forged = simulated_keys(99, 2, (*ROSTER[:2], b"x" * 32, *ROSTER[3:]))
    own = forged.identity.public_key().public_bytes_raw()
    roster = (*ROSTER[:2], own, *ROSTER[3:])
    impostor = replace(host(2), keys=replace(forged, roster=roster))
    stage = Stage("semi-honest", other_hosts={2: impostor})
    assert who(stage.sums(1)[0]) == ALL - {2}
    assert stage.federation.report.rejected["BadSignature"] == 2  # this round and the next
