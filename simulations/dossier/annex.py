"""Annex to a data-protection impact assessment: facts of a run, and the blanks that people fill.

Facts alone: nothing here says what a law asks for, or that anything satisfies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.registry import BLANK
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.dossier import facts_of_claim as claim
from fedpriv.simulations.dossier import facts_of_run as run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.simulations.dossier.evidence import Evidence

TO_FILL = (
    "who decides on purposes and means of the processing, and who acts for them",
    "the purpose, and why this data is needed for it",
    "whose data it is, of which kinds, and where it came from",
    "on which grounds it is processed, and what the people concerned were told",
    "who receives the outcome, and what it will be used for",
    "how long records, keys, ledgers and the outcome are kept",
    "who may enter the machines that hold the records",
    "what remains as a risk, and who accepts it",
)
"""What no file of a run knows."""


def annex(evidence: Evidence) -> dict[str, Any]:
    """The annex, as the dossier has it: facts by heading, and what is left for people to write."""
    statement, plan, result = evidence.statement, evidence.plan, evidence.result
    told, counted = statement["guarantee"], Unit(statement["guarantee"]["unit"]).counted
    return {
        "facts": {
            "the processing": [
                (
                    f"strategy {plan['strategy']!r} on the data set {statement['run']['data']!r}: "
                    f"{plan['parties']} part{'y' if plan['parties'] == 1 else 'ies'}, "
                    f"{plan['records']} {counted} as counted or declared"
                ),
                claim.query(evidence),
                run.collection(evidence),
            ],
            "safeguards": [
                (
                    f"a guarantee of (ε, δ) = ({rounded_up(told['epsilon'])}, "
                    f"{rounded_up(told['delta'])}) for {Unit(told['unit']).words}"
                ),
                claim.mechanism(evidence),
                run.collusion(evidence),
                claim.earlier(evidence),
                run.randomness(evidence),
                run.verification(evidence),
            ],
            "what is left, in numbers": _left(evidence),
            "who could see what": list(statement["trust"]["sees"]),
            "not protected": list(statement["unprotected"]),
            "not covered": list(statement["not_covered"]),
            "warnings": list(statement["warnings"]),
        },
        "computed with": f"fedpriv {result['fedpriv']}",
        "to be filled in": [f"{line}: {BLANK}" for line in TO_FILL],
    }


def _left(evidence: Evidence) -> list[str]:
    """What an attacker can still do, at most."""
    told = evidence.statement["guarantee"]
    advantage = min(1.0, float(told["attack_advantage"]))
    person = told["per_person"]
    right = rounded_up((1 + advantage) / 2)
    pair = f"({rounded_up(person['epsilon'])}, {rounded_up(person['delta'])})"
    return [
        f"who guesses between two equally likely neighbours is right at most {right} of the time",
        f"right accusations are more frequent than false ones by at most {rounded_up(advantage)}",
        f"for a person{_with(told)}, (ε, δ) = {pair}",
    ]


def _with(told: Mapping[str, Any]) -> str:
    """What a number for a person takes for granted, where the unit is another one."""
    most = told["records_per_person"]
    if told["unit"] == Unit.PERSON:
        return ""
    return f" with {'one record' if most == 1 else f'at most {most} records'}"
