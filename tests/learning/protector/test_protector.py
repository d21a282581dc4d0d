"""The networks of learned protection, and the files that hold them."""

from __future__ import annotations

import json
import pickle
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.learning.protector import (
    LEAST_NOISE,
    MOST_NOISE,
    Card,
    Horizon,
    Protector,
    ProtectorFileError,
    Surroundings,
    from_bytes,
    load,
    to_bytes,
)
from fedpriv.learning.protector.network import CoordinateLstm, seeded

if TYPE_CHECKING:
    from pathlib import Path

AROUND = Surroundings(dimension=6, horizon=30, gradient_noise=0.1, norm_noise=0.3)
CARD = Card(
    trained_on="made",
    version="1",
    clip_norm=0.1,
    norm_share=0.1,
    horizons=(Horizon(noise=0.01, rounds=30), Horizon(noise=0.001, rounds=100)),
    settings={"seed": 3},
)


def random_protector(seed: int = 0, *, scale: float = 1.0) -> Protector:
    protector = Protector()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in protector.parameters():
            parameter.uniform_(-scale, scale, generator=generator)
    return protector.requires_grad_(False)


def gradients(seed: int, runs: int = 1) -> torch.Tensor:
    return torch.randn(runs, 6, generator=torch.Generator().manual_seed(seed))


def test_both_networks_are_two_layers_of_twenty_units() -> None:
    protector = Protector()
    for network in (protector.scheduler, protector.projector):
        assert isinstance(network, CoordinateLstm)
        assert network.first.hidden_size == network.second.hidden_size == 20
    assert sum(p.numel() for p in protector.parameters()) < 15_000


@given(
    seed=st.integers(0, 50),
    norm=st.floats(-1e30, 1e30),
    left=st.floats(0, 1),
    scale=st.floats(0, 100),
)
def test_scheduled_noise_stays_within_its_range(
    seed: int, norm: float, left: float, scale: float
) -> None:
    protector = random_protector(seed, scale=scale)
    noise, _ = protector.schedule(
        torch.tensor([norm]),
        elapsed=0.5,
        left=torch.tensor([left]),
        around=AROUND,
        state=protector.start(6),
    )
    assert LEAST_NOISE <= float(noise) <= MOST_NOISE


def test_a_coordinate_is_treated_alike_wherever_it_stands() -> None:
    protector, gradient = random_protector(), gradients(1)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(2))

    def steps(values: torch.Tensor) -> torch.Tensor:
        state, made = protector.start(6), []
        for _ in range(3):
            step, state = protector.project(
                values, noise=torch.ones(1), elapsed=0.0, around=AROUND, state=state
            )
            made.append(step)
        return torch.cat(made)

    torch.testing.assert_close(steps(gradient)[:, order], steps(gradient[:, order]))


def test_runs_unrolled_at_once_do_not_mix() -> None:
    protector, gradient = random_protector(), gradients(1, runs=3)

    def project(values: torch.Tensor) -> torch.Tensor:
        runs = len(values)
        step, _ = protector.project(
            values,
            noise=torch.full((runs,), 0.7),
            elapsed=0.2,
            around=AROUND,
            state=protector.start(6, runs=runs),
        )
        return step

    together = project(gradient)
    for run in range(3):
        torch.testing.assert_close(together[run : run + 1], project(gradient[run : run + 1]))


def test_memory_carries_what_was_seen() -> None:
    protector = random_protector()
    around = {"noise": torch.ones(1), "elapsed": 0.0, "around": AROUND}
    fresh = protector.start(6)
    _, used = protector.project(gradients(1), state=fresh, **around)  # type: ignore[arg-type]
    one, _ = protector.project(gradients(2), state=fresh, **around)  # type: ignore[arg-type]
    two, _ = protector.project(gradients(2), state=used, **around)  # type: ignore[arg-type]
    assert not torch.allclose(one, two)


