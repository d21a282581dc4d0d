"""Stated guarantee of any real run, deployed or in one place, recomputed from its statement alone.

A deployed run has a signed document, of which `statement_document` checks all. A release in one
place has its statement, and may be of two kinds that no party answers: noise that goes with
sampling rates in an order that the plan does not write, and a tuning on private records that is
paid for.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.statements.stated_epsilon import Unsound, recomputed_epsilon
from fedpriv.federation.deployed.statements.stated_releases import releases_of
from fedpriv.federation.deployed.statements.statement_document import (
    Finding,
    check_epsilon,
    check_forms,
    check_releases,
    finding_of,
)
from fedpriv.privacy.events import TuningEvent
from fedpriv.privacy.planning.tuning.tuning import BestOfTrials
from fedpriv.privacy.planning.written_plan import events_of
from fedpriv.privacy.planning.written_plan import releases_of as written_releases

if TYPE_CHECKING:
    from collections.abc import Mapping


def recomputed_guarantee(statement: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What follows from the releases of a real statement, computed again."""
    document = {"statement": statement}
    forms = finding_of("other forms", check_forms, document)
    if _tuned(statement):
        return (
            finding_of("releases", _check_tuning, document),
            finding_of("epsilon", _check_tuned_epsilon, document),
            forms,
        )
    epsilon = finding_of("epsilon", check_epsilon, document)
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        if events_of(statement["plan"]) is None:
            words = "its plan does not say which noise belongs to which sampling rate."
            return Finding(check="releases", passed=None, words=words), epsilon, forms
    return finding_of("releases", check_releases, document), epsilon, forms


def _tuned(statement: Mapping[str, Any]) -> bool:
    with suppress(LookupError, TypeError, AttributeError, ValueError):
        return any(w["name"] == BestOfTrials.name for w, _ in written_releases(statement["plan"]))
    return False


def _check_tuning(document: Mapping[str, Any]) -> str:
    """Whether what was charged for a tuning is the law of its trials, and their μ."""
    plan = document["statement"]["plan"]
    stated = Counter(
        {
            TuningEvent(
                adjacency=written["adjacency"],
                unit=written["unit"],
                base_mu=written["base_mu"],
                eta=written["law"]["eta"],
                gamma=written["law"]["gamma"],
            ): count
            for written, count in written_releases(plan)
        }
    )
    if stated != Counter(dict(releases_of(document))):
        raise Unsound("what was charged is not the tuning of its plan.")
    return "one release: the best of a random number of trials."


def _check_tuned_epsilon(document: Mapping[str, Any]) -> str:
    statement = document["statement"]
    guarantee, plan = statement["guarantee"], statement["plan"]
    if (guarantee["epsilon"], guarantee["delta"]) != (plan["epsilon"], plan["budget"]["delta"]):
        raise Unsound("guarantee and plan state different numbers.")
    epsilon, _ = recomputed_epsilon(statement, releases_of(document))
    return f"epsilon = {epsilon!r} at delta = {guarantee['delta']!r}, as stated."
