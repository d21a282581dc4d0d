"""Sums of clipped updates: what a party can contribute, whatever its records are."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isqrt, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.learning import LinearModel, Logistic, MlpModel, RecordBatch, Softmax, small_cnn
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.summed import RoundedSum
from fedpriv.learning.training.trainer import LocalTrainer
from tests.learning.training.test_trainer import CASES, KEY, PLAIN, SIZES, records, start

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning import Loss, Model

CLIP, STEP = 0.25, 2.0**-14
WEIGHTS = np.array([1.0, 1.0, 0.5, 1.0, 0.125, 0.9, 0.0])


def clipped(updates: NDArray[Any], clip: float) -> NDArray[np.float64]:
    found = updates.astype(np.float64)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    shorter: NDArray[np.float64] = found * np.minimum(1, clip / np.maximum(norms, 1e-300))
    return shorter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_a_clipped_sum_is_that_of_rounded_clipped_updates(case: str, dtype: torch.dtype) -> None:
    model, loss = CASES[case]
    batch, theta = records(model, loss, dtype=dtype), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=PLAIN)
    updates = trainer.updates(theta, key=KEY)
    lengths = np.linalg.norm(updates.astype(np.float64), axis=1)
    clip = float(np.median(lengths[np.array(SIZES) > 0]))  # half of them are clipped
    total, norms = trainer.clipped_sum(
        theta, key=KEY, clip_norm=clip, weights=WEIGHTS, step=STEP, bound=clip
    )
    np.testing.assert_allclose(norms, lengths)
    expected = np.rint(WEIGHTS[:, None] * clipped(updates, clip) / STEP).sum(0)
    # A coordinate half-way between two points may go either way.
    assert np.abs(total - expected).max() <= 1
    assert (total == expected).mean() > 0.99
    assert total.dtype == np.int64


def test_without_clipping_updates_are_only_rounded() -> None:
    model, loss = CASES["perceptron"]
    batch, theta = records(model, loss), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=PLAIN)
    total, norms = trainer.clipped_sum(
        theta, key=KEY, clip_norm=None, weights=WEIGHTS, step=STEP, bound=100.0
    )
    updates = trainer.updates(theta, key=KEY)
    np.testing.assert_array_equal(total, np.rint(WEIGHTS[:, None] * updates / STEP).sum(0))
    with pytest.raises(ValueError, match="beyond the bound"):
        trainer.clipped_sum(
            theta, key=KEY, clip_norm=None, weights=WEIGHTS, step=STEP, bound=norms.max() / 100
        )


def test_who_does_not_join_adds_nothing() -> None:
    model, loss = CASES["logistic"]
    batch, theta = records(model, loss), start(model)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=PLAIN)
    how = {
        "key": KEY,
        "clip_norm": CLIP,
        "weights": np.ones(len(SIZES)),
        "step": STEP,
        "bound": CLIP,
    }
    joining = np.array([True, True, False, False, True, False, True])
    updates = trainer.updates(theta, key=KEY, joining=joining)
    assert not updates[~joining].any()
    np.testing.assert_array_equal(updates[joining], trainer.updates(theta, key=KEY)[joining])
    total, norms = trainer.clipped_sum(theta, joining=joining, **how)  # type: ignore[arg-type]
    alone = [
        trainer.clipped_sum(theta, joining=np.arange(len(SIZES)) == j, **how)[0]  # type: ignore[arg-type]
        for j in np.flatnonzero(joining)
    ]
    np.testing.assert_array_equal(total, np.sum(alone, axis=0))
    assert not norms[~joining].any()
    nobody = np.zeros(len(SIZES), bool)
    assert not trainer.clipped_sum(theta, joining=nobody, **how)[0].any()  # type: ignore[arg-type]


HOSTILE: dict[str, tuple[Model, Loss]] = {
    "logistic": (LinearModel(width=7), Logistic()),
    "large parties": (LinearModel(width=2), Logistic()),
    "perceptron": (MlpModel(widths=(7, 5, 3), activation="relu"), Softmax(classes=3)),
    "cnn": (small_cnn(shape=(1, 4, 4), classes=3), Softmax(classes=3)),
}


@pytest.mark.parametrize("rate", [1e-30, 1e-3, 1.0, 1e10, 1e38, 1e300])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15, 1e30, inf, nan])
@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_update_is_longer_than_the_clip_norm(
    case: str, scale: float, rate: float, dtype: torch.dtype
) -> None:
    """In integers, exactly: the grid is so fine that rounding adds less than 2⁻³⁰."""
    model, loss = HOSTILE[case]
    rng = np.random.default_rng(1)
    features = rng.normal(size=(6, model.features))
    features[:3] *= scale
    batch = RecordBatch(
        features=torch.from_numpy(features).to(dtype),
        labels=torch.from_numpy(
            rng.integers(3, size=6) if loss.outputs > 1 else rng.choice([-1.0, 1.0], size=6)
        ),
    )
    settings = LocalSgd(epochs=2, batch_size=2, learning_rate=rate, momentum=0.5, proximal=0.1)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=settings)
    step = 2.0**-44
    total, norms = trainer.clipped_sum(
        start(model), key=KEY, clip_norm=1.0, weights=np.ones(1), step=step, bound=1.0
    )
    square = sum(int(z) ** 2 for z in total)
    length = Fraction(isqrt(square) + 1) * Fraction(step)
    assert length <= 1 + Fraction(1, 2**30)
    if np.isinf(norms[0]):
        assert square == 0
    elif norms[0] > 1.001:
        assert length > Fraction(999, 1000)  # clipped, not thrown away


def test_hostile_cases_are_clipped_and_thrown_away() -> None:
    """Both branches of the test above occur."""
    model, loss = HOSTILE["perceptron"]
    found = []
    for rate in (1.0, 1e300):
        batch = records(model, loss, (6,))
        settings = LocalSgd(epochs=2, batch_size=2, learning_rate=rate)
        trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=settings)
        found.append(
            trainer.clipped_sum(
                start(model), key=KEY, clip_norm=0.1, weights=np.ones(1), step=STEP, bound=0.1
            )
        )
    assert found[0][1][0] > 0.1
    assert found[0][0].any()
    assert np.isinf(found[1][1][0])
    assert not found[1][0].any()


def _sum(rows: NDArray[Any], *, bound: float, step: float = 1.0) -> NDArray[np.int64]:
    total = RoundedSum(
        dimension=rows.shape[1],
        clip_norm=None,
        weights=np.ones(len(rows)),
        step=step,
        bound=bound,
    )
    for j, row in enumerate(rows):  # one by one, so that sums must be put aside in between
        total.add(np.array([j]), row[None])
    return total.result()[0]


def test_sums_are_exact_beyond_what_float64_holds() -> None:
    rows = np.full((9, 2), 2.0**51 + 1)
    assert _sum(rows, bound=2.0**52).tolist() == [9 * (2**51 + 1)] * 2
    assert int(float(9 * (2**51 + 1))) != 9 * (2**51 + 1)


def test_ties_are_rounded_to_even() -> None:
    rows = np.array([[0.5, 1.5, -0.5, -1.5, 2.5]])
    assert _sum(rows, bound=4.0).tolist() == [0, 2, 0, -2, 2]


def test_an_update_that_is_not_finite_counts_as_zero_and_the_others_stay() -> None:
    rows = np.array([[1.0, 2.0], [nan, 1.0], [inf, 0.0], [1e200, 0.0], [3.0, -1.0]])
    total = RoundedSum(dimension=2, clip_norm=100.0, weights=np.ones(5), step=1.0, bound=100.0)
    total.add(np.arange(5), rows)
    value, norms = total.result()
    assert value.tolist() == [4, 1]
    assert norms.tolist() == [5**0.5, inf, inf, inf, 10**0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.full(7, 1.01)}, "weights must be 7 numbers from 0 to 1"),
        ({"weights": np.full(7, nan)}, "weights must be"),
        ({"weights": np.ones(6)}, "weights must be"),
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"clip_norm": inf}, "clip_norm must be positive"),
        ({"step": 0.0}, "step must be positive"),
        ({"bound": nan}, "bound must be positive"),
        ({"bound": 2.0**63}, "bound must be less than"),
        ({"bound": 0.99}, "bound must be at least clip_norm"),
        ({"clip_norm": 2.0**-401}, "clip_norm must lie in"),
        ({"joining": np.ones(6, bool)}, "joining must be booleans"),
        ({"joining": np.ones(7)}, "joining must be booleans"),
        ({"key": -1}, "key must be"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    model, loss = CASES["logistic"]
    batch = records(model, loss)
    trainer = LocalTrainer(model=model, loss=loss, batch=batch, settings=PLAIN)
    arguments = {"key": 1, "clip_norm": 1.0, "weights": np.ones(7), "step": 1.0, "bound": 1.0}
    with pytest.raises(ValueError, match=message):
        trainer.clipped_sum(start(model), **{**arguments, **change})
