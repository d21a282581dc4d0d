"""Rounding while clipping: no contribution is longer than the clip norm, in float32 neither."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import CLIP_MARGIN, Clipping, clipped_gradient_sums
from fedpriv.learning.losses import Logistic, Squared
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.learning.rounding_error import rounding_sensitivity


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.integers(-30, 28),
    slope_exponent=st.integers(-14, 12),
)
def test_huge_and_tiny_float32_gradients_are_clipped_in_their_direction(
    seed: int, exponent: int, slope_exponent: int
) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(1, 6)) * 10.0**exponent).float()
    y = torch.tensor([10.0**slope_exponent])
    loss, clipping = Squared(radius=1.0, label_bound=1e30), Clipping(clip_norm=0.5)
    for model in (LinearModel(width=6), MlpModel(widths=(6, 1), activation="identity")):
        theta = torch.zeros(model.dimension)
        value = clipped_gradient_sums(
            model, loss, theta, RecordBatch(features=x, labels=y), clipping
        ).value[0]
        gradient = -(10.0**slope_exponent) * x[0].double()
        if model.dimension > 6:
            gradient = torch.cat([gradient, torch.tensor([-(10.0**slope_exponent)]).double()])
        length = float(gradient.norm())
        assume(length < 2.0**99)
        expected = gradient * min(1.0, 0.5 * (1 - CLIP_MARGIN) / length)
        if exponent > -15:  # shorter rows than 2⁻⁶³ are bounded, but not measured precisely
            torch.testing.assert_close(value, expected, rtol=2e-4, atol=1e-18)
        assert float(value.norm()) <= 0.5


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    clip_norm=st.floats(2.0**-20, 2.0**20),
    width=st.integers(1, 1500),
    exponent=st.integers(-12, 25),
)
def test_no_float32_contribution_is_longer_than_the_clip_norm(
    seed: int, clip_norm: float, width: int, exponent: int
) -> None:
    """A batch of one record has no summation error: what comes back is the contribution itself."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(1, width)) * 10.0**exponent).float()
    batch = RecordBatch(features=x, labels=torch.ones(1))
    for model in (LinearModel(width=width), MlpModel(widths=(width, 3, 1), activation="relu")):
        theta = torch.from_numpy(rng.normal(size=model.dimension))
        sums = clipped_gradient_sums(model, Logistic(), theta, batch, Clipping(clip_norm=clip_norm))
        assert float(sums.value.norm()) <= clip_norm
        if exponent < 12 and float(sums.norms[0]) > clip_norm * 1.001:
            assert float(sums.value.norm()) > clip_norm * (1 - 2 * CLIP_MARGIN)


def test_rounding_adds_little_to_the_sensitivity_and_nothing_visible_in_float64() -> None:
    def slack(records: int, dtype: torch.dtype, *, replace_one: bool) -> float:
        return rounding_sensitivity(
            clip_norm=2.0, records=records, dtype=dtype, replace_one=replace_one
        )

    assert slack(10**6, torch.float32, replace_one=True) < 0.01
    assert slack(4096, torch.float32, replace_one=False) < 0.15
    assert slack(10**6, torch.float64, replace_one=False) < 1e-3
    assert slack(100, torch.float32, replace_one=True) == slack(
        100, torch.float32, replace_one=False
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"clip_norm": 1e-9}, r"clip_norm must lie in \[2\^-20, 2\^30\]"),
        ({"scale": torch.tensor([1.0, 0.0])}, "scale must be positive"),
        ({"centre": torch.tensor([1.0, nan])}, "centre must be a finite vector"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clipping(**{"clip_norm": 1.0, **change})  # type: ignore[arg-type]
