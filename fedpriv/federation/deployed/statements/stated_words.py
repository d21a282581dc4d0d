"""Stated words: the sentences of a signed statement that no number decides, from what is known.

What a run released, and what the server saw on the way, follow from its strategy, which is in the
name of the run. What else is words is fixed for a real run, has a form, or is held against the
experiment by every party that signs: see `fedpriv.federation.deployed.statements.attesting`.

Words of the server's own that are left: in what terms a party was asked (``plan.query``), what a
protector was trained on, the day, and how much its ledger had spent before.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.strategy.joint import HESSIANS_SEEN, JointStrategy
from fedpriv.privacy.planning.plan import sampler_of
from fedpriv.privacy.planning.statistics.statistics import (
    RELEASED_BY_PARTY,
    RELEASED_MAGNITUDES,
    RELEASED_SUMS,
)
from fedpriv.privacy.planning.written_plan import least_rate_of, releases_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODELS = "hence every model of the run"
_GRADIENTS = f"every round's noisy sum of gradients, {_MODELS}"
_JOINT = (
    "the joint minimiser of all records, with noise",
    "the minimiser of the perturbed objective of all records",
)
_FIT = f"{_JOINT[1]}, and the noisy Hessian"
_AVERAGE = "the noisy average of the parties' minimisers"
_RELEASED: dict[str, tuple[str, ...]] = {
    "gradient-perturbation": (_GRADIENTS,),
    "local-gradient-perturbation": (_GRADIENTS,),
    "adaptive-clipping": (
        f"noisy sums of gradients, {_MODELS}",
        f"noisy sums of gradients and noisy counts, {_MODELS}",
    ),
    "agd": (f"noisy sums of gradients and the steps selected, {_MODELS}",),
    "federated-averaging": (f"every round's noisy sum of updates, {_MODELS}",),
    "scaffold": (
        f"every round's noisy sums of updates and of changes of control variates, {_MODELS}",
    ),
    "output-perturbation": (_AVERAGE, _JOINT[0]),
    "inference": ("the second moments of features and label over all parties, with noise", _FIT),
    "describe": (RELEASED_SUMS, RELEASED_BY_PARTY, RELEASED_MAGNITUDES),
    "pathak": (_AVERAGE,),
    "objective-perturbation": (_JOINT[1],),
    "local-output-perturbation": ("the average of the parties' noisy minimisers",),
    "local-objective-perturbation": ("the average of the parties' private minimisers",),
}
_LEARNED = re.compile(
    rf"every round's noisy norm and noisy sum of gradients, {_MODELS}; noise and steps by the "
    r"protector '[^'\n]{1,200}', trained on [^\n]{1,200}, sha256 [0-9a-f]{16}"
)
_MATRIX = re.compile(
    r"a noisy matrix of second moments \(\d{1,12} numbers\), and every round's noisy sum of "
    rf"gradients, {_MODELS}"
)
_SECOND_ORDER = "second-order"
_LOCAL = "local-"  # whose parties add noise that is enough by itself
_VERSION = r"[0-9A-Za-z.+!-]{1,40}"


def require_known_words(statement: Mapping[str, Any]) -> None:
    """Raise `Unsound` if a statement of a deployed run says what no such run says."""
    run, plan, trust = statement["run"], statement["plan"], statement["trust"]
    strategy, released = plan["strategy"], plan["released"]
    if not run["run"].startswith(f"{strategy}-"):
        raise Unsound("its plan is of another strategy than the name of its run.")
    known = released in _RELEASED.get(strategy, ())
    form = {"learned-protection": _LEARNED, _SECOND_ORDER: _MATRIX}.get(strategy)
    if not known and not (form is not None and form.fullmatch(released)):
        raise Unsound(f"what it says was released is nothing that {strategy!r} releases.")
    _require_matrix(plan)
    _require_noise_of_a_party(plan)
    if trust["server_also_sees"] != also_sees(released):
        raise Unsound("what it says the server saw on the way does not follow from its releases.")
    fixed = {
        "sampler": sampler_of(least_rate_of(plan)),
        "metrics_published": False,
        "audit_epsilon": None,
        "guests": [],  # no deployed party runs code that it has not installed
    }
    for name, value in fixed.items():
        if run[name] != value:
            raise Unsound(f"{name} of the run is stated as {run[name]!r}, and is {value!r}.")
    if run["date"] is not None:
        date.fromisoformat(run["date"])
    if not re.fullmatch(_VERSION, statement["fedpriv"]):
        raise Unsound("its version is none.")


def require_accounted_by(method: str, said: str) -> None:
    """Raise `Unsound` unless a statement says this method, its version, and nothing else."""
    if not re.fullmatch(rf"{re.escape(method)}, (fedpriv|dp-accounting) {_VERSION}", said):
        raise Unsound(f"it was accounted for by {method!r}, and says otherwise.")


def _require_noise_of_a_party(plan: Mapping[str, Any]) -> None:
    """Refuse noise of the parties that is not told of as shares, and is not enough by itself."""
    shared = any("share" in written for written, _ in releases_of(plan))
    apart = plan["released"] == RELEASED_BY_PARTY
    if apart and (plan["noise_at"] != "parties" or shared):
        raise Unsound("it tells of every party by itself, whose noise no party added alone.")
    alone = apart or plan["strategy"].startswith(_LOCAL)
    if plan["noise_at"] == "parties" and not shared and not alone:
        raise Unsound("the parties added the noise, and it does not say in what shares.")


def _require_matrix(plan: Mapping[str, Any]) -> None:
    """Refuse a matrix of another width than was released, or where there is none."""
    width = plan.get("matrix_width")
    if (width is not None) != (plan["strategy"] == _SECOND_ORDER) or (
        width is not None and f"({width} numbers)" not in plan["released"]
    ):
        raise Unsound("the width of its matrix is not that of what was released.")


def also_sees(released: str) -> str:
    """What the server learns on the way to a release: of a joint fit, exact sums."""
    if released == _FIT:
        return HESSIANS_SEEN
    return JointStrategy.server_also_sees if released in _JOINT else ""
