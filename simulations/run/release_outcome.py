"""The outcome: the files and fields that a release consists of, and where each comes from.

A guarantee covers an outcome, and holds only if nothing in it depends on a record except through
noise. So the outcome is stated here, field by field, and `sift` refuses to write any other field.
Everything else that a run leaves behind (its identity, its checkpoint, what it cost in time and
bytes, the number of exchanges of a joint fit) stays with the owner, in `private/`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Origin(StrEnum):
    """Where a field comes from, and so why it may be published."""

    PUBLIC = "follows from the experiment, the schema and public counts"
    NOISY = "follows from the noisy releases"
    TESTED = "follows from the noisy releases and from test records that are public"
    DRAWN = "a date, a random name, or a hash under a secret salt"


_PUBLIC, _NOISY, _TESTED, _DRAWN = Origin

RESULT: dict[str, Origin] = {
    "run": _DRAWN,
    **dict.fromkeys(
        (
            "experiment", "config_hash", "fedpriv", "simulated", "data", "model", "strategy",
            "label", "options", "private", "unit", "engine", "secure_aggregation", "parties",
            "records", "smallest_party", "dimension", "delta", "adjacency", "epsilon_budget",
            "guests", "start", "regulariser",
        ),
        _PUBLIC,
    ),
    # Of a plan that is fixed beforehand public; else what the filter admitted on the way.
    **dict.fromkeys(("epsilon", "rounds", "stopped", "cut_short", "noise_stddev"), _NOISY),
    "coefficients": _NOISY,  # of inference: estimates, standard errors, intervals
    "tuned": _NOISY,  # the setting of the best trial, of a tuning that is paid for
    **dict.fromkeys(
        (
            "accuracy", "loss", "test_records", "auc", "f1", "balanced_accuracy", "log_loss",
            "rmse", "mae", "r2",
        ),
        _TESTED,
    ),
}  # fmt: skip
"""The fields of result.json."""

ROUND: dict[str, Origin] = {
    "round": _NOISY,
    "epsilon": _NOISY,
    "accuracy": _TESTED,
    "loss": _TESTED,
}
"""The columns of metrics.csv and metrics.json: one row per release."""

MODEL: dict[str, Origin] = {
    "theta": _NOISY,
    **dict.fromkeys(
        (
            "format", "model_settings", "guests", "seed", "task", "features", "classes",
            "image_shape", "schema", "max_norm", "feature_norm", "intercept", "scaling",
        ),
        _PUBLIC,
    ),
}  # fmt: skip
"""The arrays of model.npz: the parameters, and how a raw table becomes their features."""

_DESCRIBED = ("total", "columns", "correlation", "tables", "survival", "by_party", "release")

STATISTICS: dict[str, Origin] = {
    "counted": _PUBLIC,
    **dict.fromkeys(_DESCRIBED, _NOISY),
}
"""The fields of statistics.json, which a description of a table has instead of a model."""

REPORT: dict[str, Origin] = {
    **dict.fromkeys(("secure-aggregation", "configuration"), _PUBLIC),
    # Of a plan that is fixed beforehand public, like the fields that they are made from.
    **dict.fromkeys(("guarantee", "budget", "coefficients", "statement"), _NOISY),
    **dict.fromkeys(("head", "figures", "table"), _TESTED),
    "ledger": _DRAWN,  # hashes, and what was charged for the noisy releases
}
"""The head and sections of report.json and report.html, made from the other files alone."""

FILES: dict[str, str] = {
    "config.toml": "the experiment",
    "plan.json": "noise and events of every release",
    "metrics.csv": "per release: what was spent so far, and metrics on public test records",
    "metrics.json": "the same",
    "model.npz": "the released parameters, and how a raw table is scaled for them",
    "statement.txt": "what the run guarantees",
    "statement.json": "the same",
    "statement.yaml": "the same, for a public registry",
    "result.json": "the summary",
    "report.html": "all of it on one page, made from the files above and nothing else",
    "report.json": "the numbers of that page",
}
"""The files of a release. Beside them there is only the folder of what stays with the owner."""

_OF_A_MODEL = ("metrics.csv", "metrics.json", "model.npz", "report.html", "report.json")
DESCRIBED_FILES: dict[str, str] = {
    **{name: what for name, what in FILES.items() if name not in _OF_A_MODEL},
    "statistics.json": "the noisy sums, and the statistics that follow from them",
    "statistics.svg": "the same in pictures, where they were drawn",
}
"""The files of a description of a table."""

SIGNED = "statement.signed.json"
"""Beside them, in a deployment: the statement with public keys, heads of ledgers and signatures."""


def _sentence(files: Mapping[str, str]) -> str:
    return (
        f"the outcome is {', '.join(files)}, and nothing else: what else the run left behind, in "
        "private/, is for the owner alone"
    )


SENTENCE = _sentence(FILES)
"""For the statement."""

DESCRIBED_SENTENCE = _sentence(DESCRIBED_FILES)
"""For that of a description."""

DEPLOYED_SENTENCE = _sentence({**FILES, SIGNED: ""})
"""For that of a deployment."""

DEPLOYED_DESCRIBED_SENTENCE = _sentence({**DESCRIBED_FILES, SIGNED: ""})
"""For that of a description in a deployment."""


def sift(values: Mapping[str, Any], stated: Mapping[str, Origin]) -> dict[str, Any]:
    """Those of ``values`` that a release may publish.

    None values are left out. Any other unstated field is an error, and nothing is written: a new
    field must state its origin or stay private.
    """
    told = {key: value for key, value in values.items() if value is not None}
    unstated = sorted(told.keys() - stated.keys())
    if unstated:
        raise RuntimeError(
            f"{', '.join(unstated)} must be stated in simulations/run/release_outcome.py before a "
            "release may contain it. Nothing was written."
        )
    return {key: values[key] for key in values if key in stated}
