"""The statement as YAML, in the shape of an entry of the OpenDP deployments registry.

The registry (opendp/deployments-registry-data, its schema of July 2026) describes deployments for
the public. What fedpriv cannot know (curators, intended use, region, authors) is left as a marked
blank for a person to fill in; the blanks are of the types that the registry asks for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED
from fedpriv.privacy.unit import Unit, neighbours_in_words

if TYPE_CHECKING:
    from fedpriv.privacy.statement.statement import Statement

BLANK = "TO BE FILLED IN"
"""For a person to fill in."""

_NO_DATE = "1900-01-01"  # the registry's own blank, which must be a date
_DESCRIPTION = "describe"  # the strategy that learns no model
_TIER = 3  # everything is disclosed that the registry asks for
_ADJACENT = {
    Adjacency.REPLACE_ONE: "change-one distance 1",
    Adjacency.ADD_REMOVE: "symmetric distance 1",
}


def to_registry_yaml(statement: Statement) -> str:
    """An entry that can be completed and submitted; a simulation is marked in its first line."""
    entry: str = yaml.dump(
        _entry(statement), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return f"# {SIMULATED}\n{entry}" if statement.facts.simulated else entry


class _Dumper(yaml.SafeDumper):
    """Writes lists of sentences line by line: the registry allows no folded text."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _slug(name: str, curators: list[str], date: str) -> str:
    """Name, curators and year, as the registry makes its addresses."""
    parts = (name, "-".join(curators), date.split("-", maxsplit=1)[0])
    return "-".join(re.sub(r"\W+", "-", part.lower()).replace("_", "-") for part in parts)


def _entry(statement: Statement) -> dict[str, Any]:
    facts, curators = statement.facts, [BLANK]
    date = facts.date or _NO_DATE
    described = statement.plan.strategy == _DESCRIPTION
    return {
        "url_slug": _slug(facts.data, curators, date),
        "status": "Draft",
        "tier": _TIER,
        "deployment": {
            "basic": {
                "name": facts.data,
                "data_curators": curators,
                "intended_use": BLANK,
                "data_product_type": "Summary statistics"
                if described
                else "Machine learning model",
                "data_product_region": BLANK,
                "description": (
                    f"Statistics of a table held by {statement.plan.parties} parties."
                    if described
                    else f"A model learned by {statement.plan.parties} parties with "
                    f"{statement.plan.strategy}."
                ),
                "publication_date": date,
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if statement.delta else "Pure DP",
                "data_domain": (
                    f"{statement.plan.records} {statement.plan.unit.counted} held by "
                    f"{statement.plan.parties} parties"
                ),
                "unprotected_quantities": "; ".join(statement.unprotected),
            },
            "privacy_loss": _privacy_loss(statement),
            "deployment_model": _deployment_model(statement),
            "accounting": {
                "post_processing": (
                    f"The {'statistics are' if described else 'model is'} computed from the "
                    "releases alone."
                ),
                "composition": f"{statement.plan.accountant}: {statement.accountant_version}",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": facts.tuning,
                "mechanisms": (
                    f"{', '.join(statement.plan.laws)}; implemented by fedpriv {statement.version}"
                ),
                "justification": "; ".join(statement.warnings) or "no warnings",
            },
            "administrative": {
                "sources": f"fedpriv {statement.version}, run {facts.run}",
                "registry_authors": [BLANK],
            },
        },
    }


def _privacy_loss(statement: Statement) -> dict[str, Any]:
    plan, person = statement.plan, statement.per_person
    parameters: dict[str, float] = {"epsilon": statement.epsilon}
    if statement.delta:
        parameters["delta"] = statement.delta
    details = f"(epsilon, delta) of {statement.releases} releases together."
    if statement.zcdp_rho is not None:
        parameters["rho"] = statement.zcdp_rho
        details += " The same releases are rho-zCDP, too."
    return {
        "privacy_unit": plan.unit.value.capitalize(),
        "privacy_unit_details": (
            f"Data sets are adjacent with {neighbours_in_words(plan.unit, plan.adjacency)} "
            f"({_ADJACENT[plan.adjacency]}, counted in that unit). {_of_a_person(statement)}, "
            "and then for a person (epsilon, delta) = "
            f"({rounded_up(person.epsilon)}, {rounded_up(person.delta)})."
        ),
        "privacy_parameters": parameters,
        "privacy_parameters_details": details,
    }


def _deployment_model(statement: Statement) -> dict[str, Any]:
    plan = statement.plan
    at_parties = plan.noise_at == "parties"
    where = "each party, before it answers" if at_parties else "the server"
    return {
        "model_name": "Federated" if at_parties else "Central",
        "model_name_details": (
            f"noise is added by {where}; secure aggregation: {statement.trust.secure_aggregation}"
        ),
        "actors": "\n".join(f"- {line}" for line in statement.sees),
        "release_type": "One release" if plan.rounds == 1 else "Many releases",
        "release_type_details": f"{statement.releases} releases: {plan.released}.",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _of_a_person(statement: Statement) -> str:
    """How much of the data one person may be, as far as the guarantee for a person goes."""
    facts = statement.facts
    if statement.plan.unit is not Unit.PERSON:
        return f"Records of one person: at most {facts.records_per_person}, which nothing checks"
    most = "any number" if facts.person_records is None else f"at most {facts.person_records}"
    return f"Records of one person: {most} at each of up to {facts.person_parties} parties"
