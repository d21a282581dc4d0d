"""Sums of clipped per-record gradients: Σ gᵢ·min(1, C/‖gᵢ‖), party by party.

**What a record contributes.** Every record adds a vector vᵢ with ‖vᵢ‖₂ ≤ C, where vᵢ is the exact
product of the floating-point numbers that enter the sum. Rounding does not break this bound:
computed norms are too low by a factor of at most 1 + 2⁻¹⁴ (`fedpriv.learning.clipping.norms`), and
the threshold is C(1 - 2⁻¹³), which leaves room for the roundings of weights to the precision of the
data (2⁻²² relative, 2⁻¹⁴⁹ absolute, on rows of norm at most 2¹⁰⁰). A record whose gradient is not
finite, or too long to be clipped with that precision (beyond 2¹⁰⁰), or on which a user's own code
raises an error (`fedpriv.learning.clipping.spared`), contributes zero and is counted;
it neither stops the computation nor touches other records.

**What a sum reveals of a record.** The returned numbers are Σ vᵢ up to rounding. In exact
arithmetic, adding or removing a record moves the sum by at most C; replacing one moves it by at
most 2C. `fedpriv.learning.rounding_error` bounds what rounding adds to that, from public numbers,
*if* the other records have the same gradients in both computations. Under replace-one adjacency
they do: they keep their positions, and so are computed by the same instructions. Under add-remove
adjacency, and where a hash decides who is in the sum, later records move by one position. The
scores of a linear model do not depend on the position; nor do dense layers, whose products add up
in one order (`fedpriv.learning.row_products`), and most modules, as far as tests show
(`fedpriv.learning.network`). Elsewhere, and in some narrow layers of modules, a matrix
product may round a row differently, by 10⁻⁷ of a gradient in float32, and near a kink of the model
(ReLU, max-pooling) the last bit can decide a gradient. All other gradient clipping in floating
point shares this assumption; with float64 data its failures are 10⁹ times smaller.

Not covered: running time, which may depend on whether a record was rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedpriv._validate import require_choice, require_count
from fedpriv.learning.clipping.factors import Factor, Rows, weighted_sums
from fedpriv.learning.clipping.linear import clipped_linear_sums, in_one_pass
from fedpriv.learning.clipping.norms import LARGEST_SQUARE, NORM_SLACK, require_clip
from fedpriv.learning.clipping.spared import blank_record, require_computable, spared_factors
from fedpriv.learning.crew import Crew
from fedpriv.learning.device import require_exact_products
from fedpriv.learning.models import LinearModel, Model, require_width

if TYPE_CHECKING:
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss

DEFAULT_MEMORY = 1 << 27
"""Bytes of working memory: 128 MiB, enough records at once that the cost of a part is small."""

CLIP_MARGIN = 2 * NORM_SLACK
"""Gradients are clipped to C(1 - CLIP_MARGIN), so that rounding cannot carry one beyond C."""

_WORTH_SHARING = 1 << 20  # numbers to read: below it, waking another thread takes longer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clipping:
    """Clipping of a per-record gradient to norm C, as it is or in scaled coordinates.

    With ``centre`` a and ``scale`` b (AdaClip; Pichapati et al. 2019, arXiv:1908.07643, Alg. 1) a
    record contributes (g - a)/b, clipped to norm C. The sum, and the noise that is calibrated to C,
    live in the scaled coordinates; `restore` maps a *noisy* mean back. The a and b must be public,
    for example computed from earlier releases.

    Attributes:
        clip_norm: C, from 2⁻²⁰ to 2³⁰: the range in which the guarantee above is proved.
        centre: a, (d,); None means zero.
        scale: b > 0, (d,); None means one.
        norm: The norm that C bounds: "l2"; or "l1", ‖vᵢ‖₁ ≤ C, for float64 data, in which a sum of
            absolute values is practically exact.
    """

    clip_norm: float
    centre: Tensor | None = None
    scale: Tensor | None = None
    norm: Literal["l2", "l1"] = "l2"

    def __post_init__(self) -> None:
        require_choice(("l2", "l1"), norm=self.norm)
        require_clip(self.clip_norm)
        for name, value in self.vectors:
            if not (value.ndim == 1 and bool(value.isfinite().all())):
                raise ValueError(f"{name} must be a finite vector, got shape {tuple(value.shape)}.")
        if self.scale is not None and not bool((self.scale > 0).all()):
            raise ValueError("scale must be positive in every coordinate.")

    def restore(self, mean: Tensor) -> Tensor:
        """Map a mean, noise included, back to gradient coordinates: b·mean + a."""
        if self.scale is not None:
            mean = mean * self.scale.to(mean.dtype)
        return mean if self.centre is None else mean + self.centre.to(mean.dtype)

    @property
    def vectors(self) -> tuple[tuple[str, Tensor], ...]:
        """The centre and the scale, where given, by name."""
        named = (("centre", self.centre), ("scale", self.scale))
        return tuple((name, vector) for name, vector in named if vector is not None)

    @property
    def scaled(self) -> bool:
        """Whether coordinates are shifted or scaled before clipping."""
        return self.centre is not None or self.scale is not None

    def in_coordinates(self, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
        """The factors of (g - a)/b; without a and b, those of g."""
        if not self.scaled:
            return factors
        rows = torch.cat([factor.rows() for factor in factors], dim=1)
        if self.centre is not None:
            rows = rows - self.centre.to(rows)
        if self.scale is not None:
            rows = rows / self.scale.to(rows)
        return (Rows(rows),)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ClippedSums:
    """The clipped sums of m parties, and private facts about the records behind them.

    Attributes:
        value: (m, d) float64, one row per party.
        clip_norm: C.
        measures: **Private**: numbers (n,) whose product is the squared norm of each gradient.
    """

    value: Tensor
    clip_norm: float
    measures: tuple[Tensor, ...]

    @property
    def norms(self) -> Tensor:
        """**Private**: gradient norms before clipping, (n,) float64; infinite if rejected.

        For simulations and tests; never leaves a party.
        """
        squares = torch.stack([measure.double() for measure in self.measures]).prod(0)
        return squares.sqrt_().nan_to_num_(nan=inf, posinf=inf)

    @property
    def clipped_fraction(self) -> float:
        """**Private**: the share of records with a gradient longer than C; 0 without records."""
        return float((self.norms > self.clip_norm).double().mean()) if len(self.norms) else 0.0

    @property
    def rejected(self) -> int:
        """**Private**: how many records contributed zero because their gradient was not finite."""
        return int(self.norms.isinf().sum())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClippedGradient:
    """The clipped gradient sums of fixed records, as a function of the parameters.

    Records are checked and cut into parts once; call the object in every round. Sums are computed
    in the precision of the features. They do not include the regulariser, which the server adds
    unclipped. Results are reproducible to the bit on the same machine with the same number of
    threads.

    Attributes:
        model: Any `Model`.
        loss: A loss with as many outputs as the model.
        batch: The records.
        clipping: The bound.
        memory_limit: Bytes for intermediate results, by the model's estimate. More records than
            fit are computed in parts of at least one.
    """

    model: Model
    loss: Loss
    batch: RecordBatch
    clipping: Clipping
    memory_limit: int = DEFAULT_MEMORY
    _parts: list[tuple[slice, RecordBatch]] = field(init=False)
    _blank: RecordBatch = field(init=False)
    _crew: Crew = field(init=False)

    def __post_init__(self) -> None:
        require_count(memory_limit=self.memory_limit)
        check_records(self.model, self.loss, self.batch)
        if self.clipping.norm == "l1" and self.batch.features.dtype != torch.float64:
            raise ValueError("features must be float64 to clip gradients in L1.")
        for name, vector in self.clipping.vectors:
            check_vector(name, vector, self.model)
        size = self.model.records_at_once(
            self.memory_limit,
            number_bytes=self.batch.features.element_size(),
            materialised=self.clipping.scaled,
        )
        crew = 1
        if self._closed_form and in_one_pass(self.loss):
            size = max(1, len(self.batch))
            if self.batch.features.numel() >= _WORTH_SHARING:
                crew = min(torch.get_num_threads(), self.batch.parties)
        object.__setattr__(self, "_parts", self.batch.parts(size))
        blank = blank_record(self.model, self.loss, self.batch.features)
        object.__setattr__(self, "_blank", blank)
        object.__setattr__(self, "_crew", Crew(crew))

    def __call__(self, theta: Tensor) -> ClippedSums:
        """The sums at the parameters ``theta``, (d,), the same for all parties."""
        check_vector("theta", theta, self.model)
        if theta.requires_grad or theta.dtype != self.batch.features.dtype:
            theta = theta.detach().to(self.batch.features.dtype)
        require_computable(self.model, self.loss, theta, self._blank)
        if len(self._parts) == 1:
            value, measures = self._clip(theta, self._parts[0][1])
        else:
            value, measures = self._clip_parts(theta)
        return ClippedSums(
            value=value.double(), clip_norm=self.clipping.clip_norm, measures=measures
        )

    def _clip_parts(self, theta: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        value = torch.zeros((self.batch.parties, self.model.dimension), dtype=torch.float64)
        if not self._parts:
            return value, (self.batch.squares,)
        gathered: list[tuple[Tensor, ...]] = []
        for parties, part in self._parts:
            sums, measures = self._clip(theta, part)
            value[parties] += sums
            gathered.append(measures)
        return value, tuple(torch.cat(column) for column in zip(*gathered, strict=True))

    def _clip(self, theta: Tensor, part: RecordBatch) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The clipped sums of a part, and the measures of its gradients."""
        threshold = (1 - CLIP_MARGIN) * self.clipping.clip_norm
        if self._closed_form:
            sums, slopes = clipped_linear_sums(theta, part, self.loss, threshold, self._crew)
            return sums, (slopes, slopes, part.squares)
        require_exact_products()
        here = part.on(self.model.device)
        factors = spared_factors(self.model, self.loss, theta.to(here.features), here)
        clip = _clip_in_l1 if self.clipping.norm == "l1" else _clip_factors
        sums, measures = clip(self.clipping.in_coordinates(factors), here, threshold)
        return sums.cpu(), tuple(measure.cpu() for measure in measures)

    @cached_property
    def _closed_form(self) -> bool:
        linear = isinstance(self.model, LinearModel) and self.model.classes == 1
        return linear and not self.clipping.scaled and self.clipping.norm == "l2"


