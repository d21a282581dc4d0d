"""A release is private from the file on: two neighbouring tables, the whole path, every output.

For each way to make a release: (a) whatever is published and not noisy is the same to the byte; (b)
the exact sum before its noise moves by no more than the sensitivity that the noise is for; (c) the
noise has the law that the plan states. The breaks that this would have found are put back one by
one at the end, and found.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import gamma

import simulations.records
import simulations.releasable
from fedpriv.data import Records, load
from fedpriv.data.partition import KINDS
from fedpriv.federation.guard import QueryRefused
from fedpriv.federation.queries import RiskGradientQuery
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
)
from fedpriv.privacy.planning_objective import ObjectiveMechanism, ObjectiveProblem
from simulations.record import Record
from tests.audit.neighbours import (
    Case,
    Laboratory,
    Released,
    Watch,
    moved,
    neighbours,
    public_part,
    table,
)
from tests.simulations.conftest import fedpriv  # noqa: F401 - a fixture
from tests.statistical import FALSE_FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.data import Dataset

STRESS = bool(os.environ.get("FEDPRIV_STRESS"))

GRADIENTS = {"name": "gradient-perturbation", "rounds": 4}
OUTPUT = {"name": "output-perturbation"}
OBJECTIVE = {"name": "objective-perturbation"}
ADAPTIVE = ("adaptive-clipping", "agd", "learned-protection")

# A covering sample: every strategy, law, loss, adjacency, file, split and kind of party at least
# once, and what interacts together.
SAMPLE = [
    Case(name="gradients", strategy=GRADIENTS),
    Case(name="gradients, one more or less", strategy=GRADIENTS, adjacency="add-remove"),
    Case(
        name="parties by hash",
        strategy=GRADIENTS,
        data={"partition": "hashed", "parties": 1},
        file="parquet",
    ),
    Case(
        name="parties by hash, one more or less",
        strategy=GRADIENTS,
        adjacency="add-remove",
        data={"partition": "hashed", "parties": 4, "records": 50},
        model={"name": "softmax"},
    ),
    Case(
        name="public test records",
        strategy={**GRADIENTS, "optimiser": "adam", "learning_rate": 0.1},
        fold=True,
        data={"public_test": True},
        model={"name": "mlp", "hidden": [3]},
    ),
    Case(
        name="public test records, one more or less",
        strategy={**GRADIENTS, "schedule": "dynamic"},
        adjacency="add-remove",
        fold=True,
        data={"public_test": True},
        model={"name": "huber-svm"},
        file="parquet",
    ),
    Case(
        name="no split",
        strategy={**GRADIENTS, "weights": "equal"},
        data={"test_fraction": 0.0},
    ),
    Case(
        name="no split, one more or less",
        strategy=GRADIENTS,
        adjacency="add-remove",
        data={"test_fraction": 0.0},
        model={"name": "squared"},
    ),
    Case(name="some parties", strategy=GRADIENTS, data={"parties": 2}),
    Case(name="output", strategy=OUTPUT),
    Case(
        name="output, equal weights",
        strategy={**OUTPUT, "weights": "equal", "law": "l1-laplace"},
        delta=0.0,
    ),
    Case(name="output, pure", strategy=OUTPUT, delta=0.0, model={"name": "huber-svm"}),
    Case(
        name="output, squared, by hash",
        strategy=OUTPUT,
        model={"name": "squared"},
        data={"partition": "hashed", "parties": 1},
    ),
    Case(name="joint output", strategy={**OUTPUT, "fit": "joint"}),
    Case(
        name="joint output, regression",
        strategy={**OUTPUT, "fit": "joint"},
        model={"name": "huber-regression"},
        data={"test_fraction": 0.0},
    ),
    Case(name="pathak", strategy={"name": "pathak"}),
    Case(name="objective", strategy=OBJECTIVE),
    Case(name="objective, pure", strategy=OBJECTIVE, delta=0.0),
    Case(
        name="objective, one more or less",
        strategy=OBJECTIVE,
        adjacency="add-remove",
        model={"name": "huber-svm"},
    ),
    Case(
        name="adaptive clipping by quantile",
        strategy={"name": "adaptive-clipping", "rule": "quantile", "rounds": 4},
    ),
    Case(
        name="adaptive clipping by coordinate",
        strategy={"name": "adaptive-clipping", "rule": "coordinate", "rounds": 4},
        adjacency="add-remove",
    ),
    Case(name="agd", strategy={"name": "agd"}, epsilon=0.5),
    Case(
        name="agd, one more or less", strategy={"name": "agd"}, adjacency="add-remove", epsilon=0.5
    ),
    Case(
        name="learned protection", strategy={"name": "learned-protection"}, adjacency="add-remove"
    ),
]


def everything() -> list[Case]:
    """The whole product of strategies, options, losses, adjacencies and ways to hold data."""
    strategies: list[dict[str, Any]] = [
        *({**GRADIENTS, "weights": weights} for weights in ("proportional", "equal")),
        {**GRADIENTS, "schedule": "dynamic"},
        *({**OUTPUT, "law": law} for law in ("gaussian", "l2-laplace", "l1-laplace")),
        {**OUTPUT, "weights": "equal"},
        {**OUTPUT, "fit": "joint"},
        {"name": "pathak"},
        *({**OBJECTIVE, "law": law} for law in ("gaussian", "l2-laplace")),
        *(
            {"name": "adaptive-clipping", "rule": rule, "rounds": 4}
            for rule in ("quantile", "coordinate")
        ),
        {"name": "agd"},
        {"name": "learned-protection"},
    ]
    models = ("logistic", "huber-svm", "huber-regression", "squared", "softmax", "mlp")
    holdings: list[dict[str, Any]] = [
        {},
        {"file": "parquet"},
        {"fold": True},
        {"data": {"test_fraction": 0.0}},
        {"data": {"partition": "hashed", "parties": 3, "records": [20, 15, 15]}},
    ]
    found = []
    for strategy, model, adjacency, holding in product(
        strategies, models, ("replace-one", "add-remove"), holdings
    ):
        more = {**holding, "data": dict(holding.get("data", {}))}
        if adjacency == "replace-one":
            more["data"].pop("records", None)
        if strategy.get("law") == "l2-laplace":
            more["delta"] = 0.0
        section = {"name": model, **({"hidden": [3]} if model == "mlp" else {})}
        rate = {"learning_rate": 0.1} if model == "mlp" and "rounds" in strategy else {}
        name = "/".join([*map(str, strategy.values()), model, adjacency, str(holding)])
        found.append(
            Case(
                name=name,
                strategy={**strategy, **rate},
                model=section,
                adjacency=adjacency,
                epsilon=0.5 if strategy["name"] == "agd" else 2.0,
                **more,
            )
        )
    return found


@pytest.fixture
def laboratory(fedpriv: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Laboratory:  # noqa: F811
    return Laboratory(fedpriv, monkeypatch)


def findings(case: Case, laboratory: Laboratory, folder: Path) -> list[str]:
    """What an observer, or the proof of a guarantee, would find wrong with a way to release."""
    rows = table(case.task)
    one = laboratory.run(case, rows, folder / "one")
    found = [] if one.code else unlawful(one)
    pairs = list(neighbours(case, rows))
    if not STRESS:  # the first row and the extreme record, and one more by turns
        turn = 3 + sum(case.name.encode()) % (len(pairs) - 3)
        pairs = [pairs[0], pairs[2], pairs[turn]]
    for number, (name, others) in enumerate(pairs):
        other = laboratory.run(case, others, folder / f"other{number}", script=one)
        if (other.code, one.code) != (0, 0):
            if (other.code, other.said) != (one.code, one.said):
                found.append(f"{name}: refused, or not, by what the table holds: {other.said}")
            continue
        found += [f"{name}: {what}" for what in difference(case, one, other)]
    return found


def difference(case: Case, one: Watch, other: Watch) -> list[str]:
    """What one record shows beside the noise, or by more than the noise hides."""
    adaptive = case.strategy["name"] in ADAPTIVE
    here, there = (public_part(watch, adaptive=adaptive) for watch in (one, other))
    found = [
        f"{name} differs"
        for name in here.keys() | there.keys()
        if here.get(name) != there.get(name)
    ]
    if len(one.releases) != len(other.releases) or len(one.selections) != len(other.selections):
        return [*found, "another number of releases"]
    for a, b in zip(one.releases, other.releases, strict=True):
        if a.mechanism != b.mechanism:
            found.append("the noise depends on a record")
        elif not isinstance(a.mechanism, ObjectiveMechanism) and moved(a, b) > limit(a):
            found.append(f"a sum moved by {moved(a, b):.4g}, more than {limit(a):.4g}")
    for c, d in zip(one.selections, other.selections, strict=True):
        apart = np.abs(c.scores - d.scores).max()
        if c.selection != d.selection or apart > c.selection.sensitivity * (1 + 1e-9):
            found.append(f"a score moved by {apart:.4g}")
        if c.selection.monotone and np.ptp(np.sign(np.round(c.scores - d.scores, 9))) > 1:
            found.append("scores moved both ways")
    return found + exact_gradients(case, one, other)


def limit(release: Released) -> float:
    """The sensitivity that the noise of a release is for, in L2."""
    assert isinstance(
        release.mechanism, GaussianMechanism | L1LaplaceMechanism | L2LaplaceMechanism
    )
    return release.mechanism.sensitivity * (1 + 1e-9)


def exact_gradients(case: Case, one: Watch, other: Watch) -> list[str]:
    """Objective perturbation rests on gradients: at every point a sum of them moves by 2G, or G."""
    if case.strategy["name"] != "objective-perturbation":
        return []
    found = []
    federations = (one.federation, other.federation)
    queries = [query for query in one.queries if isinstance(query, RiskGradientQuery)]
    for query in (*queries[:3], *queries[-2:]):
        try:
            here, there = (f.sum(query).value for f in federations if f is not None)
        except QueryRefused as refusal:
            found.append(f"what is asked of one is refused by the other: {refusal}")
            continue
        apart = float(np.linalg.norm(here - there))
        most = 2.0 if case.adjacency == "replace-one" else 1.0
        if apart > most * (1 + 1e-6):  # G = 1 for all losses that are allowed
            found.append(f"a sum of exact gradients moved by {apart:.4g}, more than {most:g}")
    return found


def unlawful(watch: Watch) -> list[str]:
    """Noise that is not drawn by the law that its mechanism states.

    Standardised, the sum over all draws of a run is gamma-distributed for each law.
    """
    found = []
    for kind in (GaussianMechanism, L1LaplaceMechanism, L2LaplaceMechanism):
        total = shape = 0.0
        for release in watch.releases:
            law = release.mechanism
            if type(law) is not kind:
                continue
            noise = (release.value / release.step - release.total) * release.step
            match law:
                case GaussianMechanism():
                    total += float((noise**2).sum()) / law.stddev**2 / 2
                    shape += noise.size / 2
                case L1LaplaceMechanism():
                    total += float(np.abs(noise).sum()) / law.scale
                    shape += noise.size
                case L2LaplaceMechanism() if law.dimension > 1:
                    total += float(np.linalg.norm(noise)) * law.epsilon / law.sensitivity
                    shape += law.dimension
        if shape and not lawful(total, shape):
            found.append(f"{kind.name} noise is off: {total / shape:.3g} of what is stated")
    return found


def lawful(total: float, shape: float) -> bool:
    low, high = gamma.ppf(FALSE_FAILURE / 2, shape), gamma.isf(FALSE_FAILURE / 2, shape)
    return bool(low <= total <= high)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_release_shows_a_record_through_its_noise_alone(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []
    assert (tmp_path / "one" / "out" / "result.json").exists()  # it was not refused


@pytest.mark.skipif(not STRESS, reason="FEDPRIV_STRESS is not set: the whole product takes long")
@pytest.mark.parametrize("case", everything() if STRESS else [], ids=lambda case: case.name)
def test_so_does_every_other_way_to_make_one(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("fraction", [None, 0.3])
def test_built_in_data_are_no_exception(
    adjacency: str,
    fraction: float | None,
    laboratory: Laboratory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the split that they came with, and with one by hash."""
    number = {"records": 4000} if adjacency == "add-remove" else {}
    data = {"name": "synthetic", "path": None, "schema": None, "test_fraction": fraction, **number}
    case = Case(name="built-in", strategy=GRADIENTS, adjacency=adjacency, data=data)
    whole = load("synthetic")
    one = laboratory.run(case, [], tmp_path / "one")
    assert one.code == 0
    for place in (0, 1234, len(whole.train) - 1):
        train = whole.train
        if adjacency == "add-remove":
            changed = train.take(np.delete(np.arange(len(train)), place))
        else:
            X, y = train.X.copy(), train.y.copy()
            X[place], y[place] = -X[place], -y[place]
            changed = Records(X=X, y=y, party=train.party)
        neighbour = replace(whole, train=changed)
        with monkeypatch.context() as patch:
            patch.setattr(simulations.records, "load", lambda *_, n=neighbour, **__: n)
            other = laboratory.run(case, [], tmp_path / f"{place}", script=one)
        assert difference(case, one, other) == []


