"""The statement as YAML, in the shape of an entry of the OpenDP deployments registry.

The registry describes deployments for the public. What fedpriv cannot know (curators, intended use,
region, sources) is left as a marked blank for a person to fill in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED

if TYPE_CHECKING:
    from fedpriv.privacy.statement.statement import Statement

_BLANK = "TO BE FILLED IN"


def to_registry_yaml(statement: Statement) -> str:
    """An entry that can be completed and submitted; a simulation is marked in its first line."""
    entry: str = yaml.safe_dump(
        _entry(statement), sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return f"# {SIMULATED}\n{entry}" if statement.facts.simulated else entry


def _entry(statement: Statement) -> dict[str, Any]:
    plan, facts, trust = statement.plan, statement.facts, statement.trust
    parameters: dict[str, float] = {"epsilon": statement.epsilon, "delta": statement.delta}
    if statement.zcdp_rho is not None:
        parameters["rho"] = statement.zcdp_rho
    replaced = plan.adjacency.value == "replace-one"
    return {
        "status": "Draft",
        "deployment": {
            "product": {
                "name": facts.data,
                "data_curators": [_BLANK],
                "intended_use": _BLANK,
                "data_product_type": "Machine learning model",
                "data_product_region": _BLANK,
                "description": f"A model learned by {plan.parties} parties with {plan.strategy}.",
                "publication_date": facts.date or _BLANK,
            },
            "dp_flavor": {
                "name": "Approximate DP" if statement.delta else "Pure DP",
                "input_metric": "Change-one distance" if replaced else "Symmetric distance",
                "bound_on_input_distance": 1,
                "output_measure": "Approximate divergence" if statement.delta else "Max divergence",
                "data_domain": f"{plan.records} records held by {plan.parties} parties",
                "unprotected_quantities": "; ".join(statement.unprotected),
            },
            "privacy_loss": {
                "privacy_unit": "Record",
                "privacy_unit_description": (
                    f"One record, {plan.adjacency.value}. Records of one person: at most "
                    f"{facts.records_per_person}, hence for a person (epsilon, delta) = "
                    f"({rounded_up(statement.per_person.epsilon)}, "
                    f"{rounded_up(statement.per_person.delta)})."
                ),
                "privacy_parameters": parameters,
            },
            "model": {
                "model_name": "Distributed" if plan.noise_at == "parties" else "Central",
                "model_name_description": f"secure aggregation: {trust.secure_aggregation}",
                "actors": "\n".join(f"- {line}" for line in statement.sees),
                "release_type": "One release" if plan.rounds == 1 else "Many releases",
                "release_type_description": f"{plan.rounds} releases: {plan.released}.",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "composition": f"{plan.accountant}: {statement.accountant_version}",
                "post_processing": "The model is computed from the releases alone.",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": facts.tuning,
                "mechanisms": ", ".join(plan.laws),
                "justification": "; ".join(statement.warnings) or "no warnings",
            },
            "resources": {"sources": f"fedpriv {statement.version}, run {facts.run}"},
        },
    }
