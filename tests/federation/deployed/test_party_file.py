"""A party's file, rule by rule: every key, every error, and what is not in it."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedpriv.federation.deployed.policy import PartyPolicy, parse_party, read_party
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.ledger import LedgerMismatch
from fedpriv.privacy.unit import Unit
from tests.federation.deployed.policies import FILE, file

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE


def test_paths_are_those_beside_the_file_and_everything_is_read(tmp_path: Path) -> None:
    found = parse_party(FILE, folder=tmp_path)
    assert found.name == "north"
    assert found.data == tmp_path / "records.csv"
    assert found.certificate == tmp_path / "ca.crt"
    assert (found.budget.epsilon, found.budget.delta) == (2.0, 1e-6)
    assert found.adjacency is R
    assert found.policy.queries == ("gradient", "erm")
    assert found.policy.colluding == 0.1
    assert (found.unit, found.policy.units) == (Unit.RECORD, (Unit.RECORD,))


def test_a_budget_for_another_unit_is_what_its_ledger_is_made_for(tmp_path: Path) -> None:
    found = parse_party(file(budget={"unit": "party"}), folder=tmp_path)
    assert (found.unit, found.policy.units) == (Unit.PARTY, (Unit.PARTY,))
    with found.terms.new_ledger(found.ledger, name="north") as ledger:
        assert ledger.settings.unit is Unit.PARTY
    found.terms.open_ledger(found.ledger).close()
    with pytest.raises(LedgerMismatch, match="unit of this ledger is 'party'"):
        parse_party(FILE, folder=tmp_path).terms.open_ledger(found.ledger)


def test_only_where_a_record_is_exchanged_the_number_of_records_is_public() -> None:
    public = [
        (unit, adjacency)
        for unit in ("record", "person", "party")
        for adjacency in ("replace-one", "add-remove")
        if parse_party(
            file(budget={"unit": unit, "adjacency": adjacency}), folder=Path()
        ).counts_public
    ]
    assert public == [("record", "replace-one")]


def test_a_file_is_read_from_the_disk_or_named_in_the_error(tmp_path: Path) -> None:
    from fedpriv._toml import to_toml

    path = tmp_path / "party.toml"
    path.write_text(to_toml(FILE))
    assert read_party(path) == parse_party(FILE, folder=tmp_path.resolve())
    path.write_text("version = ")
    with pytest.raises(ValueError, match=r"party\.toml' is not TOML"):
        read_party(path)
    with pytest.raises(ValueError, match=r"cannot be read: No such file"):
        read_party(tmp_path / "none.toml")


@pytest.mark.parametrize("table", ["party", "budget", "policy"])
def test_every_key_but_the_optional_ones_must_be_there(table: str) -> None:
    for key in FILE[table]:
        values = deepcopy(FILE)
        del values[table][key]
        with pytest.raises(ValueError, match=rf"^{table}\.{key} is missing"):
            parse_party(values, folder=Path())
    values = deepcopy(FILE)
    del values[table]
    with pytest.raises(ValueError, match=rf"^\[{table}\] must be a table with"):
        parse_party(values, folder=Path())


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"policy": {"min_party": 3}}, r"^policy\.min_party is not .* 'min_parties'\? Known here"),
        ({"budget": {"epsilom": 1.0}}, r"^budget\.epsilom is not a known key.*'epsilon'"),
        ({"party": {"date": "x"}}, r"^party\.date is not a known key.*'data'"),
        ({"party": {"data": 3}}, r"^party\.data must be text, got 3"),
        ({"party": {"name": ""}}, r"^party\.name must be text, got ''"),
        ({"budget": {"epsilon": 0}}, r"^budget\.epsilon must be positive and finite, got 0"),
        ({"budget": {"delta": 1}}, r"^budget\.delta must lie in \[0, 1\), got 1"),
        ({"budget": {"adjacency": "add"}}, r"^budget\.adjacency must be .*, got 'add'"),
        ({"budget": {"unit": "patient"}}, r"^budget\.unit must be one of 'record'.*'patient'"),
        ({"policy": {"units": []}}, r"^policy\.units must name at least one"),
        ({"policy": {"units": "party"}}, r"^policy\.units must be a list of names, got 'party'"),
        ({"policy": {"units": ["parties"]}}, r"^policy\.unit must be one of .*'parties'"),
        (
            {"policy": {"units": ["record"]}, "budget": {"unit": "party"}},
            r"^policy\.units must name the unit of the budget, 'party', got \['record'\]",
        ),
        ({"policy": {"strategies": []}}, r"^policy\.strategies must name at least one"),
        ({"policy": {"strategies": "x"}}, r"^policy\.strategies must be a list of names, got 'x'"),
        ({"policy": {"queries": ["gradeint"]}}, r"^policy\.queries\[0\] .* mean 'gradient'"),
        ({"policy": {"min_parties": 1}}, r"^policy\.min_parties must be at least 2, got 1"),
        ({"policy": {"min_parties": 2.5}}, r"^policy\.min_parties must be an integer"),
        ({"policy": {"max_seconds": 0.0}}, r"^policy\.max_seconds must be positive"),
        ({"policy": {"max_seconds": float("inf")}}, r"^policy\.max_seconds must be positive"),
        ({"policy": {"max_clip": 0.0}}, r"^policy\.max_clip must be positive"),
        ({"policy": {"max_clip": float("nan")}}, r"^policy\.max_clip must be positive"),
        ({"policy": {"min_noise": -1}}, r"^policy\.min_noise must be finite and at least 0"),
        ({"policy": {"noise_at": "party"}}, r"^policy\.noise_at must be one of .*'parties'"),
        ({"policy": {"secure_aggregation": "of"}}, r"^policy\.secure_aggregation .* got 'of'"),
        ({"policy": {"colluding": 1.0}}, r"^policy\.colluding must lie in \[0, 1\)"),
        ({"policy": {"server": "sha256:12"}}, r"^policy\.server must be 'sha256:' and 64"),
        ({"policy": {"server_identity": 5}}, r"^policy\.server_identity must be 'sha256:' and 64"),
        (
            {"policy": {"noise_at": "parties", "secure_aggregation": "off"}},
            r"^policy\.secure_aggregation must not be 'off' .* Set it to 'active'",
        ),
    ],
)
def test_an_error_names_the_key_the_value_the_rule_and_the_remedy(
    tables: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse_party(file(**tables), folder=Path())


def test_a_file_of_another_version_or_with_another_table_is_refused() -> None:
    with pytest.raises(ValueError, match="version must be 1, got 2"):
        parse_party({**FILE, "version": 2}, folder=Path())
    with pytest.raises(ValueError, match=r"polices is not a known key.*'policy'"):
        parse_party({**FILE, "polices": {}}, folder=Path())


def test_the_file_on_the_documents_page_is_accepted_and_names_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "party-policy.md").read_text()
    values = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    found = parse_party(values, folder=Path("/home"))
    assert found.policy.noise_at == "parties"
    assert values["policy"].keys() == {field.name for field in fields(PartyPolicy)}
    assert values["party"].keys() == {*FILE["party"], "certificate", "test"}