def clipped_gradient_sums(
    model: Model,
    loss: Loss,
    theta: Tensor,
    batch: RecordBatch,
    clipping: Clipping,
    *,
    memory_limit: int = DEFAULT_MEMORY,
) -> ClippedSums:
    """The clipped gradient sum of every party, once: see `ClippedGradient`."""
    gradient = ClippedGradient(
        model=model, loss=loss, batch=batch, clipping=clipping, memory_limit=memory_limit
    )
    return gradient(theta)


def _clip_factors(
    factors: tuple[Factor, ...], batch: RecordBatch, threshold: float
) -> tuple[Tensor, tuple[Tensor]]:
    """Measure, clip and add up gradients of any form."""
    squares = _total([factor.squares() for factor in factors])
    if _doubtful(squares, batch):
        # Only doubtful records: one of them must not touch the last bits of all the others.
        careful = _total([factor.careful_squares() for factor in factors])
        squares = torch.where(squares <= LARGEST_SQUARE, squares, careful)
        rejected = ~(squares <= LARGEST_SQUARE) | batch.squares.isinf()
        squares.masked_fill_(rejected, inf)
        factors = tuple(factor.without(rejected) for factor in factors)
    weights = squares.clamp(min=threshold**2).rsqrt_().mul_(threshold).to(batch.features.dtype)
    return weighted_sums(factors, weights, batch.segments), (squares,)


