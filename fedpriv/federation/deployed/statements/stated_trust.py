"""Stated trust, recomputed: who a statement says saw what, what it does not protect, and warnings.

These are the sentences that people read. They follow from the numbers beside them, and from who
added the noise, which the parties know: see `fedpriv.federation.deployed.statements.attesting`.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice
from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.plan import NOISE_PLACES, sampler_of
from fedpriv.privacy.planning.written_plan import least_rate_of
from fedpriv.privacy.statement.facts import RunFacts, TrustModel
from fedpriv.privacy.statement.statement import (
    NOT_COVERED,
    unprotected,
    warnings_of,
    who_sees_what,
)
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.mechanisms.shares import NoiseShare


def checked_trust(statement: Mapping[str, Any], share: NoiseShare | None) -> str:
    """A sentence for who verifies; `Unsound` if what the statement tells does not follow.

    Args:
        statement: As `Statement.to_dict` wrote it.
        share: What a party adds, if the noise is brought in shares.
    """
    plan, trust, guarantee = statement["plan"], statement["trust"], statement["guarantee"]
    require_choice(NOISE_PLACES, noise_at=plan["noise_at"])
    if share is not None and plan["noise_at"] != "parties":
        raise Unsound("its noise is brought in shares, and it says that the server adds it.")
    model = TrustModel(**{each.name: trust[each.name] for each in fields(TrustModel)})
    sees = who_sees_what(
        model,
        noise_at=plan["noise_at"],
        released=plan["released"],
        parties=plan["parties"],
        share=share,
    )
    open_to_all = unprotected(
        Unit(guarantee["unit"]),
        Adjacency(guarantee["adjacency"]),
        metrics_published=statement["run"]["metrics_published"],
    )
    told = (trust["sees"], statement["unprotected"], statement["not_covered"])
    if told != (list(sees), list(open_to_all), list(NOT_COVERED)):
        raise Unsound("who it says saw what, or what it does not protect, does not follow.")
    warnings = warnings_of(
        RunFacts(**statement["run"]),
        model,
        epsilon=guarantee["epsilon"],
        delta=guarantee["delta"],
        units=plan["parties" if Unit(guarantee["unit"]) is Unit.PARTY else "records"],
        sampler=sampler_of(least_rate_of(plan)),
        parties=plan["parties"],
        noise_at=plan["noise_at"],
        share=share,
        ledger_kept=statement["ledger"] is not None,
    )
    if statement["warnings"] != list(warnings):
        raise Unsound(
            "its warnings do not follow from the rest: one is missing, or should not be there."
        )
    return f"who saw what follows from noise that is added by the {plan['noise_at']}."


def require_unmasked(trust: Mapping[str, Any]) -> None:
    """Raise `Unsound` if a statement without masks tells of any, or whom they withstand."""
    if trust["secure_aggregation"] != "off":
        raise Unsound("it states secure aggregation, and no numbers of masks.")
    none = {**asdict(TrustModel(secure_aggregation="off")), "tolerates": ""}
    if any(trust[name] != none[name] for name in none if name != "server_also_sees"):
        raise Unsound("it says whom it tolerates, but not the numbers of the masks.")
