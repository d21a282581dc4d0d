"""Twins without noise of every strategy on one small task, and a stream that nobody may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.federation.strategy.base import Run, SumStrategy
from tests.federation.worlds import build, linear_task

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

SIZES, WIDTH = (30, 12, 45), 4
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
OPTIONS: dict[str, dict[str, Any]] = {
    "gradient-perturbation": {"rounds": 7, "clip": 0.3, "optimiser": "sgd"},
    "local-gradient-perturbation": {"rounds": 7, "clip": 0.3, "optimiser": "sgd"},
    "adaptive-clipping": {"rounds": 7},
    "second-order": {"rounds": 7},
    "agd": {"rounds": 7},
    "learned-protection": {"horizon": 7},
    "federated-averaging": {"rounds": 3, "allow_swamped": True},
    "scaffold": {"rounds": 3, "allow_swamped": True},
}


class Unused:
    """A stream that nobody may draw from."""

    secure = False

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"noise was drawn: {name}.")


def twin(name: str, task: Task = TASK, **options: Any) -> SumStrategy:
    strategy = build(name, task, noise_free=True, **{**OPTIONS.get(name, {}), **options})
    strategy.attach(Run(name="run", noise=lambda _: Unused()))  # type: ignore[arg-type, return-value]
    return strategy
