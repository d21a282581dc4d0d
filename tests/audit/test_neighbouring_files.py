"""A release is private from the file on: two neighbouring tables, the whole path, every output.

For each way to make a release: (a) whatever is published and not noisy is the same to the byte; (b)
the exact sum before its noise moves by no more than the sensitivity that the noise is for; (c) the
noise has the law that the plan states. `test_breaks_put_back` shows that this finds what it is for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv.simulations.experiment.records.data
from fedpriv.data import Records, load
from tests.audit.covering_sample import MORE, SAMPLE, everything
from tests.audit.examination import STRESS, difference, findings, unlawful
from tests.audit.laboratory import Watch, moved
from tests.audit.neighbours import GRADIENTS, OUTPUT, Case, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory


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
