"""Mechanisms: frozen values that turn an integer sum into a noisy release and know its event.

Start with `mechanism`: `Mechanism.release` adds the noise to a sum, masked or not, and is what
strategies call. `shares` is noise of which every party adds a part.
"""

from fedpriv.privacy.mechanisms.gaussian import GaussianMechanism
from fedpriv.privacy.mechanisms.integer import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    SkellamMechanism,
)
from fedpriv.privacy.mechanisms.laplace import (
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.mechanisms.mechanism import Mechanism

__all__ = [
    "DiscreteGaussianMechanism",
    "DiscreteLaplaceMechanism",
    "GaussianMechanism",
    "L1LaplaceMechanism",
    "L2LaplaceMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "SkellamMechanism",
    "UnsoundLaplaceMechanism",
]
