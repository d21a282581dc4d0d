"""Losses × strategies × laws × adjacencies: the table of docs/guarantee.md is what is built."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from fedpriv import strategies
from fedpriv.federation.party.guard import Policy, check_query
from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Loss,
    MarginLoss,
    Softmax,
    Squared,
)
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import SHARE_LAWS
from tests.federation.worlds import build, linear_task

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

GUIDE = Path(__file__).parents[2] / "docs" / "guarantee.md"
ADJACENCIES = ("replace-one", "add-remove")  # as they stand in a cell
WIDTH = 4
LINEAR = linear_task((30, 12, 45), WIDTH, regulariser=0.05)
TASKS: dict[str, Task] = {
    "`Logistic`": LINEAR,
    "`HuberHinge`": replace(LINEAR, loss=HuberHinge(smoothing=0.5)),
    "`HuberRegression`": replace(LINEAR, loss=HuberRegression(threshold=0.7)),
    "`Squared`": replace(LINEAR, loss=Squared(radius=9.0, label_bound=1.0)),
    "`Squared`, small radius": replace(LINEAR, loss=Squared(radius=2.0, label_bound=1.0)),
    "`Softmax`": replace(
        LINEAR, model=LinearModel(width=WIDTH, classes=3), loss=Softmax(classes=3)
    ),
    "network": replace(LINEAR, model=MlpModel(widths=(WIDTH, 3, 1))),
}
REASONS = {
    "l": "needs a loss that is Lipschitz everywhere",
    "r": "needs a loss of one score per record",
    "d": "radius must be at least",
    "n": "needs a convex problem",
    "p": "adjacency must be 'replace-one' for pure objective perturbation",
    "c": "adjacency must be 'replace-one' for .*certified to its tolerance",
    "e": "adjacency must be 'replace-one' for equal weights",
    "s": "adjacency must be 'add-remove' with Poisson sampling",
    "i": "inference needs the squared or the logistic loss",
    "b": "noise_at must be 'server' for inference with the logistic loss",
    "g": "noise that is nearly normal",
    "o": "pure shares are for a single release",
}
FORMS: dict[str, dict[str, Any]] = {
    "average": {"fit": "average"},
    "joint": {"fit": "joint"},
    "sampled": {"sampling_rate": 0.3},
    "equal weights": {"weights": "equal"},
    "quantile": {"rule": "quantile"},
    "coordinate": {"rule": "coordinate"},
    "quantile, sampled": {"rule": "quantile", "sampling_rate": 0.3},
    "coordinate, sampled": {"rule": "coordinate", "sampling_rate": 0.3},
    "shares": {},
    "parties sampled": {"party_rate": 0.3},
    "C by a quantile": {"clip_quantile": 0.5, "count_noise": 50.0},
}


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One cell of the table, under one adjacency, for one of its laws."""

    strategy: str
    form: str
    law: str
    loss: str
    adjacency: str
    verdict: str

    def __str__(self) -> str:
        parts = (self.strategy, self.form, self.law, self.loss, self.adjacency)
        return " ".join(part.strip("`") for part in parts if part)

    def build(self, **more: Any) -> Any:
        """The strategy, asked for its first question, which every party's guard has seen."""
        task, sharing = TASKS[self.loss], None
        options = dict(FORMS.get(self.form, {}))
        known = strategies.STRATEGIES[self.strategy].options.model_fields
        if self.form == "shares":
            sharing = {"share_law": self.law}
        elif "law" in known:
            options["law"] = self.law
        elif "selection" in known:
            options["selection"] = self.law
        if "rounds" in known and self.strategy != "agd":
            options["rounds"] = 2
        if "allow_swamped" in known:  # three parties are enough for a theorem
            options |= {"allow_swamped": True, "local_learning_rate": 0.1}
        if "learning_rate" in known and not task.convex:
            options["learning_rate"] = 0.1
        pure = self.law in ("l2-laplace", "l1-laplace", "unsound-laplace", "polya")
        built = build(
            self.strategy,
            task,
            adjacency=self.adjacency,
            delta=0.0 if pure else 1e-6,
            sharing=sharing,
            **options,
            **more,
        )
        query = built.ask()
        assert query is not None
        check_query(query, task, Policy(unpaid=True))
        return built


