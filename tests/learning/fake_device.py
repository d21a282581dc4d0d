"""Networks on an accelerator: a fake one, on which PyTorch refuses to mix devices.

PyTorch's fake tensors have a device, a shape and a type, and no numbers; what would compute with
tensors of two devices raises, as it would on a GPU. What the numbers are on real hardware was not
tested: this machine has none.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping import clipped_sum, isolation
from fedpriv.learning.clipping.clipped_sum import ClippedGradient, Clipping
from fedpriv.learning.clipping.factors import Dense, weighted_sums
from fedpriv.learning.device import require_exact_products, resolve_device
from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.network import NetworkModel, small_cnn
from fedpriv.learning.replicas import Replicas
from fedpriv.learning.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Iterator

FAR = "pretend:0"
_setup_privateuseone_for_python_backend("pretend")


class Scaled(nn.Module):
    """Without a rule for its layers: vectorised autograd computes it. It has a buffer, too."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, 1)
        self.factor = nn.Parameter(torch.ones(1))
        self.register_buffer("shift", torch.ones(36))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x + self.shift) * self.factor
        return scores


@pytest.fixture(autouse=True)
def _fake_tensors_below_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake tensor is a mode of dispatch, which a module's code may not have."""
    monkeypatch.setattr(isolation, "_without_dispatch", nullcontext)


def models() -> dict[str, tuple[NetworkModel, Any]]:
    return {
        "by layers": (small_cnn(shape=(1, 6, 6), classes=3), Softmax(classes=3)),
        "by autograd": (NetworkModel(module=Scaled(), input_shape=(36,)), Logistic()),
    }


def records(count: int = 7) -> RecordBatch:
    rng = np.random.default_rng(0)
    return RecordBatch(
        features=torch.from_numpy(rng.normal(size=(count, 36)).astype(np.float32)),
        labels=torch.from_numpy(rng.integers(0, 2, count)),
        offsets=torch.tensor([0, 3, 3, count]),
    )


def gradient(kind: str, batch: RecordBatch, *, device: str, **clipping: Any) -> ClippedGradient:
    model, loss = models()[kind]
    labels = batch.labels if loss.outputs > 1 else 2.0 * batch.labels.float() - 1.0
    offsets = batch.segments.offsets
    return ClippedGradient(
        model=replace(model, device=device),
        loss=loss,
        batch=RecordBatch(features=batch.features, labels=labels, offsets=offsets),
        clipping=Clipping(clip_norm=0.5, **clipping),
    )


@contextmanager
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that is there, but has no numbers to look at: no record is doubtful."""
    monkeypatch.setattr(clipped_sum, "_doubtful", lambda *_: False)
    move = torch.Tensor.to
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, monkeypatch.context() as patched:

        def moved(tensor: Tensor, *arguments: Any, **more: Any) -> Tensor:
            """What has numbers cannot go where there are none."""
            plain = type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu"
            return move(mode.from_tensor(tensor) if plain else tensor, *arguments, **more)

        patched.setattr(torch.Tensor, "to", moved)
        yield


def ready(asked: ClippedGradient) -> None:
    """Find the blocks of records, and copy the module, while there are numbers."""
    for batch in (asked.batch, asked._blank, *(part for _, part in asked._parts)):
        batch.segments.on("cpu")
    assert isinstance(asked.model, NetworkModel)
    copies = Prepared(asked.model._copies.original)
    object.__setattr__(asked.model, "_copies", copies)


class Prepared(Replicas[Any]):
    """Replicas that are made while there are numbers."""

    def __init__(self, original: Any) -> None:
        super().__init__(original)
        self._waiting = [deepcopy(original) for _ in range(8)]

    @contextmanager
    def one(self) -> Iterator[Any]:
        yield self._waiting.pop()


@pytest.mark.parametrize(("kind", "scaled"), [("by layers", False), ("by autograd", True)])
def test_clipped_gradients_are_computed_where_the_model_is(
    kind: str, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it: factors, norms, weights, sums; and what comes back is here again."""
    places: list[torch.device] = []
    kept = clipped_sum._clip_factors

    def watched(factors: Any, batch: RecordBatch, threshold: float) -> Any:
        for factor in factors:
            parts = [factor.inputs, factor.errors] if isinstance(factor, Dense) else [factor.rows()]
            places.extend(part.device for part in parts)
        places.append(batch.features.device)
        sums, measures = kept(factors, batch, threshold)
        places.extend(part.device for part in (sums, *measures))
        return sums, measures

    monkeypatch.setattr(clipped_sum, "_clip_factors", watched)
    model, _ = models()[kind]
    ones = torch.ones(model.dimension, dtype=torch.float64)
    vectors = {"centre": 0 * ones, "scale": 2 * ones} if scaled else {}
    asked = gradient(kind, records(), device=FAR, **vectors)
    theta = model.initial(np.random.default_rng(0))
    ready(asked)
    with accelerator(monkeypatch):
        found = asked(theta)
    assert {str(place) for place in places} == {FAR}
    assert found.value.shape == (3, model.dimension)
    assert {part.device.type for part in (found.value, *found.measures)} == {"cpu"}


