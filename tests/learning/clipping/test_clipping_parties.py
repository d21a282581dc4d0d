"""Many parties in one computation, in parts, on samples: the same numbers as one at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.losses import Logistic, Loss, Softmax
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.rounding_error import rounding_sensitivity
from fedpriv.learning.segments import BLOCK, Segments

CASES: dict[str, tuple[Model, Loss]] = {
    "linear": (LinearModel(width=6), Logistic()),
    "classes": (LinearModel(width=6, classes=3), Softmax(classes=3)),
    "mlp": (MlpModel(widths=(6, 4, 1)), Logistic()),
    "network": (
        NetworkModel(
            module=nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4, 1)),
            input_shape=(1, 2, 3),
        ),
        Logistic(),
    ),
}
CLIP = Clipping(clip_norm=0.3)
sizes_of_parties = st.lists(
    st.one_of(st.integers(0, 5), st.sampled_from([BLOCK - 1, BLOCK, 2 * BLOCK + 3])),
    min_size=1,
    max_size=8,
)


def stacked(
    model: Model, loss: Loss, sizes: list[int], *, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, RecordBatch]:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x = torch.from_numpy(rng.normal(size=(n, model.features))).to(dtype)
    y = torch.from_numpy(rng.choice([-1, 1], n) if loss.outputs == 1 else rng.integers(0, 3, n))
    offsets = torch.tensor([0, *np.cumsum(sizes)])
    theta = torch.from_numpy(rng.normal(size=model.dimension))
    return theta, RecordBatch(features=x, labels=y, offsets=offsets)


def one_party_at_a_time(model: Model, loss: Loss, theta: Tensor, batch: RecordBatch) -> Tensor:
    return torch.cat(
        [
            clipped_gradient_sums(
                model,
                loss,
                theta,
                RecordBatch(features=batch.features[a:b], labels=batch.labels[a:b]),
                CLIP,
            ).value
            for a, b in pairwise(batch.segments.offsets.tolist())
        ]
    )


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15, deadline=None)
@given(sizes=sizes_of_parties, seed=st.integers(0, 2**32 - 1))
def test_stacked_parties_get_the_sums_they_get_alone(
    case: str, sizes: list[int], seed: int
) -> None:
    model, loss = CASES[case]
    theta, batch = stacked(model, loss, sizes, seed=seed)
    value = clipped_gradient_sums(model, loss, theta, batch, CLIP).value
    torch.testing.assert_close(
        value, one_party_at_a_time(model, loss, theta, batch), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=5, deadline=None)
@given(sizes=sizes_of_parties, seed=st.integers(0, 2**32 - 1), memory=st.integers(5000, 10**5))
@example(sizes=[5, 0, 3], seed=0, memory=1)
def test_the_memory_limit_changes_nothing_but_the_last_bits(
    case: str, sizes: list[int], seed: int, memory: int
) -> None:
    model, loss = CASES[case]
    theta, batch = stacked(model, loss, sizes, seed=seed, dtype=torch.float32)
    whole = clipped_gradient_sums(model, loss, theta, batch, CLIP)
    parts = clipped_gradient_sums(model, loss, theta, batch, CLIP, memory_limit=memory)
    # Blocks are the same; scores and errors of float32 models may round differently.
    records = max(1, *sizes)
    torch.testing.assert_close(parts.value, whole.value, rtol=0, atol=1e-6 * records)
    torch.testing.assert_close(parts.norms, whole.norms, rtol=1e-4, atol=1e-6)
    assert parts.value.shape == (len(sizes), model.dimension)


def test_parts_never_hold_more_records_than_asked_for() -> None:
    sizes = [700, 0, 3, 129, 500]
    _, batch = stacked(*CASES["linear"], sizes, seed=0)
    for size in (1, 200, 300):
        parts = batch.parts(size)
        assert sum(len(part) for _, part in parts) == sum(sizes)
        assert max(len(part) for _, part in parts) <= size
        touched = {party for parties, _ in parts for party in range(parties.start, parties.stop)}
        assert touched == set(range(len(sizes)))
        assert all(part.parties == parties.stop - parties.start for parties, part in parts)
        assert batch.parts(size) is parts


@pytest.mark.parametrize("case", CASES)
def test_a_record_of_one_party_never_moves_the_sum_of_another(case: str) -> None:
    model, loss = CASES[case]
    theta, batch = stacked(model, loss, [3, 70, 1, 0, 200], seed=5, dtype=torch.float32)
    before = clipped_gradient_sums(model, loss, theta, batch, CLIP).value
    for poison in (100.0, torch.nan, 3e38):
        features = batch.features.clone()
        features[3 + 35] = poison  # a record of party 1
        changed = RecordBatch(
            features=features, labels=batch.labels, offsets=batch.segments.offsets
        )
        after = clipped_gradient_sums(model, loss, theta, changed, CLIP).value
        same = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
        assert same == [True, False, True, True, True]


@settings(max_examples=25, deadline=None)
@given(sizes=sizes_of_parties, seed=st.integers(0, 2**32 - 1))
def test_a_selection_keeps_every_record_with_its_party(sizes: list[int], seed: int) -> None:
    model, loss = CASES["linear"]
    theta, batch = stacked(model, loss, sizes, seed=seed)
    chosen = torch.from_numpy(np.flatnonzero(np.random.default_rng(seed).random(len(batch)) < 0.4))
    value = clipped_gradient_sums(model, loss, theta, batch.select(chosen), CLIP).value
    for row, (a, b) in zip(value, pairwise(batch.segments.offsets.tolist()), strict=True):
        own = chosen[(chosen >= a) & (chosen < b)]
        alone = RecordBatch(features=batch.features[own], labels=batch.labels[own])
        expected = clipped_gradient_sums(model, loss, theta, alone, CLIP).value[0]
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-12)


def test_a_record_cannot_be_selected_twice() -> None:
    _, batch = stacked(*CASES["linear"], [4], seed=0)
    with pytest.raises(ValueError, match="indices must strictly increase"):
        batch.select(torch.tensor([1, 1]))


@settings(max_examples=30, deadline=None)
@given(sizes=sizes_of_parties, seed=st.integers(0, 2**32 - 1))
def test_float32_sums_stay_within_the_stated_rounding(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    segments = Segments(offsets=torch.tensor([0, *np.cumsum(sizes)]))
    left = torch.from_numpy(rng.normal(size=(n, 3))).float()
    right = torch.from_numpy(rng.normal(size=(n, 5))).float()
    outer = segments.outer_sums(left, right)
    weighted = segments.weighted_sums(left[:, 0], right)
    exact = (left.double().unsqueeze(2) * right.double().unsqueeze(1)).flatten(1)
    for j, (a, b) in enumerate(pairwise(segments.offsets.tolist())):
        longest = float(exact[a:b].norm(dim=1).max()) if b > a else 0.0
        slack = rounding_sensitivity(
            clip_norm=max(longest, 1e-30),
            records=max(1, b - a),
            dtype=torch.float32,
            replace_one=False,
        )
        assert float((outer[j] - exact[a:b].sum(0)).norm()) <= slack / 2
        assert float((weighted[j] - exact[a:b, :5].sum(0)).norm()) <= slack / 2


@pytest.mark.parametrize("case", CASES)
def test_a_repeated_computation_gives_the_same_bits(case: str) -> None:
    model, loss = CASES[case]
    theta, batch = stacked(model, loss, [5, 300, 40], seed=1, dtype=torch.float32)
    first = clipped_gradient_sums(model, loss, theta, batch, CLIP).value
    assert torch.equal(clipped_gradient_sums(model, loss, theta, batch, CLIP).value, first)


def test_batches_that_do_not_fit_together_are_refused() -> None:
    x, y = torch.zeros(3, 2), torch.ones(3)
    with pytest.raises(ValueError, match="features must be a float32 or float64 matrix"):
        RecordBatch(features=x.long(), labels=y)
    with pytest.raises(ValueError, match="features must be contiguous"):
        RecordBatch(features=torch.zeros(2, 3).T, labels=y)
    with pytest.raises(ValueError, match="labels must have one entry per record"):
        RecordBatch(features=x, labels=y[:2])
    for bad in ([0, 2], [1, 3], [0, 2, 1, 3]):
        with pytest.raises(ValueError, match="offsets must not decrease and run from 0"):
            RecordBatch(features=x, labels=y, offsets=torch.tensor(bad))
    with pytest.raises(ValueError, match="offsets must be a vector of at least two integers"):
        RecordBatch(features=x, labels=y, offsets=torch.tensor([0.0, 3.0]))


def test_a_batch_shows_sizes_and_no_records() -> None:
    batch = RecordBatch(features=torch.full((2, 3), 0.125), labels=torch.ones(2))
    assert repr(batch) == "RecordBatch(2 records × 3 features)"
    sums = clipped_gradient_sums(LinearModel(width=3), Logistic(), torch.zeros(3), batch, CLIP)
    assert "tensor" not in repr(sums)


@pytest.mark.parametrize("sizes", [[4000, 1, 0, 0, 300, 2], [0, 4303], [1] * 4303, [4303]])
def test_sums_do_not_depend_on_how_many_threads_share_the_parties(sizes: list[int]) -> None:
    rng = np.random.default_rng(len(sizes))
    offsets = torch.tensor([0, *np.cumsum(sizes).tolist()])
    batch = RecordBatch(
        features=torch.from_numpy(rng.normal(size=(4303, 256)).astype(np.float32)),
        labels=torch.from_numpy(rng.choice([-1.0, 1.0], 4303)),
        offsets=offsets,
    )
    theta = torch.from_numpy(rng.normal(size=256))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            sums = clipped_gradient_sums(LinearModel(width=256), Logistic(), theta, batch, CLIP)
            results.append((sums.value, sums.norms))
    finally:
        torch.set_num_threads(before)
    for value, norms in results[1:]:
        assert torch.equal(value, results[0][0])
        assert torch.equal(norms, results[0][1])