def _doubtful(squares: Tensor, batch: RecordBatch) -> bool:
    """Whether the gradient of some record may not have a finite norm."""
    return not (batch.all_usable and float(squares.max()) <= LARGEST_SQUARE)


def _clip_in_l1(
    factors: tuple[Factor, ...], batch: RecordBatch, threshold: float
) -> tuple[Tensor, tuple[Tensor]]:
    """The same in L1, of float64 gradients of any form."""
    lengths = _total([factor.lengths() for factor in factors])
    rejected = ~(lengths <= LARGEST_SQUARE**0.5) | batch.squares.isinf()
    if bool(rejected.any()):
        lengths = lengths.masked_fill(rejected, inf)
        factors = tuple(factor.without(rejected) for factor in factors)
    weights = threshold / lengths.clamp(min=threshold)
    return weighted_sums(factors, weights, batch.segments), (lengths.square(),)


def _total(squares: list[Tensor]) -> Tensor:
    """The squared norms of whole gradients, float64 (n,)."""
    total = squares[0].double()
    for term in squares[1:]:
        total = total + term
    return total


def check_records(model: Model, loss: Loss, batch: RecordBatch) -> None:
    """Refuse records that do not fit the model, or a loss that does not fit its scores."""
    if loss.outputs != model.outputs:
        raise ValueError(
            f"model must have one output per score of the loss, {loss.outputs}; got "
            f"{model.outputs}."
        )
    if loss.outputs > 1 and batch.labels.is_floating_point():
        raise ValueError(f"labels must be integers for {loss.outputs} classes.")
    require_width(model, batch.features)


def check_vector(name: str, vector: Tensor, model: Model) -> None:
    """Refuse a vector that does not have one entry per parameter."""
    if vector.ndim != 1 or len(vector) != model.dimension:
        raise ValueError(
            f"{name} must have shape {(model.dimension,)}, one entry per parameter, "
            f"got {tuple(vector.shape)}."
        )
