"""Learned protection: networks that choose noise and steps, their files, and their training.

This package does no accounting: whoever uses a protector charges for what it chooses. See
`docs/learned-protection.md`. Start with `protector`; `checkpoint` is the file of a trained one.
"""

from fedpriv.learning.protector.auxiliary import AuxiliaryTask
from fedpriv.learning.protector.checkpoint import (
    Card,
    Horizon,
    ProtectorFileError,
    Trained,
    from_bytes,
    load,
    to_bytes,
)
from fedpriv.learning.protector.evaluation import final_models
from fedpriv.learning.protector.network import Memory
from fedpriv.learning.protector.network_task import NetworkTask
from fedpriv.learning.protector.protector import (
    LEAST_NOISE,
    MOST_NOISE,
    OUTPUT_SCALE,
    Protector,
    State,
    Surroundings,
)
from fedpriv.learning.protector.training import EpochReport, MetaTraining, Recipe
from fedpriv.learning.protector.unroll import Allowance

__all__ = [
    "LEAST_NOISE",
    "MOST_NOISE",
    "OUTPUT_SCALE",
    "Allowance",
    "AuxiliaryTask",
    "Card",
    "EpochReport",
    "Horizon",
    "Memory",
    "MetaTraining",
    "NetworkTask",
    "Protector",
    "ProtectorFileError",
    "Recipe",
    "State",
    "Surroundings",
    "Trained",
    "final_models",
    "from_bytes",
    "load",
    "to_bytes",
]
