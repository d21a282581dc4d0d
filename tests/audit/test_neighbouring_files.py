"""A release is private from the file on: two neighbouring tables, the whole path, every output.

For each way to make a release: (a) whatever is published and not noisy is the same to the byte; (b)
the exact sum before its noise moves by no more than the sensitivity that the noise is for; (c) the
noise has the law that the plan states. `test_breaks_put_back` shows that this finds what it is for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv.simulations.experiment.records.data
from fedpriv.data import Records, load
from tests.audit.examination import STRESS, difference, findings, unlawful
from tests.audit.neighbours import (
    GRADIENTS,
    INFERENCE,
    OBJECTIVE,
    OUTPUT,
    Case,
    Watch,
    moved,
    table,
)
from tests.simulations.experiment.test_own_docs import files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.neighbours import Laboratory

# A covering sample: every strategy, law, loss, adjacency, file, split and kind of party at least
# once, and what interacts together.
SECOND_ORDER = {"name": "second-order", "rounds": 3}
TRIALS: dict[str, Any] = {
    "on": "private",
    "grid": {"strategy.clip": [0.3, 1.0], "strategy.rounds": [1, 2]},
    "expected_trials": 4,
    "eta": 20,  # seldom one alone
}
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
    Case(
        name="squared in a ball, one more or less",
        strategy={**GRADIENTS, "optimiser": "nesterov", "warm_up": 2},
        adjacency="add-remove",
        model={"name": "squared", "l2": 0.0, "radius": 0.2},
    ),
    Case(name="some parties", strategy=GRADIENTS, data={"parties": 2}),
    Case(name="gradients, pure", strategy=GRADIENTS, delta=0.0),
    Case(
        name="gradients, pure by coordinate, one more or less",
        strategy={**GRADIENTS, "law": "l1-laplace"},
        adjacency="add-remove",
        delta=0.0,
        model={"name": "huber-svm"},
    ),
    Case(
        name="gradients, pure, clipped in L1",
        strategy={**GRADIENTS, "clip_in": "l1"},
        delta=0.0,
        model={"name": "softmax"},
    ),
    Case(
        name="gradients, pure, clipped in L1, one more or less",
        strategy={**GRADIENTS, "clip_in": "l1", "clip": 0.5},
        adjacency="add-remove",
        delta=0.0,
    ),
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
    Case(name="coefficients, logistic", strategy=INFERENCE, data={"scaling": "divide"}),
    Case(
        name="coefficients, logistic, one more or less",
        strategy=INFERENCE,
        adjacency="add-remove",
        data={"scaling": "divide", "test_fraction": 0.0},
    ),
    Case(
        name="coefficients, linear",
        strategy=INFERENCE,
        model={"name": "squared"},
        data={"scaling": "divide", "test_fraction": 0.0},
        epsilon=400.0,
    ),
    Case(
        name="coefficients, linear, one more or less",
        strategy=INFERENCE,
        adjacency="add-remove",
        model={"name": "squared"},
        data={"scaling": "divide"},
    ),
    Case(
        name="joint output, regression",
        strategy={**OUTPUT, "fit": "joint"},
        model={"name": "huber-regression"},
        data={"test_fraction": 0.0},
    ),
    Case(
        name="joint output of least squares, one more or less",
        strategy={**OUTPUT, "fit": "joint"},
        adjacency="add-remove",
        model={"name": "squared", "l2": 1.0},
    ),
    Case(name="output in a ball", strategy=OUTPUT, model={"radius": 0.1}),
    Case(
        name="objective in a ball, one more or less",
        strategy=OBJECTIVE,
        adjacency="add-remove",
        model={"radius": 0.1},
    ),
    Case(
        name="joint output, one more or less",
        strategy={**OUTPUT, "fit": "joint"},
        adjacency="add-remove",
        model={"name": "huber-svm"},
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
    Case(name="second order", strategy=SECOND_ORDER),
    Case(
        name="second order, one more or less",
        strategy=SECOND_ORDER,
        adjacency="add-remove",
        model={"name": "softmax"},
    ),
    Case(name="tuned and paid for", strategy=GRADIENTS, tuning=TRIALS),
    Case(
        name="tuned and paid for, one more or less",
        strategy=GRADIENTS,
        adjacency="add-remove",
        model={"name": "softmax"},
        tuning=TRIALS,
        fold=True,
        data={"public_test": True},
    ),
    Case(
        name="tuned by loss, a matrix in every trial",
        strategy=SECOND_ORDER,
        model={"name": "huber-regression"},
        tuning={**TRIALS, "grid": {"strategy.floor": [0.5, 2.0]}, "clip": 0.3},
    ),
    Case(name="agd", strategy={"name": "agd"}, epsilon=0.5),
    Case(
        name="agd, one more or less", strategy={"name": "agd"}, adjacency="add-remove", epsilon=0.5
    ),
    Case(
        name="learned protection", strategy={"name": "learned-protection"}, adjacency="add-remove"
    ),
]

# Networks, and code of the user's own, as the pages about it have it.
IMAGES: dict[str, Any] = {
    "data": {"intercept": 0.0},
    "model": {"name": "cnn", "shape": [1, 4, 4]},
}
OWN_STRATEGY, OWN_MODEL = files("own-strategy.md"), files("own-model.md")
OWN_LOSS: dict[str, Any] = {
    "model": {"name": "linear", "loss": "losses.py:PseudoHuberHinge"},
    "code": OWN_MODEL,
}
STEPS = {**GRADIENTS, "rounds": 2, "learning_rate": 0.1}
SAMPLE += [
    Case(name="images, one more or less", strategy=STEPS, adjacency="add-remove", **IMAGES),
    Case(
        name="own strategy",
        strategy={"name": "signs.py:SignDescent", "rounds": 4},
        code=OWN_STRATEGY,
    ),
    Case(
        name="own strategy and own plan, one more or less",
        strategy={"name": "momentum.py:Momentum", "rounds": 4},
        adjacency="add-remove",
        fold=True,
        data={"public_test": True},
        code=OWN_STRATEGY,
    ),
    Case(
        name="own model, one more or less",
        strategy=STEPS,
        adjacency="add-remove",
        data={"intercept": 0.0},
        model={"name": "nets.py:Cnn", "shape": [1, 8, 8]},
        code=OWN_MODEL,
    ),
    Case(name="own loss", strategy=OUTPUT, **OWN_LOSS),
]
MORE = [
    Case(
        name="images, clipped by quantile",
        strategy={"name": "adaptive-clipping", "rounds": 3, "learning_rate": 0.1},
        **IMAGES,
    ),
    *(
        Case(
            name=f"own model, {name}, {adjacency}",
            strategy=STEPS,
            adjacency=adjacency,
            data={"intercept": 0.0},
            model={"name": f"nets.py:{name}", "shape": shape},
            code=OWN_MODEL,
        )
        for name, shape in (("Lstm", [8, 8]), ("FrozenEncoder", [6]))
        for adjacency in ("replace-one", "add-remove")
    ),
    *(
        Case(name=f"own loss, {strategy['name']}", strategy=strategy, **OWN_LOSS)
        for strategy in (GRADIENTS, OBJECTIVE, {"name": "agd", "rounds": 3})
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
        SECOND_ORDER,
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
    cases = []
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
        cases.append(
            Case(
                name=name,
                strategy={**strategy, **rate},
                model=section,
                adjacency=adjacency,
                epsilon=0.5 if strategy["name"] == "agd" else 2.0,
                **more,
            )
        )
    return cases


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_release_shows_a_record_through_its_noise_alone(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []
    assert (tmp_path / "one" / "out" / "result.json").exists()  # it was not refused


@pytest.mark.skipif(not STRESS, reason="FEDPRIV_STRESS is not set: the whole product takes long")
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch, of an LSTM in vmap
@pytest.mark.parametrize(
    "case", [*MORE, *everything()] if STRESS else [], ids=lambda case: case.name
)
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
            patch.setattr(
                fedpriv.simulations.experiment.records.data, "load", lambda *_, n=neighbour, **__: n
            )
            other = laboratory.run(case, [], tmp_path / f"{place}", script=one)
        assert difference(case, one, other) == []


@pytest.mark.parametrize(
    "strategy",
    [
        GRADIENTS,
        {"name": "adaptive-clipping", "rule": "quantile", "rounds": 12},
        {"name": "adaptive-clipping", "rule": "coordinate", "rounds": 12},
        {"name": "agd", "splits": 5},
        {"name": "learned-protection", "horizon": 6},
        {"name": "second-order", "rounds": 8},
    ],
    ids=["fixed", "quantile", "coordinate", "agd", "learned", "second order"],
)
def test_poisson_samples_hide_a_record_by_its_own_coin(
    strategy: dict[str, Any], laboratory: Laboratory, tmp_path: Path
) -> None:
    """With the same coins for all others: the last record of the last party has the last coin."""
    case = Case(
        name="sampled",
        strategy={**strategy, "sampling_rate": 0.5},
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


LAWS: list[dict[str, Any]] = [
    {"strategy": {**GRADIENTS, "rounds": 60}},
    {"strategy": {**OUTPUT, "law": "l1-laplace"}, "delta": 0.0},
    {"strategy": {**OUTPUT, "law": "l2-laplace"}, "delta": 0.0},
]
MORE_LAWS: list[dict[str, Any]] = [
    {"strategy": {"name": "adaptive-clipping", "rule": "quantile", "rounds": 30}},
    {"strategy": {"name": "learned-protection", "horizon": 30}},
    {
        "strategy": {"name": "second-order", "rounds": 30, "sampling_rate": 0.5},
        "adjacency": "add-remove",
    },
]


@pytest.mark.parametrize(
    "law",
    [*LAWS, *(pytest.param(law, marks=pytest.mark.deep) for law in MORE_LAWS)],
    ids=lambda law: "-".join(map(str, law["strategy"].values())),
)
def test_every_release_draws_noise_by_its_law(
    law: dict[str, Any], laboratory: Laboratory, tmp_path: Path
) -> None:
    """Enough draws to find half the noise, for each law; and half the noise is found."""
    case = Case(name="law", **law)
    repeats = 1 if {"rounds", "horizon"} & set(law["strategy"]) else 30
    pooled = Watch(directory=tmp_path)
    for seed in range(repeats):
        folder = tmp_path / f"{seed}"
        pooled.releases += laboratory.run(case, table("binary"), folder, seed=seed).releases
    assert pooled.releases
    assert unlawful(pooled) == []
    halved = Watch(directory=tmp_path)
    for release in pooled.releases:
        exact = release.total * release.step
        halved.releases.append(replace(release, value=exact + (release.value - exact) / 2))
    assert unlawful(halved) != []
