"""Attacks by options that are admitted one by one, and were never thought of together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.learning.models import MlpModel
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.launch import carry_through, open_session
from tests.audit.examination import difference, findings
from tests.audit.neighbours import GRADIENTS, PARTIES, SMALLEST, Case, table, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.audit.laboratory import Laboratory, Selected


def _law(selected: Selected) -> NDArray[np.float64]:
    """The logarithms of the chances of an exponential mechanism."""
    exponents = selected.selection.rate * (selected.scores - selected.scores.max()).astype(float)
    found: NDArray[np.float64] = exponents - np.log(np.exp(exponents).sum())
    return found


def test_no_penalty_swallows_what_a_record_does_to_a_step(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """Risks of adaptive descent are losses plus a public penalty, which was added in float64.

    Where one unit of rounding of the penalty is longer than a loss, a record moved a score by all
    of it, and the next one by nothing: an even penalty and an odd one round a tie apart.
    """
    clip, records = 0.25, 48
    start = MlpModel(widths=(5, 4, 1), activation="relu").initial(np.random.default_rng(0)).numpy()
    case = Case(
        name="penalty",
        strategy={
            "name": "agd",
            "rounds": 1,
            "splits": 10,
            "loss_clip": clip,
            "largest_step": 2e-15,
            "selection": "exponential",
        },
        model={
            "name": "mlp",
            "hidden": [4],
            "activation": "relu",
            "l2": 1.5 * 2.0**56 / 50 / float(start @ start),
        },
        data={"test_fraction": 0.0, "feature_norm": 30.0, "scaling": "divide"},
    )
    row = {"age": "100", "dose": "1", "ward": "icu", "outcome": "no", "clinic": "north"}
    other = {**row, "outcome": "yes"}
    rows = [row] * records
    one = laboratory.run(case, rows, tmp_path / "one")
    assert one.code == 0, one.said
    two = laboratory.run(case, [other, *rows[1:]], tmp_path / "two", script=one)
    assert difference(case, one, two) == []
    assert one.selections
    for a, b in zip(one.selections, two.selections, strict=True):
        assert np.abs(_law(a) - _law(b)).max() <= a.selection.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_nor_does_one_of_steps_of_any_length(
    adjacency: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """Candidates as far as 10⁹: a score moved by 32, where 3 was stated."""
    strategy = {"name": "agd", "rounds": 2, "largest_step": 1e9, "splits": 10}
    case = Case(name="far", strategy=strategy, adjacency=adjacency)
    assert findings(case, laboratory, tmp_path) == []


def test_a_release_is_refused_before_a_setting_is_tried(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """Tuning counted the parties first, and what it said depended on the smallest of them."""

    class Tuned(Case):
        def experiment(self, folder: Path) -> dict[str, Any]:
            grid = {"strategy.rounds": [1, 2]}
            return {**super().experiment(folder), "tuning": {"on": "synthetic", "grid": grid}}

    case = Tuned(
        name="tuned",
        strategy={"name": "gradient-perturbation"},
        adjacency="add-remove",
        data={"min_records": PARTIES["west"], "test_fraction": 0.0},
    )
    rows = table("binary")
    fewer = [row for place, row in enumerate(rows) if place != SMALLEST]
    said = {laboratory.run(case, some, tmp_path / str(len(some))).said for some in (rows, fewer)}
    assert len(said) == 1
    assert "needs no data.min_records" in said.pop()


def test_a_bound_that_adapts_fast_ends_no_release(laboratory: Laboratory, tmp_path: Path) -> None:
    """Its power overflowed, after the release was paid."""
    strategy = {"name": "adaptive-clipping", "rounds": 3, "clip_rate": 1e6}
    assert findings(Case(name="fast", strategy=strategy), laboratory, tmp_path) == []


@pytest.mark.parametrize(
    "case",
    [
        Case(
            name="noise beyond the grid",
            strategy={"name": "output-perturbation", "law": "l2-laplace"},
            epsilon=1e-12,
            delta=0.0,
        ),
        Case(
            name="losses without a grid", strategy={"name": "agd", "loss_clip": 1e-300, "rounds": 2}
        ),
        Case(
            name="gradients that are never exact",
            strategy={"name": "output-perturbation", "fit": "joint"},
            model={"l2": 1e24},
            data={"feature_norm": 1e15},
        ),
    ],
    ids=lambda case: case.name,
)
def test_what_cannot_be_computed_is_refused_before_it_is_paid_for(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    done = laboratory.run(case, table(case.task), tmp_path / "one")
    assert done.code == 2
    assert not (tmp_path / "one" / "own.ledger").exists()


# What was tried, and found nothing.


TRIED = [
    Case(
        name="long records, long steps",
        strategy={"name": "gradient-perturbation", "rounds": 3, "learning_rate": 1e30},
        model={"name": "squared"},
        data={"feature_norm": 1e15, "scaling": "divide"},
    ),
    Case(
        name="scales of all sizes",
        strategy={
            "name": "adaptive-clipping",
            "rounds": 3,
            "rule": "coordinate",
            "least_variance": 1e-300,
            "most_variance": 1e300,
        },
    ),
    Case(
        name="nearly all of a squared loss tested on",
        strategy={"name": "output-perturbation"},
        model={"name": "squared"},
        data={"test_fraction": 0.97},
    ),
    Case(
        name="the best regulariser of a joint fit",
        strategy={
            "name": "output-perturbation",
            "fit": "joint",
            "regulariser": "optimal",
            "radius": 1e6,
        },
    ),
    Case(
        name="more parties than records",
        strategy={"name": "agd", "rounds": 3},
        adjacency="add-remove",
        data={"partition": "hashed", "parties": 80, "records": 50},
    ),
    Case(
        name="short records at a sharp bend",
        strategy={"name": "gradient-perturbation", "rounds": 3, "clip": 1e-6},
        adjacency="add-remove",
        model={"name": "huber-svm", "smoothing": 1e-12},
        data={"feature_norm": 1e-15},
    ),
    Case(
        name="minimisers as long as they can be",
        strategy={"name": "output-perturbation", "tolerance": 0.05},
        model={"name": "huber-svm", "smoothing": 0.1, "l2": 1.2},
        data={"test_fraction": 0.0},
    ),
    Case(
        name="twice as many records as are declared",
        strategy={"name": "objective-perturbation"},
        adjacency="add-remove",
        data={"records": [13, 9, 4], "test_fraction": 0.0},
    ),
    Case(
        name="all of the budget for the count",
        strategy={
            "name": "adaptive-clipping",
            "rounds": 3,
            "count_share": 0.999999,
            "quantile": 0.999,
        },
    ),
    Case(
        name="nothing left for the solver",
        strategy={"name": "objective-perturbation", "solver_share": 1 - 1e-12},
    ),
]


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_options_at_their_ends_keep_the_guarantee(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []


@pytest.mark.parametrize("resumed", [False, True])
def test_a_table_that_changes_while_a_run_starts_is_not_released(
    resumed: bool, tmp_path: Path
) -> None:
    """The ledger was bound to the new file, and the release was of the old one."""
    rows = table("binary")
    study = write(Case(name="swap", strategy=GRADIENTS), rows, tmp_path / "data")
    book, out = tmp_path / "own.ledger", tmp_path / "out"
    begun = open_session(
        read_experiment(study), out=out, release=True, ledger=book, new_ledger=True
    )
    if resumed:
        begun = open_session(None, resume=out, release=True)
    text = study.with_name("clinic.csv").read_text()
    study.with_name("clinic.csv").write_text(text.replace("yes", "no", 1))
    with pytest.raises(ValueError, match="was changed while the run started"):
        carry_through(begun)
    with Ledger.open(book, read_only=True) as ledger:
        assert ledger.fingerprint is None
        assert ledger.spent().guarantee.epsilon == 0
    study.with_name("clinic.csv").write_text(text)
    assert carry_through(open_session(None, resume=out, release=True)) is not None


def test_no_public_table_tells_whether_the_private_one_is_like_it(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """It was refused if equal: whoever knew all records but one could try what that one is."""
    rows = table("binary")
    guessed = write(Case(name="guess", strategy=GRADIENTS), rows, tmp_path / "guess")
    schedule = {"name": "influence", "public": str(guessed.with_name("clinic.csv"))}
    case = Case(name="guess", strategy={**GRADIENTS, "learning_rate": 0.1, "schedule": schedule})
    changed = [{**row, "age": "12.5"} if row is rows[3] else row for row in rows]
    one = laboratory.run(case, rows, tmp_path / "one")
    assert one.code == 0, one.said
    other = laboratory.run(case, changed, tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    itself = {**schedule, "public": str(tmp_path / "itself" / "clinic.csv")}
    same = replace(case, strategy={**case.strategy, "schedule": itself})
    done = laboratory.run(same, rows, tmp_path / "itself")
    assert done.code != 0
    assert "must be another table than data.path" in done.said
