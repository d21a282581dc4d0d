"""Exact, vectorised samplers of integer noise, driven by a `RandomStream`.

Every sampler is a frozen value with one method, ``draw(count, stream)``. Its distribution differs
from the stated one by at most 2^-102 in total variation per draw (see `rejection`), rounded
Gaussians by 2^-85 (see `sampler`), Pólya noise by 2^-100 (see `polya`); the stream adds what its
own docstring states. Setting up a new scale takes less than a millisecond, because a dynamic noise
schedule has a new one in every round; the last few tables are kept.
"""

from fedpriv.privacy.samplers.bernoulli import bernoulli_exp
from fedpriv.privacy.samplers.gaussian import (
    DiscreteGaussian,
    RoundedGaussian,
    rounded_normals,
)
from fedpriv.privacy.samplers.laplace import DiscreteLaplace, RoundedLaplace
from fedpriv.privacy.samplers.polya import Polya
from fedpriv.privacy.samplers.skellam import Skellam

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Polya",
    "RoundedGaussian",
    "RoundedLaplace",
    "Skellam",
    "bernoulli_exp",
    "rounded_normals",
]
