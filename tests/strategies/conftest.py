"""A protector for the strategies that learn theirs."""

from __future__ import annotations

import pytest
import torch

from fedpriv.learning.protector import Card, Horizon, Protector, to_bytes


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A protector that nobody trained: what it does is arbitrary, but not constant."""
    protector, generator = Protector(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in protector.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    card = Card(
        trained_on="nothing",
        version="0",
        clip_norm=0.5,
        norm_share=0.2,
        horizons=(Horizon(noise=0.1, rounds=6), Horizon(noise=1e-4, rounds=12)),
    )
    file = tmp_path_factory.mktemp("protector") / "untrained.json"
    file.write_bytes(to_bytes(protector, card))
    return str(file)
