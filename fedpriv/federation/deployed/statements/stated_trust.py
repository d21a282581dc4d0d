"""Stated trust, recomputed: who a statement says saw what, and what it does not protect.

These are the sentences that people read. They follow from the numbers beside them, and from who
added the noise, which the parties know: see `fedpriv.federation.deployed.statements.attesting`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice
from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.plan import NOISE_PLACES
from fedpriv.privacy.statement.facts import TrustModel
from fedpriv.privacy.statement.statement import NOT_COVERED, unprotected, who_sees_what
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
    sees = who_sees_what(
        TrustModel(**{each.name: trust[each.name] for each in fields(TrustModel)}),
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
    return f"who saw what follows from noise that is added by the {plan['noise_at']}."
