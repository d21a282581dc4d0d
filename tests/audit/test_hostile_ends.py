"""Hostile ends: the only record, person or party of a table leaves, and nothing may show it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

import tests.audit.neighbours
from tests.audit.examination import difference
from tests.audit.random_cases import Drawn
from tests.audit.test_random_releases import outcome, warning

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory

DESCENT: dict[str, Any] = {"name": "gradient-perturbation", "rounds": 2}
TRIALS: dict[str, Any] = {"on": "private", "expected_trials": 2}
BY_HASH: dict[str, Any] = {"partition": "hashed", "parties": 3, "records": 12}
WAYS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "sampled": ({**DESCENT, "sampling_rate": 0.5}, "record", {}),
    "adaptive clipping, persons by hash": (
        {"name": "adaptive-clipping", "rounds": 2, "learning_rate": 0.1},
        "person",
        BY_HASH,
    ),
    "second order, by hash": ({"name": "second-order", "rounds": 2}, "record", BY_HASH),
    "joint fit": ({"name": "output-perturbation", "fit": "joint"}, "record", {}),
    "objective, persons": ({"name": "objective-perturbation"}, "person", {}),
    "inference": ({"name": "inference"}, "record", {"scaling": "divide"}),
    "agd": ({"name": "agd", "splits": 3}, "record", {}),
    "learned protection": ({"name": "learned-protection", "horizon": 2}, "person", {}),
    "described": ({"name": "describe", "bins": 4}, "person", {}),
    "magnitudes, by hash": ({"name": "describe", "magnitudes": ["age"]}, "record", BY_HASH),
    "a party": (
        {"name": "federated-averaging", "rounds": 2, "allow_swamped": True},
        "party",
        {},
    ),
    "tuned": (DESCENT, "record", {}),
    "tuned, persons": (DESCENT, "person", {}),
}
OFTEN = ("sampled", "adaptive clipping, persons by hash", "inference", "tuned, persons")
ONLY = {
    "age": "100",
    "dose": "1",
    "ward": "icu",
    "outcome": "yes",
    "clinic": "north",
    "fold": "1",
    "patient": "p",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in OFTEN else pytest.mark.deep) for each in WAYS],
)
def test_the_only_one_may_leave(
    name: str, laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: "5eed5eed")
    monkeypatch.setattr(tests.audit.neighbours, "table", lambda _task: [ONLY])  # for its header
    strategy, unit, data = WAYS[name]
    score = {"score": "loss"} if unit == "person" else {}
    trials = {**TRIALS, "grid": {"strategy.clip": [0.1, 1.0]}, **score}
    case = Drawn(
        name=name,
        strategy=strategy,
        adjacency="add-remove",
        model={"name": "logistic"},
        data={"records": [4, 4, 4], **data},
        kind="binary",
        unit=unit,
        persons={"records": 2, "parties": 2} if unit == "person" else {},
        tuning=trials if name.startswith("tuned") else {},
    )
    one, warned = warning(laboratory, case, [ONLY], tmp_path / "one", None)
    assert one.code == 0, one.said
    other, again = warning(laboratory, case, [], tmp_path / "none", one)
    assert (one.code, one.said, warned) == (other.code, other.said, again)
    assert difference(case, one, other) == []
    assert outcome(one) == outcome(other)