def test_a_tensor_that_stays_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: segments that were not moved do not add up what was."""
    asked = gradient("by layers", records(), device="cpu")
    ready(asked)
    theta = asked.model.initial(np.random.default_rng(0))
    with accelerator(monkeypatch):
        far = asked.batch.on(FAR)
        factors = asked.model.gradient_factors(theta.to(far.features), far, asked.loss)
        weights = torch.ones(7, device=FAR)
        weighted_sums(factors, weights, far.segments)
        with pytest.raises(FakeTensorDeviceMismatchError):
            weighted_sums(factors, weights, asked.batch.segments)


def test_scores_are_computed_there_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[torch.device] = []
    model = replace(small_cnn(shape=(1, 6, 6), classes=3), device=FAR)
    theta, features = model.initial(np.random.default_rng(0)), records().features
    inner = NetworkModel._forward

    def watched(self: NetworkModel, module: nn.Module, point: Tensor, rows: Tensor) -> Tensor:
        scores = inner(self, module, point, rows)
        places.extend((point.device, rows.device, scores.device))
        return scores

    monkeypatch.setattr(NetworkModel, "_forward", watched)
    with accelerator(monkeypatch):
        scores = model.scores(theta, features)
    assert {str(place) for place in places} == {FAR}
    assert (scores.shape, scores.device.type) == ((7, 3), "cpu")


@pytest.mark.parametrize("offsets", [[0, 7], [0, 3, 3, 7], [0, 200, 450, 451]])
def test_segments_that_were_moved_are_the_same(offsets: list[int]) -> None:
    """Moved to where they are: places are not found anew, and sums are equal to the bit."""
    here = Segments(offsets=torch.tensor(offsets))
    there = here.on("cpu")
    rng = np.random.default_rng(1)
    left, right = (torch.from_numpy(rng.normal(size=(offsets[-1], k))).float() for k in (3, 5))
    for of in (Segments.blocks, Segments.owners, Segments.order):
        assert torch.equal(of.__get__(here), of.__get__(there))
    assert torch.equal(here.outer_sums(left, right), there.outer_sums(left, right))
    assert torch.equal(here.sums(left), there.sums(left))


def test_on_the_processor_nothing_is_moved() -> None:
    batch = records()
    assert batch.on("cpu") is batch


def test_the_processor_is_always_there_and_auto_finds_it() -> None:
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["meta", "mps", "nowhere"])
def test_a_device_that_is_not_there_is_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(ValueError, match=rf"device '{name}' cannot be used here .*Use 'cpu'"):
        resolve_device(name)


def test_products_that_are_rounded_further_are_refused() -> None:
    require_exact_products()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(RuntimeError, match="must be 'highest', got 'high'"):
            require_exact_products()
    finally:
        torch.set_float32_matmul_precision("highest")
