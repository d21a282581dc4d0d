"""Replicas of an object that cannot serve two computations, such as a module."""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import strided
from torch.nn.parameter import is_lazy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

T = TypeVar("T")


class Replicas(Generic[T]):
    """Deep copies of an original, each used by one computation and then dropped.

    So nothing that a computation leaves in its copy reaches another, beside it or after it. The
    original is only ever copied and so stays unchanged.

    What `copy.deepcopy` does not copy, such as globals and attributes of a class, is shared.

    Attributes:
        original: To be read and copied; nobody may change it or compute with it.
    """

    def __init__(self, original: T) -> None:
        self.original = original

    @contextmanager
    def one(self) -> Iterator[T]:
        """A copy that nobody else uses."""
        yield deepcopy(self.original)


def separate_copy(module: nn.Module) -> nn.Module:
    """A deep copy that shares no layer and no number with the module.

    Raises:
        ValueError: A layer has a ``__deepcopy__`` of its own that returns what it should copy: all
            computations would share the layer, and what one leaves in it would reach the next.
    """
    made = deepcopy(module)
    layers = {id(layer) for layer in module.modules()}
    numbers = _places(module)
    for name, layer in made.named_modules():
        if id(layer) in layers or _places(layer) & numbers:
            raise ValueError(
                f"module must be copied by copy.deepcopy; layer {name or 'itself'!r} "
                f"({type(layer).__name__}) shares itself, a parameter or a buffer with its copy. "
                "Take its __deepcopy__ out, or let it copy all."
            )
    return made


def _places(module: nn.Module) -> set[int]:
    """Where the numbers of a module's parameters and buffers lie; nothing for those without any."""
    tensors = (*module.parameters(), *module.buffers())
    return {t.data_ptr() for t in tensors if not is_lazy(t) and t.layout == strided} - {0}
