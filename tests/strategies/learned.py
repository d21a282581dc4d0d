"""Learned protection on a small task: a strategy, its parties and its mechanisms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.strategies.learned_protection import LearnedProtection
from tests.federation.worlds import build, linear_task, random_data, streams

if TYPE_CHECKING:
    from fedpriv.strategies.common.learned_noise import Noises

SIZES, WIDTH = (30, 12, 45), 4
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)


def learned(untrained: str, **options: Any) -> LearnedProtection:
    strategy = build("learned-protection", TASK, protector=untrained, **options)
    assert isinstance(strategy, LearnedProtection)
    return strategy


def federation(seed: int = 0) -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH, seed=seed), task=TASK, sampling=streams(0, "parties")
    )


def mechanisms_of(strategy: LearnedProtection) -> Noises:
    assert strategy._noises is not None
    return strategy._noises
