"""Random releases: neighbouring tables, drawn at random, and all that is made of them.

The second of two runs is given the releases of the first. Whatever it prints and writes must then
be the same to the byte, the model included: settings that follow from a rule, noise, plan,
statement and statistics. Sums move by no more than the noise is for.
"""

from __future__ import annotations

import secrets
import warnings
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import fedpriv.simulations.run.prepare as preparing
from fedpriv.simulations.experiment.records.data import party_records
from fedpriv.strategies.common import settling as descent
from tests.audit.examination import STRESS, difference, unlawful
from tests.audit.neighbours import Case, table
from tests.audit.random_cases import draw, draw_rows, neighbour

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from fedpriv.simulations.experiment.records.holding import Holding
    from tests.audit.laboratory import Laboratory, Watch
    from tests.audit.neighbours import Row

PAIRS = 400 if STRESS else 6
"""How many are drawn."""


def outcome(watch: Watch) -> dict[str, bytes]:
    """The files of a release, without what is drawn for every run, and where it lies."""
    result, ledger = watch.json("result.json"), watch.json("statement.json")["ledger"]
    found = {}
    for name, content in watch.files().items():
        for drawn in (result["run"], ledger["head"], str(watch.directory.parent)):
            content = content.replace(drawn.encode(), b"...")  # noqa: PLW2901 - one after another
        found[name] = content
    return found


def warning(
    laboratory: Laboratory, case: Case, rows: list[Row], folder: Path, script: Watch | None
) -> tuple[Watch, list[str]]:
    """A run, and what it warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")  # not only the first of two runs
        watch = laboratory.run(case, rows, folder, script=script)
    ours = [str(each.message) for each in told if "fedpriv" in each.filename]
    return watch, ours


def test_one_unit_shows_through_the_noise_alone(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: "5eed5eed")  # orders follow from it
    met: Counter[str] = Counter()
    for seed in range(PAIRS):
        rng = Random(seed)  # noqa: S311 - a study
        case = draw(rng)
        rows = draw_rows(case, rng)
        others = neighbour(case, rows, rng)
        if not others:  # all were one person's; a table has a row here, or other columns
            continue
        folder, what = tmp_path / str(seed), (seed, case)
        one, warned = warning(laboratory, case, rows, folder / "one", None)
        script = None if one.code else one
        other, again = warning(laboratory, case, others, folder / "other", script)
        assert (one.code, one.said, warned) == (other.code, other.said, again), what
        met["refused" if one.code else "released"] += 1
        if not one.code:
            assert difference(case, one, other) == [], what
            assert outcome(one) == outcome(other), what
            assert unlawful(one) == [], what
    assert met["released"] > PAIRS / 3


def test_a_step_that_follows_from_the_number_of_records_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has teeth: a rule for steps looks at how many records there are."""
    counted: list[int] = []

    def counting(*arguments: Any, **named: Any) -> Holding:
        found = party_records(*arguments, **named)
        counted.append(len(found.data.dataset.train))
        return found

    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: "5eed5eed")
    monkeypatch.setattr(preparing, "party_records", counting)
    strategy = {"name": "gradient-perturbation", "rounds": 2}
    case = Case(name="steps", strategy=strategy, adjacency="add-remove")
    rows = table("binary")
    for rate, same in ((lambda: 1.0, True), (lambda: float(counted[-1]), False)):
        monkeypatch.setattr(descent, "auto_rate", lambda *_, rate=rate, **__: rate())
        folder = tmp_path / str(same)
        one = laboratory.run(case, rows, folder / "one")
        other = laboratory.run(case, rows[1:], folder / "other", script=one)
        assert difference(case, one, other) == []
        assert (outcome(one) == outcome(other)) is same
