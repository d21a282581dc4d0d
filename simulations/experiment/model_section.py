"""The table `model` of an experiment file: its keys, defaults and rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.experiment.sections import Count, Positive, Section, Sequence


def _guest(kind: guests.Kind) -> AfterValidator:
    def check(name: str) -> str:
        if not guests.is_guest(kind, name):
            raise PydanticCustomError("guest", "not a guest")
        return name

    return AfterValidator(check)


LINEAR = ("logistic", "huber-svm", "huber-regression", "squared", "softmax", "linear")
"""Models whose score is linear in the features: with a convex loss the risk is convex."""
CLASSIFIERS = ("logistic", "huber-svm", "softmax")
Losses = Literal["logistic", "huber-svm", "huber-regression", "squared", "softmax"]
Models = Literal[
    "logistic", "huber-svm", "huber-regression", "squared", "softmax", "linear", "mlp", "cnn"
]


class ModelSection(Section):
    """What is learned.

    Attributes:
        name: ``logistic``, ``huber-svm``, ``huber-regression``, ``squared`` and ``softmax`` are
            linear, with a convex loss; ``linear`` is, with the loss that ``loss`` names; ``mlp``
            and ``cnn`` are networks; ``file.py:Name`` is a PyTorch module of one's own.
        l2: λ, the regulariser; "auto" is what suits the strategy and its options: 1e-5 for linear
            classifiers that descend by a rule of their own, else 1e-3.
        loss: of ``linear``, a network or a module: a built-in one, or ``file.py:Name``; if not
            given, that of a network follows from the task.
        smoothing: h of ``huber-svm``.
        threshold: of ``huber-regression``.
        label_bound: of ``squared``.
        hidden: widths of the hidden layers of ``mlp``.
        activation: of ``mlp``.
        shape: of one record as a network takes it, such as (1, 8, 8). If not given: of ``cnn``,
            that of the data set's images; of a module of one's own, what it states as
            ``input_shape``, or else all features in a row.
        options: what a module of one's own is made with, besides features and classes.
        radius: R of a ball ‖θ‖ ≤ R that strategies which descend project every model into; with it
            ``squared`` needs no ``l2``. Of minimisers, what is released is projected.
        start: a model.npz that fedpriv wrote, relative to the experiment file: where strategies
            that descend begin. It is taken to be public.
        start_sha256: of that file; filled in when the experiment is read.
        frozen: layers of a network that stay as the start has them; gradients, clipping and noise
            are of all others.
    """

    name: Models | Annotated[str, _guest("model")] = "logistic"
    l2: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    loss: Losses | Annotated[str, _guest("loss")] | None = None
    smoothing: Positive = 0.5
    threshold: Positive = 1.0
    label_bound: Positive = 1.0
    hidden: Annotated[tuple[Count, ...], Sequence] = (20,)
    activation: str = "sigmoid"
    shape: Annotated[tuple[Count, ...], Sequence] | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    radius: Positive | None = None
    start: str | None = None
    start_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    frozen: Annotated[tuple[str, ...], Sequence] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name == "linear" and self.loss is None:
            raise ValueError("loss is missing: name = 'linear' says nothing about it.")
        if self.convex and self.name != "linear" and self.loss is not None:
            raise ValueError(
                f"loss is not for name = {self.name!r}, which is a loss already. Use 'linear'."
            )
        if self.options and not self.own:
            raise ValueError(f"options are for a module of your own, got name = {self.name!r}.")
        if self.shape is not None and self.name != "cnn" and not self.own:
            raise ValueError(f"shape is for 'cnn' and modules of your own, got {self.name!r}.")
        if (self.start is None) != (self.start_sha256 is None):
            raise ValueError(
                "start and start_sha256 belong together: a start is known by its hash."
            )
        if self.frozen and self.convex:
            raise ValueError(
                f"frozen is for networks, got name = {self.name!r}, which has no layers."
            )
        if self.frozen and self.start is None and not self.own:
            raise ValueError("frozen needs start: layers would stay as they were drawn at random.")
        return self

    @property
    def convex(self) -> bool:
        """Whether the risk has one minimum."""
        return self.name in LINEAR

    @property
    def classifies_linearly(self) -> bool:
        """Whether it is a built-in linear classifier."""
        return (self.loss if self.name == "linear" else self.name) in CLASSIFIERS

    @property
    def regulariser(self) -> float:
        """λ, once it is settled."""
        if self.l2 == "auto":
            raise ValueError(
                "model.l2 must be a number here, got 'auto': it follows from a strategy."
            )
        return self.l2

    @property
    def own(self) -> bool:
        """Whether it is a module of the user's own."""
        return self.name not in get_args(Models)

    @property
    def title(self) -> str:
        """What reports call it, with the loss if the file names one."""
        parts = (self.name, self.loss)
        return ", ".join(guests.title(part) for part in parts if part is not None)