def table() -> list[Combination]:
    """The rows of the guide, multiplied out."""
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| strategy | noise |"))
    columns = [cell.strip() for cell in lines[start].strip("|").split("|")][2:]
    assert columns == list(TASKS)
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        which, noise, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        name, _, form = which.partition(",")
        for law in noise.split(","):
            for loss, cell in zip(columns, cells, strict=True):
                for adjacency, verdict in zip(ADJACENCIES, cell.split(" / "), strict=True):
                    found.append(
                        Combination(
                            strategy=name.strip("`"),
                            form=form.strip(),
                            law=law.strip().strip("`"),
                            loss=loss,
                            adjacency=adjacency,
                            verdict=verdict,
                        )
                    )
    return found


TABLE = table()


def test_the_table_is_complete() -> None:
    """A new strategy, law or loss must be walked through, and written down."""
    assert {each.strategy for each in TABLE} == set(strategies.STRATEGIES)
    assert len({str(each) for each in TABLE}) == len(TABLE)
    assert set(ADJACENCIES) == {each.value for each in Adjacency}
    for name, info in strategies.STRATEGIES.items():
        rows = [each for each in TABLE if each.strategy == name]
        for option in ("law", "selection"):
            if option in info.options.model_fields:
                laws = set(get_args(info.options.model_fields[option].annotation)) - {"auto"}
                assert {each.law for each in rows if each.form != "shares"} == laws
        shared = {each.law for each in rows if each.form == "shares"}
        assert shared == (set(SHARE_LAWS) if info.shares else set())
        for option, forms in (
            ("fit", {"average", "joint"}),
            ("rule", {"quantile", "coordinate"}),
        ):
            if option in info.options.model_fields:
                assert forms <= {each.form for each in rows}
    concrete = {*Loss.__subclasses__(), *MarginLoss.__subclasses__()} - {MarginLoss}
    known = {type(task.loss).__name__ for task in TASKS.values()}
    ours = {each for each in concrete if each.__module__.startswith("fedpriv.")}
    assert known == {each.__name__ for each in ours}


@pytest.mark.parametrize("combination", TABLE, ids=str)
def test_the_code_allows_and_refuses_what_the_table_says(
    combination: Combination, tmp_path: Path
) -> None:
    verdict = combination.verdict
    if verdict in REASONS:
        with pytest.raises(ValueError, match=REASONS[verdict]):
            combination.build()
        return
    assert verdict in ("yes", "study", "none")
    built = combination.build()
    assert (built.plan is None) == (verdict == "none")
    if verdict == "study":
        budget = Budget(epsilon=1.0, delta=0.0)
        ledger = Ledger.create(
            tmp_path / "ledger", data_name="d", budget=budget, adjacency=combination.adjacency
        )
        with ledger, pytest.raises(ValueError, match="is for study in a simulation"):
            combination.build(ledger=ledger)


def test_a_regulariser_that_is_chosen_for_the_user_is_checked_like_his_own() -> None:
    """The optimal λ may be smaller than the one that the radius of the squared loss was for."""
    task = replace(LINEAR, loss=Squared(radius=4.5, label_bound=1.0))  # 1/√0.05 = 4.47
    build("output-perturbation", task)
    for fit in ("average", "joint"):
        with pytest.raises(ValueError, match=REASONS["d"]):
            build("output-perturbation", task, fit=fit, regulariser="optimal", radius=1e4)


def test_where_records_may_be_twice_as_many_the_squared_loss_needs_a_larger_radius() -> None:
    """(λ/2)‖θ‖² ≤ J(0), which grows with the number of records that are really there."""
    for radius, allowed in ((6.33, True), (6.31, False)):  # √(2/0.05) = 6.32
        task = replace(LINEAR, loss=Squared(radius=radius, label_bound=1.0))
        build("output-perturbation", task, fit="joint")
        if allowed:
            build("output-perturbation", task, fit="joint", adjacency="add-remove")
            continue
        with pytest.raises(ValueError, match=REASONS["d"]):
            build("output-perturbation", task, fit="joint", adjacency="add-remove")


def test_every_reason_of_the_table_is_explained_below_it() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    _, below = guide.split("Why it is refused")
    explained = set(re.findall(r"^- \*\*(\w+)\*\* ", below, flags=re.MULTILINE))
    used = {each.verdict for each in TABLE}
    assert used - {"yes"} == explained
    assert set(REASONS) <= explained
