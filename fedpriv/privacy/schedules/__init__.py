"""Noise schedules: how much noise each round gets, within one budget for all rounds.

Start with `schedule`, then `kinds`, their table; `allocation` splits a budget in proportion.
"""

from fedpriv.privacy.schedules.allocation import gain, least_noise, scaled_noise
from fedpriv.privacy.schedules.descent import Descent, best_rounds
from fedpriv.privacy.schedules.influence import descent_influence, momentum_influence
from fedpriv.privacy.schedules.kinds import (
    Dynamic,
    Exponential,
    Measured,
    MomentumAware,
    Step,
    Uniform,
)
from fedpriv.privacy.schedules.momentum import momentum_step_limit
from fedpriv.privacy.schedules.schedule import Schedule

__all__ = [
    "Descent",
    "Dynamic",
    "Exponential",
    "Measured",
    "MomentumAware",
    "Schedule",
    "Step",
    "Uniform",
    "best_rounds",
    "descent_influence",
    "gain",
    "least_noise",
    "momentum_influence",
    "momentum_step_limit",
    "scaled_noise",
]
