"""Errors that a user's own code catches: under vmap they are about all records, and so stay errors.

A kernel that fails for one record fails for all that vmap computes with it. Code with
`try: … except RuntimeError: …` would then take its other way for all of them: one record would
decide the gradients of others. So an error of PyTorch's is noted where it arises, and is raised
once more when the code ends without it. Whose record it is about, bisection finds
(`fedpriv.learning.clipping.spared`).
"""

from __future__ import annotations

from functools import wraps
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable

_OF_A_FUNCTION = ("forward", "setup_context", "backward", "jvp", "vmap")

_CAUGHT = (
    "an error that your code catches; under vmap it would be caught for all records. Take the "
    "try and except out of forward, slope, value and backward, and use torch.where"
)


_SHAPED_BY_VALUES = frozenset({"argwhere", "bincount", "repeat_interleave"})

_RANKED = frozenset({"gelsd", "gelss"})  # residuals are empty for all records if one lacks rank

_SHAPE = (
    "torch.{}, whose shape follows from values and so from all records. Count with "
    "torch.nn.functional.one_hot, which takes num_classes, mask by torch.where, and solve least "
    "squares by driver='gels' or 'gelsy'"
)


class CaughtError(RuntimeError):
    """A user's own code caught an error of PyTorch's. Says nothing about a record."""


class ErrorsKept(TorchFunctionMode):
    """Notes every error that a function of PyTorch raises, whoever catches it."""

    def __init__(self) -> None:
        super().__init__()
        self._noted = False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Call the function. What it calls back is watched, too: PyTorch takes modes off here."""
        self._require_fixed_shape(function, (*args, *(kwargs or {}).values()))
        given = {key: self._watched(each) for key, each in (kwargs or {}).items()}
        try:
            return function(*map(self._watched, args), **given)
        except BaseException:
            self._noted = True
            raise

    def _require_fixed_shape(self, function: object, given: tuple[object, ...]) -> None:
        """vmap computes these of all records at once, and gives them one shape."""
        name = getattr(function, "__name__", "").partition(".")[0]
        ranked = name == "linalg_lstsq" and any(
            isinstance(each, str) and each in _RANKED for each in given
        )
        if (ranked or name in _SHAPED_BY_VALUES) and any(map(_of_a_record, given)):
            self._noted = True
            raise RuntimeError(_SHAPE.format(name))

    def require_none(self) -> None:
        """Raise an error if one was noted that did not get here."""
        if self._noted:
            raise CaughtError(_CAUGHT)

    def _watched(self, given: object) -> object:
        """Hooks, and the methods of an `autograd.Function`, as code that runs in this mode."""
        if isinstance(given, FunctionType | MethodType):
            return self._inside(given)
        if isinstance(given, type) and issubclass(given, Function):
            own = [n for n in _OF_A_FUNCTION if getattr(given, n) is not getattr(Function, n)]
            methods = {name: staticmethod(self._inside(getattr(given, name))) for name in own}
            return type(given.__name__, (given,), methods)
        return given

    def _inside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def watched(*args: Any, **kwargs: Any) -> object:
            with self:
                return call(*args, **kwargs)

        return watched


def _of_a_record(given: object) -> bool:
    return isinstance(given, Tensor) and is_functorch_wrapped_tensor(given)