def test_weights_come_from_the_generator_and_begin_without_an_opinion() -> None:
    one, two = (
        seeded(CoordinateLstm(features=5, outputs=1), torch.Generator().manual_seed(4)).state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert float(one["readout.weight"].abs().sum() + one["readout.bias"].abs().sum()) == 0
    assert float(one["first.weight_ih"].abs().max()) <= 1 / sqrt(20)


# Files


def test_a_file_reads_back_to_the_same_weights_and_card(tmp_path: Path) -> None:
    protector = random_protector()
    path = tmp_path / "p.json"
    path.write_bytes(to_bytes(protector, CARD))
    trained = load(path)
    assert trained.card == CARD
    own = protector.state_dict()
    assert all(torch.equal(own[name], w) for name, w in trained.protector.state_dict().items())
    assert to_bytes(trained.protector, trained.card) == path.read_bytes()
    assert not any(p.requires_grad for p in trained.protector.parameters())


def test_a_gated_protector_is_read_back_as_one_and_no_other_shape_is() -> None:
    gated = Protector(gated=True).seeded(torch.Generator().manual_seed(0))
    data = to_bytes(gated, CARD)
    read = from_bytes(data).protector
    assert read.gated
    assert not from_bytes(to_bytes(random_protector(), CARD)).protector.gated
    assert all(torch.equal(gated.state_dict()[k], w) for k, w in read.state_dict().items())
    values = json.loads(data)
    values["weights"]["projector.readout.bias"]["shape"] = [3]
    reseal(values)
    with pytest.raises(ProtectorFileError, match=r"must have shape \(1,"):
        from_bytes(json.dumps(values).encode())


def test_equal_protectors_have_equal_bytes_and_others_another_hash() -> None:
    data = to_bytes(random_protector(), CARD)
    assert data == to_bytes(random_protector(), CARD)
    assert from_bytes(data).sha256 != from_bytes(to_bytes(random_protector(1), CARD)).sha256
    assert len(data) < 200_000


def changed(change: Any) -> bytes:
    values = json.loads(to_bytes(random_protector(), CARD))
    change(values)
    return json.dumps(values).encode()


def reseal(values: dict[str, Any]) -> None:
    """As someone would who knows the format: the hash fits again."""
    from fedpriv.learning.protector import checkpoint

    body = {"card": values["card"], "weights": values["weights"]}
    values["sha256"] = checkpoint._digest(body)


def flip_a_weight(values: dict[str, Any]) -> None:
    weight = values["weights"]["projector.readout.bias"]
    weight["float32"] = ("A" if weight["float32"][0] != "A" else "B") + weight["float32"][1:]


@pytest.mark.parametrize(
    "change",
    [
        flip_a_weight,
        lambda values: values["card"].update(clip_norm=0.2),
        lambda values: values["card"]["horizons"][0].update(rounds=1),
        lambda values: values.update(sha256="0" * 64),
    ],
    ids=["weight", "clip", "horizon", "hash"],
)
def test_any_change_to_a_file_is_found_by_its_hash(change: Any) -> None:
    with pytest.raises(ProtectorFileError, match="changed or damaged"):
        from_bytes(changed(change))


def drop(values: dict[str, Any]) -> None:
    del values["weights"]["scheduler.readout.bias"]
    reseal(values)


def reshape(values: dict[str, Any]) -> None:
    values["weights"]["projector.readout.weight"]["shape"] = [20, 1]
    reseal(values)


def shorten(values: dict[str, Any]) -> None:
    weight = values["weights"]["projector.readout.weight"]
    weight["float32"] = weight["float32"][:16]
    reseal(values)


def poison(values: dict[str, Any]) -> None:
    from base64 import b64encode

    numbers = np.array([np.nan], "<f4").tobytes()
    values["weights"]["projector.readout.bias"]["float32"] = b64encode(numbers).decode()
    reseal(values)


def unclip(values: dict[str, Any]) -> None:
    values["card"]["clip_norm"] = -1.0
    reseal(values)


def add(values: dict[str, Any]) -> None:
    values["card"]["colour"] = "blue"
    reseal(values)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop, "weights must be exactly"),
        (reshape, r"must have shape \(1, 20\)"),
        (shorten, "must hold 20 numbers"),
        (poison, "must be finite"),
        (unclip, "clip_norm must be positive"),
        (add, "colour"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_file_that_does_not_fit_the_networks_is_refused_by_name(change: Any, reason: str) -> None:
    with pytest.raises(ProtectorFileError, match=reason):
        from_bytes(changed(change))


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps(Bomb()), "looks like a pickle"),
        (b"PK\x03\x04 an archive", "pickle or an archive"),
        (b"", "is not JSON"),
        (b"[]", "not a protector of this version"),
        (b'{"format": "fedpriv protector 2"}', "not a protector of this version"),
    ],
    ids=["pickle", "archive", "empty", "list", "newer"],
)
def test_what_is_no_protector_is_refused_and_never_executed(data: bytes, reason: str) -> None:
    with pytest.raises(ProtectorFileError, match=reason):
        from_bytes(data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProtectorFileError, match="nowhere"):
        load(tmp_path / "nowhere.json")


def test_the_horizon_is_that_of_the_nearest_budget_of_the_training() -> None:
    assert CARD.horizon(0.5) == CARD.horizon(0.01) == CARD.horizon(0.004) == 30
    assert CARD.horizon(0.003) == CARD.horizon(1e-9) == 100
