"""Sums of persons' gradients: each person's sum is clipped as one, exactly bounded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.clipped_sum import Clipping, clipped_gradient_sums
from fedpriv.learning.clipping.persons import (
    PersonGroups,
    clipped_person_sums,
    mean_gradient_sums,
)
from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.models import LinearModel, MlpModel, Model

C = 0.3
MODELS: dict[str, tuple[Model, Any]] = {
    "linear": (LinearModel(width=4), Logistic()),
    "softmax": (LinearModel(width=4, classes=3), Softmax(classes=3)),
    "network": (MlpModel(widths=(4, 3, 1), activation="tanh"), Logistic()),
}


def world(
    name: str, sizes: list[list[int]], *, seed: int = 0
) -> tuple[RecordBatch, PersonGroups, torch.Tensor]:
    """``sizes``: for every party the number of records of each of its persons."""
    model, loss = MODELS[name]
    rng = np.random.default_rng(seed)
    n = sum(map(sum, sizes))
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = rng.integers(0, 3, n) if loss.outputs > 1 else np.sign(rng.normal(size=n))
    bounds = np.cumsum([0, *(size for party in sizes for size in party)])
    offsets = np.cumsum([0, *map(sum, sizes)])
    batch = RecordBatch(
        features=torch.from_numpy(X),
        labels=torch.from_numpy(y if loss.outputs > 1 else y.astype(np.float32)),
        offsets=torch.from_numpy(offsets),
    )
    groups = PersonGroups(bounds=bounds, parties=np.cumsum([0, *map(len, sizes)]))
    return batch, groups, torch.from_numpy(rng.normal(size=model.dimension))


def reference(
    name: str, theta: torch.Tensor, batch: RecordBatch, groups: PersonGroups, clip: float
) -> np.ndarray:
    """One record at a time, unclipped, by the clipping of records, which has its own tests."""
    model, loss = MODELS[name]
    alone = RecordBatch(
        features=batch.features, labels=batch.labels, offsets=torch.arange(len(batch) + 1)
    )
    wide = Clipping(clip_norm=1e4)
    rows = clipped_gradient_sums(model, loss, theta, alone, wide).value.numpy()
    total = np.zeros((batch.parties, model.dimension))
    party = np.repeat(np.arange(batch.parties), groups.counts)
    for place, (first, last) in enumerate(pairwise(groups.bounds)):
        vector = rows[first:last].sum(0)
        total[party[place]] += vector * min(1.0, clip / np.linalg.norm(vector))
    return total


@pytest.mark.parametrize("name", MODELS)
def test_a_persons_gradients_are_summed_and_then_clipped(name: str) -> None:
    batch, groups, theta = world(name, [[3, 1, 5], [], [2], [1, 1]])
    model, loss = MODELS[name]
    for clip in (C, 100.0):
        sums = clipped_person_sums(
            model, loss, theta, batch, groups, Clipping(clip_norm=clip)
        ).value.numpy()
        expected = reference(name, theta, batch, groups, clip)
        np.testing.assert_allclose(sums, expected, atol=3e-4 * clip, rtol=2e-4)
        # Had records been clipped one by one, another sum would have come out.
        single = clipped_gradient_sums(model, loss, theta, batch, Clipping(clip_norm=clip))
        assert (clip == 100) == np.allclose(single.value.numpy(), expected, atol=3e-3)


@pytest.mark.parametrize("name", MODELS)
def test_no_person_adds_more_than_the_bound(name: str) -> None:
    model, loss = MODELS[name]
    batch, groups, theta = world(name, [[40]])
    for clip in (2.0**-20, 1e-3, C):
        sums = clipped_person_sums(model, loss, 50 * theta, batch, groups, Clipping(clip_norm=clip))
        length = float(np.linalg.norm(sums.value.numpy()))
        assert 0.99 * clip < length <= clip
        assert sums.clipped_fraction == 1.0


@pytest.mark.parametrize("name", MODELS)
def test_persons_cut_by_the_memory_limit_are_still_one(name: str) -> None:
    model, loss = MODELS[name]
    batch, groups, theta = world(name, [[7, 2], [30]])
    whole, cut = (
        clipped_person_sums(
            model, loss, theta, batch, groups, Clipping(clip_norm=C), memory_limit=limit
        ).value
        for limit in (1 << 26, 1 << 9)
    )
    assert torch.equal(whole, cut)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=6), st.integers(0, 100))
def test_the_others_are_the_same_to_the_bit_when_a_person_leaves(
    sizes: list[int], seed: int
) -> None:
    """So that what rounding can add to the sensitivity is that of one float64 sum."""
    model, loss = MODELS["linear"]
    batch, groups, theta = world("linear", [sizes], seed=seed)
    others, places = groups.select(np.arange(1, len(sizes)))
    rest = batch.select(torch.from_numpy(places))
    clipping = Clipping(clip_norm=C)
    for person in range(1, len(sizes)):
        alone, own = groups.select(np.array([person]))
        again, also = others.select(np.array([person - 1]))
        first = clipped_person_sums(
            model, loss, theta, batch.select(torch.from_numpy(own)), alone, clipping
        )
        second = clipped_person_sums(
            model, loss, theta, rest.select(torch.from_numpy(also)), again, clipping
        )
        assert torch.equal(first.value, second.value)
    whole = clipped_person_sums(model, loss, theta, batch, groups, clipping).value
    less = clipped_person_sums(model, loss, theta, rest, others, clipping).value
    assert float((whole - less).norm()) <= C


def test_centre_and_scale_are_of_a_persons_sum() -> None:
    model, loss = MODELS["linear"]
    batch, groups, theta = world("linear", [[2, 3]])
    centre, scale = torch.tensor([0.5, 0.0, -0.2, 1.0]), torch.tensor([2.0, 1.0, 0.5, 4.0])
    plain = clipped_person_sums(
        model, loss, theta, *(_only(batch, groups, 0)), Clipping(clip_norm=1e4)
    ).value
    scaled = clipped_person_sums(
        model,
        loss,
        theta,
        *(_only(batch, groups, 0)),
        Clipping(clip_norm=1e4, centre=centre, scale=scale),
    ).value
    torch.testing.assert_close(scaled, (plain - centre) / scale)


def _only(
    batch: RecordBatch, groups: PersonGroups, person: int
) -> tuple[RecordBatch, PersonGroups]:
    chosen, places = groups.select(np.array([person]))
    return batch.select(torch.from_numpy(places)), chosen


def test_a_person_without_a_finite_sum_adds_nothing_and_spoils_nobody() -> None:
    model, loss = MODELS["linear"]
    batch, groups, theta = world("linear", [[2, 3]])
    features = batch.features.clone()
    features[0] = torch.inf
    broken = RecordBatch(
        features=features, labels=batch.labels, offsets=batch.segments.offsets.clone()
    )
    labels = batch.labels.clone()
    labels[0] = torch.nan
    nameless = RecordBatch(features=batch.features, labels=labels, offsets=broken.segments.offsets)
    alone = clipped_person_sums(
        model, loss, theta, *_only(batch, groups, 1), Clipping(clip_norm=C)
    ).value
    sums = clipped_person_sums(model, loss, theta, nameless, groups, Clipping(clip_norm=C))
    assert torch.equal(sums.value, alone)
    assert sums.rejected == 1
    unusable = clipped_person_sums(model, loss, theta, broken, groups, Clipping(clip_norm=C))
    assert unusable.value.isfinite().all()  # the record is left out, the person is not


def test_groups_that_are_not_of_the_records_are_refused() -> None:
    model, loss = MODELS["linear"]
    batch, groups, theta = world("linear", [[2, 3]])
    fewer, _ = groups.select(np.array([0]))
    with pytest.raises(ValueError, match="persons must be those of the records"):
        clipped_person_sums(model, loss, theta, batch, fewer, Clipping(clip_norm=C))
    with pytest.raises(ValueError, match="a person has a record"):
        PersonGroups(bounds=np.array([0, 2, 2]), parties=np.array([0, 2]))
    with pytest.raises(ValueError, match="number of persons, 2"):
        PersonGroups(bounds=np.array([0, 2, 3]), parties=np.array([0, 3]))


@pytest.mark.parametrize("size", [2, 1000])
@pytest.mark.parametrize("name", ["linear", "softmax"])
def test_means_of_persons_gradients_are_those_of_autograd_in_float64(name: str, size: int) -> None:
    model, loss = MODELS[name]
    assert isinstance(model, LinearModel)
    sizes = [[1, 4, 2], [], [5, 1]]
    batch, groups, theta = world(name, sizes)
    expected = torch.zeros((3, model.dimension), dtype=torch.float64)
    party = np.repeat(np.arange(3), groups.counts)
    for place, (first, last) in enumerate(pairwise(groups.bounds)):
        point = theta.clone().requires_grad_()
        scores = batch.features[first:last].double() @ point.reshape(model.classes, 4).T
        scores = scores.squeeze(1) if model.classes == 1 else scores
        loss.value(scores, batch.labels[first:last]).mean().backward()
        assert point.grad is not None
        expected[party[place]] += point.grad
    found = mean_gradient_sums(model, loss, theta, batch, groups, size=size)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