def test_poisson_samples_hide_a_record_by_its_own_coin(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """With the same coins for all others: the last record of the last party has the last coin."""
    case = Case(
        name="sampled",
        strategy={**GRADIENTS, "sampling_rate": 0.5},
        adjacency="add-remove",
        data={"test_fraction": 0.0},
    )
    rows = sorted(table("binary"), key=lambda row: row["clinic"])
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[:-1], tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    joined = [moved(a, b) for a, b in zip(one.releases, other.releases, strict=True)]
    assert max(joined) > 0
    assert min(joined) == 0  # in some rounds the record took no part


def test_every_release_draws_noise_by_its_law(laboratory: Laboratory, tmp_path: Path) -> None:
    """Enough draws to find half the noise, for each law; and half the noise is found."""
    laws: list[dict[str, Any]] = [
        {"strategy": {**GRADIENTS, "rounds": 60}},
        {"strategy": {**OUTPUT, "law": "l1-laplace"}, "delta": 0.0},
        {"strategy": {**OUTPUT, "law": "l2-laplace"}, "delta": 0.0},
    ]
    for number, law in enumerate(laws):
        case = Case(name="law", **law)
        repeats = 1 if "rounds" in law["strategy"] else 30
        pooled = Watch(directory=tmp_path)
        for seed in range(repeats):
            folder = tmp_path / f"{number}-{seed}"
            pooled.releases += laboratory.run(case, table("binary"), folder, seed=seed).releases
        assert unlawful(pooled) == []
        halved = Watch(directory=tmp_path)
        for release in pooled.releases:
            exact = release.total * release.step
            halved.releases.append(replace(release, value=exact + (release.value - exact) / 2))
        assert unlawful(halved) != [], law


# The breaks that were there, put back one at a time: each must be found.


def test_a_test_split_by_position_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_position(dataset: Dataset, *, fraction: float, seed: int) -> Dataset:
        in_test = np.arange(len(dataset.train)) % round(1 / fraction) == 0
        return replace(
            dataset, train=dataset.train.take(~in_test), test=dataset.train.take(in_test)
        )

    monkeypatch.setattr(simulations.records, "hold_out", by_position)
    case = Case(name="split", strategy=GRADIENTS, adjacency="add-remove")
    assert any("a sum moved" in found for found in findings(case, laboratory, tmp_path))


def test_a_loss_with_no_bound_outside_a_ball_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objective perturbation with the squared loss: b carries the point out of the ball."""
    monkeypatch.setattr(ObjectiveProblem, "__post_init__", lambda self: None)
    case = Case(
        name="squared", strategy=OBJECTIVE, model={"name": "squared", "l2": 0.01}, epsilon=0.1
    )
    assert any("exact gradients moved" in found for found in findings(case, laboratory, tmp_path))


def test_a_published_number_of_exchanges_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Record, "made", property(lambda self: self.exchanges))
    case = Case(name="exchanges", strategy={**OUTPUT, "fit": "joint"}, model={"l2": 0.003})
    assert any("result.json differs" in found for found in findings(case, laboratory, tmp_path))


@pytest.mark.parametrize("strategy", [GRADIENTS, OBJECTIVE], ids=lambda each: each["name"])
def test_a_published_number_of_records_is_found(
    strategy: dict[str, Any],
    laboratory: Laboratory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        simulations.records, "_declared", lambda _section, _parties, counted: counted
    )
    case = Case(name="count", strategy=strategy, adjacency="add-remove")
    found = findings(case, laboratory, tmp_path)
    assert any("result.json differs" in what for what in found)
    assert any("plan.json differs" in what for what in found)
    if strategy is OBJECTIVE:  # its noise is for n records: another n, another law
        assert any("the noise depends on a record" in what for what in found)


def test_parties_that_are_dealt_out_by_label_are_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulations.releasable, "BY_RECORD", KINDS)
    data = {"partition": "dirichlet", "parties": 3, "alpha": 0.5, "test_fraction": 0.0}
    case = Case(name="dealt", strategy=OUTPUT, data=data)
    rows = table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    found = []
    for place in range(6):  # which flips move how many others is a matter of luck
        flipped = [dict(row) for row in rows]
        flipped[place]["outcome"] = "no" if rows[place]["outcome"] == "yes" else "yes"
        other = laboratory.run(case, flipped, tmp_path / f"{place}", script=one)
        found += difference(case, one, other)
    assert any("a sum moved" in what or "differs" in what for what in found)


def test_a_label_that_is_not_declared_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its only positive record, a table was refused; with it, it was not."""
    monkeypatch.setattr(simulations.releasable, "require_releasable_schema", lambda *_, **__: None)
    case = Case(name="label", strategy=GRADIENTS, adjacency="add-remove")
    schema = case.schema()
    del schema["columns"]["outcome"]
    monkeypatch.setattr(Case, "schema", lambda _self: schema)
    rows = [{**row, "outcome": "no"} for row in table("binary")]
    rows[0]["outcome"] = "yes"
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[1:], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 2)
    monkeypatch.undo()


def test_such_a_schema_is_refused_whatever_the_table_holds(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(name="label", strategy=GRADIENTS, adjacency="add-remove")
    schema = case.schema()
    del schema["columns"]["outcome"]
    monkeypatch.setattr(Case, "schema", lambda _self: schema)
    rows = table("binary")
    said = {
        laboratory.run(case, some, tmp_path / str(number)).said
        for number, some in enumerate((rows, rows[1:], [{**row, "outcome": "no"} for row in rows]))
    }
    (only,) = said
    assert "label 'outcome' must be described" in only
