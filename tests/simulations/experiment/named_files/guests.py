"""A guest: a strategy of a user's own, and the experiment that names its file."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


STRATEGY = """
import numpy as np
from fedpriv.strategies import NoisyGradients, NoisyOptions, Positive, StrategyInfo

class SignOptions(NoisyOptions):
    learning_rate: Positive = 0.05

class SignDescent(NoisyGradients):
    INFO = StrategyInfo(
        name="gradient-perturbation", summary="signs", noise_by="server", convex_only=False,
        options=SignOptions,
    )
    def _update(self, release):
        self._theta = self._theta - self.options.learning_rate * np.sign(release)
"""
EXPERIMENT = """
[data]
name = "synthetic"
[model]
l2 = 0.01
[strategy]
name = "mine.py:SignDescent"
rounds = 4
[privacy]
epsilon = 1.0
[compare]
strategies = ["mine.py:SignDescent", "gradient-perturbation"]
seeds = 1
"""


def digest_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
