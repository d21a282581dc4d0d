"""Local training by compiled loops over parties and steps: what its two forms have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.learning.training.kernels.steps import Group, Records, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning.training.parties import Parties
    from fedpriv.learning.training.settings import LocalSgd

_NEAR = 1 << 21  # bytes of updates that are written before they are added up: they stay in a cache
_LINE = 64  # bytes of a line of the processor's caches


class CompiledTraining(ABC):
    """Compiled local training: a party's update follows from its own records alone, to the bit."""

    def __init__(
        self, dimension: int, code: tuple[int, float], parties: Parties, settings: LocalSgd
    ) -> None:
        self._dimension, self._parties, self._settings = dimension, parties, settings
        self._rules = Rules.of(settings, code)

    def updates(
        self,
        theta: Tensor,
        *,
        key: np.uint64,
        chosen: NDArray[np.int64],
        shift: Tensor | None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Updates of some parties, a few at a time, with their indices; valid until the next.

        Rows may be longer than the updates.
        """
        number = self._records.features.dtype
        together = max(1, _NEAR // (number.itemsize * self._dimension))
        rows = _aligned(min(together, len(chosen)), self._dimension, number)
        for some in self._alike(chosen):
            for first in range(0, len(some), together):
                group = some[first : first + together]
                own = np.zeros((0, 0), number) if shift is None else shift.numpy()[group]
                self._train(key, group, theta.numpy(), own, rows[: len(group)])
                yield group, rows[: len(group)]

    def _alike(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The parties, apart where they are trained in different ways."""
        return (chosen,)

    @abstractmethod
    def _train(
        self,
        key: np.uint64,
        group: NDArray[np.int64],
        theta: NDArray[Any],
        shift: NDArray[Any],
        rows: NDArray[Any],
    ) -> None:
        """Write the updates of a group; the shift is empty for none."""

    def _group(self, chosen: NDArray[np.int64]) -> Group:
        parties = self._parties
        return Group(
            numbers=parties.first_party + chosen,
            starts=parties.offsets[chosen],
            sizes=parties.sizes[chosen],
            steps=self._steps[chosen],
        )

    @cached_property
    def _records(self) -> Records:
        features = self._parties.features.numpy()
        labels = self._parties.labels.numpy().astype(features.dtype)
        return Records(features, labels, self._parties.usable.numpy())

    @cached_property
    def _steps(self) -> NDArray[np.int64]:
        counts = [self._settings.steps_with(int(size)) for size in self._parties.sizes]
        return np.array(counts, np.int64)


def _aligned(rows: int, width: int, number: np.dtype[Any]) -> NDArray[Any]:
    """An empty matrix of at least this width, with every row at the start of a cache line.

    Vector instructions that write across the end of a line take twice as long.
    """
    line = _LINE // number.itemsize
    wide = -(-width // line) * line
    room = np.empty(rows * wide + line, number)
    first = -room.ctypes.data % _LINE // number.itemsize
    return room[first : first + rows * wide].reshape(rows, wide)
