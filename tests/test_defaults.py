"""One default for one question, wherever it is asked."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from fedpriv import strategies
from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv.federation.deployed.budget_terms import parse_budget
from fedpriv.federation.deployed.policy import PartyPolicy
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.secagg import Parameters
from fedpriv.simulations.commands import accounting, ledger, protector
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.federation_budget import budget_of
from fedpriv.simulations.deploy.templates import party_values
from fedpriv.simulations.experiment.sections import PrivacySection


def default_of(function: Any, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def test_masks_shares_policies_and_experiments_count_the_same_colluders() -> None:
    (of_a_policy,) = (each.default for each in fields(PartyPolicy) if each.name == "colluding")
    assert {
        of_a_policy,
        Policy().colluding,
        Protection().corrupt,
        Sharing(parties=5).colluding,
        PrivacySection().colluding,
        default_of(strategies.build, "colluding"),
        default_of(Parameters.plan, "corrupt"),
    } == {DEFAULT_COLLUDING}


def test_ledgers_experiments_and_proposals_compare_the_same_data_sets() -> None:
    federation = parse_federation(
        {"name": "x", "server": {"address": "127.0.0.1"}, "party": [{"name": "north"}]}
    )
    proposed = party_values(federation, "north", server="x", identity="x")
    assert {
        default_of(ledger.init, "adjacency").value,
        default_of(accounting.account, "adjacency").value,
        default_of(accounting.calibrate, "adjacency").value,
        default_of(protector.train, "adjacency"),
        PrivacySection().adjacency,
        proposed["budget"]["adjacency"],
        budget_of(federation).adjacency.value,
    } == {DEFAULT_ADJACENCY.value}
    assert "colluding" not in proposed["policy"]  # the default stands


def test_a_party_and_its_federation_add_up_by_the_same_rule_unless_they_say_otherwise() -> None:
    federation = parse_federation(
        {"name": "x", "server": {"address": "127.0.0.1"}, "party": [{"name": "north"}]}
    )
    table = party_values(federation, "north", server="x", identity="x")["budget"]
    bare = {key: value for key, value in table.items() if key != "composition"}
    assert {
        table["composition"],
        parse_budget(bare).composition,
        budget_of(federation).composition,
    } == {"rdp"}
