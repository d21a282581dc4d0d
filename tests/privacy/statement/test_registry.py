"""The registry entry of a statement, against the rules of the registry that it is written for.

The rules are our reading of the schema of opendp/deployments-registry-data, July 2026: which keys
an entry may have, which it must, and of what type or choice their values are.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import yaml

from fedpriv.privacy.statement import Statement, to_registry_yaml
from tests.privacy.statement.test_statement import STATEMENTS, gradient_statement, output_statement

# A key with * is required. A value is a table, a type, a tuple of choices, or a list of one type.
RULES: dict[str, Any] = {
    "*url_slug": str,
    "*status": (
        "Converted",
        "Draft",
        "Pending",
        "Changes Required",
        "Approved",
        "Approved (Update Requested)",
        "Approved (Pending)",
    ),
    "*tier": (1, 2, 3),
    "*deployment": {
        "*basic": {
            "*name": str,
            "*data_curators": [str],
            "*description": str,
            "*intended_use": str,
            "*data_product_type": (
                "Summary statistics",
                "Machine learning model",
                "Dataset",
                "Synthetic data",
                "Interactive API",
                "SQL queries",
            ),
            "*data_product_region": str,
            "*publication_date": date,
            "data_product_sector": (
                "Technology",
                "Healthcare",
                "Education",
                "Government",
                "Energy",
                "Finance",
            ),
        },
        "dp_variant": {
            "variant_name": (
                "Pure DP",
                "Approximate DP",
                "Zero-concentrated DP",
                "Renyi DP",
                "Custom",
            ),
            "data_domain": str,
            "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": str,
            "privacy_unit_details": str,
            "privacy_parameters": {"epsilon": float, "delta": float, "rho": float},
            "privacy_parameters_details": str,
        },
        "deployment_model": {
            "model_name": ("Local", "Central", "Shuffle", "Federated", "Varies"),
            "model_name_details": str,
            "actors": str,
            "release_type": ("One release", "Many releases"),
            "release_type_details": str,
            "data_source_type": ("Static", "Dynamic"),
            "data_source_type_details": str,
            "access_type": ("Interactive", "Non-interactive"),
            "access_type_details": str,
        },
        "accounting": {"post_processing": str, "composition": str},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": str,
            "mechanisms": str,
            "justification": str,
        },
        "administrative": {"sources": str, "notes": str, "*registry_authors": [str]},
    },
}


def complaints(value: Any, rule: Any, where: str = "entry") -> list[str]:
    if isinstance(rule, dict):
        if not isinstance(value, dict):
            return [f"{where} is no table"]
        known = {key.lstrip("*"): inner for key, inner in rule.items()}
        missing = [key for key in rule if key.startswith("*") and key[1:] not in value]
        return [
            *(f"{where}.{key} is not known" for key in value if key not in known),
            *(f"{where}.{key[1:]} is missing" for key in missing),
            *(
                line
                for key, inner in known.items()
                if key in value
                for line in complaints(value[key], inner, f"{where}.{key}")
            ),
        ]
    if isinstance(rule, tuple):
        return [] if value in rule else [f"{where} is none of {rule}"]
    if isinstance(rule, list):
        fine = isinstance(value, list) and value and all(isinstance(v, rule[0]) for v in value)
        return [] if fine else [f"{where} is no list"]
    if rule is date:  # as text, not as a date of YAML's own
        try:
            date.fromisoformat(value)
        except (TypeError, ValueError):
            return [f"{where} is no date"]
        return []
    if rule is float:
        return [] if type(value) in (int, float) else [f"{where} is no number"]
    return [] if isinstance(value, rule) else [f"{where} is no {rule.__name__}"]


def entry_of(statement: Statement) -> dict[str, Any]:
    loaded = yaml.safe_load(to_registry_yaml(statement))
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("strategy", STATEMENTS)
def test_an_entry_keeps_the_rules_of_the_registry(strategy: str) -> None:
    assert complaints(entry_of(STATEMENTS[strategy]()), RULES) == []


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda e: e.pop("url_slug"), "entry.url_slug is missing"),
        (lambda e: e.update(tier=0), "entry.tier is none of"),
        (lambda e: e["deployment"].update(product={}), "entry.deployment.product is not known"),
        (lambda e: e["deployment"].pop("basic"), "entry.deployment.basic is missing"),
        (
            lambda e: e["deployment"]["deployment_model"].update(model_name="Distributed"),
            "entry.deployment.deployment_model.model_name is none of",
        ),
        (
            lambda e: e["deployment"]["basic"].update(publication_date="TO BE FILLED IN"),
            "entry.deployment.basic.publication_date is no date",
        ),
        (
            lambda e: e["deployment"]["administrative"].update(registry_authors=[]),
            "entry.deployment.administrative.registry_authors is no list",
        ),
        (
            lambda e: e["deployment"]["privacy_loss"]["privacy_parameters"].update(epsilon="1"),
            "entry.deployment.privacy_loss.privacy_parameters.epsilon is no number",
        ),
    ],
)
def test_the_rules_refuse_what_the_registry_refuses(spoil: Any, complaint: str) -> None:
    entry = entry_of(output_statement())
    spoil(entry)
    (message,) = complaints(entry, RULES)
    assert message.startswith(complaint)


def test_blanks_are_left_for_people_and_numbers_are_the_statement_s() -> None:
    statement = output_statement()
    deployment = entry_of(statement)["deployment"]
    assert deployment["basic"]["data_curators"] == ["TO BE FILLED IN"]
    assert deployment["administrative"]["registry_authors"] == ["TO BE FILLED IN"]
    assert deployment["dp_variant"]["variant_name"] == "Pure DP"
    assert deployment["privacy_loss"]["privacy_parameters"]["epsilon"] == statement.epsilon == 0.5
    assert "delta" not in deployment["privacy_loss"]["privacy_parameters"]


@pytest.mark.parametrize(
    ("strategy", "model"), [("output", "Central"), ("gradient", "Central"), ("shares", "Federated")]
)
def test_noise_of_the_parties_is_the_federated_model(strategy: str, model: str) -> None:
    entry = entry_of(STATEMENTS[strategy]())
    assert entry["deployment"]["deployment_model"]["model_name"] == model


def test_the_address_is_made_as_the_registry_makes_it() -> None:
    """Name, curators and year; and it must be the first thing of the file, where it is updated."""
    assert to_registry_yaml(output_statement()).startswith(
        "url_slug: chem97-to-be-filled-in-2026\nstatus: Draft\n"
    )
    named = entry_of(output_statement(data="Mortality & births, N.Y._v2"))
    assert named["url_slug"] == "mortality-births-n-y--v2-to-be-filled-in-2026"


def test_a_run_without_a_date_has_the_registry_s_blank_for_one() -> None:
    assert entry_of(gradient_statement())["deployment"]["basic"]["publication_date"] == "1900-01-01"


@pytest.mark.parametrize("strategy", STATEMENTS)
def test_no_text_is_folded(strategy: str) -> None:
    for token in yaml.scan(to_registry_yaml(STATEMENTS[strategy]())):
        assert getattr(token, "style", None) in (None, "|", '"', "'")
