"""The mechanism interface: a frozen value that turns an integer sum into a noisy release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.events import Event
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.privacy.samplers.sampler import IntegerSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism(ABC):
    """Noise of a stated distribution on a sum of a stated sensitivity. Use a subclass.

    The input of a release is a sum in fixed point, integers on a grid of width ``step``, and the
    noise is an integer too: nothing becomes a floating-point number before it is noisy, so the
    gaps between floating-point numbers reveal nothing about the sum (Mironov 2012). Continuous
    noise is rounded to the grid. Since an integer plus a rounded number is the rounded sum, this
    is post-processing of the continuous mechanism and keeps its guarantee, whatever the step.

    The sensitivity is that of the sum *on the grid*: rounding each party's answer adds to it, and
    whoever plans the release includes that.
    """

    name: ClassVar[str]
    sound: ClassVar[bool] = True  # False: does not keep what its parameters promise; for study
    adjacency: Adjacency
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        # A string such as "replace-one" is accepted and becomes the enum, or is refused by name.
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))

    @abstractmethod
    def event(self) -> Event:
        """The privacy event of one release: the only input to accounting."""

    @property
    @abstractmethod
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on one coordinate, in the units of the sensitivity."""

    @abstractmethod
    def _draw(self, shape: tuple[int, ...], step: float, stream: RandomStream) -> NDArray[np.int64]:
        """The noise itself, for a shape known to fit."""

    @property
    def title(self) -> str:
        """The mechanism's name in a statement."""
        return self.name

    @property
    def precision(self) -> str:
        """How exactly the noise follows its law, for a statement."""
        return "integer noise, within 2^-80 of its law on every coordinate"

    @property
    def _coordinates(self) -> int | None:
        """The number of coordinates that the noise is calibrated to; None for any number."""
        return None

    def noise(
        self, shape: tuple[int, ...], *, step: float, stream: RandomStream
    ) -> NDArray[np.int64]:
        """Noise in steps of the grid; the last axis holds the coordinates of one release."""
        require_positive(step=step)
        if self._coordinates not in (None, *shape[-1:]):
            raise ValueError(
                f"total must have dimension = {self._coordinates} coordinates, got shape {shape}."
            )
        return self._draw(shape, step, stream)

    def release(
        self, total: NDArray[np.int64], *, step: float, stream: RandomStream
    ) -> NDArray[np.float64]:
        """The noisy sum, ``(total + noise) · step``. Every call is one `event`."""
        _require_sum(total)
        noise = self.noise(total.shape, step=step, stream=stream)
        total = np.asarray(total)  # drops a NumPy mask, which would hide entries from the noise
        noisy = total + noise
        # It wrapped around if both terms have the sign that their sum lacks.
        if ((total ^ noisy) & (noise ^ noisy) < 0).any():
            raise ValueError(
                "total must leave room for the noise within 64 bits. Choose a larger step."
            )
        return noisy.astype(np.float64) * step


def independent(
    sampler: IntegerSampler, shape: tuple[int, ...], stream: RandomStream
) -> NDArray[np.int64]:
    """A separate draw for every coordinate of every release."""
    return sampler.draw(prod(shape), stream).reshape(shape)


def _require_sum(total: object) -> None:
    """Refuse anything but a vector of 64-bit integers, without showing its content."""
    if not isinstance(total, np.ndarray) or total.dtype != np.int64 or total.ndim != 1:
        given = (
            f"an array of {total.dtype} with shape {total.shape}"
            if isinstance(total, np.ndarray)
            else type(total).__name__
        )
        raise ValueError(
            f"total must be a one-dimensional array of int64, got {given}. Scale and round the "
            "answers to the grid first, then add them up."
        )
