"""Every strategy on one small task, with as many rounds as it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedpriv import strategies
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import MlpModel
from tests.federation.worlds import linear_task, random_data, streams

SIZES, WIDTH = (30, 12, 45), 4
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
NETWORK = replace(TASK, model=MlpModel(widths=(WIDTH, 3, 1)), loss=Logistic())
ALL = list(strategies.STRATEGIES)
ROUNDS: dict[str, dict[str, Any]] = {
    "gradient-perturbation": {"rounds": 6},
    "local-gradient-perturbation": {"rounds": 6},
    "adaptive-clipping": {"rounds": 6},
    "second-order": {"rounds": 5},
    "agd": {"splits": 6},
    "learned-protection": {"horizon": 6},
    "federated-averaging": {"rounds": 6, "allow_swamped": True},
    "scaffold": {"rounds": 6, "allow_swamped": True},
}


def federation(task: Any = TASK) -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH), task=task, sampling=streams(0, "parties")
    )
