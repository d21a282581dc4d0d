"""A module that is to treat records one by one is told what is wrong, forwards and backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.losses import Logistic
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.record_wise import require_record_wise

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[Tensor], Tensor]


@pytest.mark.parametrize(("returned", "kind"), [(None, "NoneType"), (([], []), "tuple")])
def test_a_module_that_returns_no_tensor_is_told_so(returned: object, kind: str) -> None:
    class Forgetful(nn.Module):
        def forward(self, _records: Tensor) -> object:
            return returned

    with pytest.raises(ValueError, match=f"must return a tensor.*got {kind}: does its forward"):
        require_record_wise(Forgetful(), (2,))


class Hooked(nn.Module):
    """Changes gradients by a hook on what its first layer makes."""

    def __init__(self, change: Change, *layers: nn.Module) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(4, 3), nn.Sequential(*layers, nn.Linear(3, 1))
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.first(x)
        if hidden.requires_grad:
            hidden.register_hook(self.change)  # type: ignore[no-untyped-call]
        out: Tensor = self.rest(torch.tanh(hidden))
        return out


class Function(Hooked):
    """Changes them by a function with a backward pass of its own."""

    vectorised = True

    def forward(self, x: Tensor) -> Tensor:
        change = self.change

        class Changed(torch.autograd.Function):
            generate_vmap_rule = self.vectorised

            @staticmethod
            def forward(value: Tensor) -> Tensor:
                return value.clone()

            @staticmethod
            def setup_context(*_: Any) -> None:
                pass

            @staticmethod
            def backward(_: Any, *errors: Tensor) -> Tensor:
                return change(errors[0])

        out: Tensor = self.rest(torch.tanh(Changed.apply(self.first(x))))  # type: ignore[no-untyped-call]
        return out


ACROSS: dict[str, Change] = {
    "divided by their norm": lambda g: g / g.norm(),
    "by the longest of them": lambda g: g / g.norm(dim=1).max(),
    "less their mean": lambda g: g - g.mean(0),
    "with those behind": lambda g: g.flip(0).cumsum(0).flip(0),
}
WITHIN: dict[str, Change] = {
    "halved": lambda g: g / 2,
    "turned": lambda g: -g,
    "each divided by its own norm": lambda g: g / g.norm(dim=1, keepdim=True).clamp(min=1e-6),
}


@pytest.mark.parametrize("kind", [Hooked, Function])
@pytest.mark.parametrize("change", ACROSS)
def test_records_must_not_meet_on_the_way_back(kind: type[Hooked], change: str) -> None:
    """Only scores were tried: one record moved 2000 clipped gradients by 225 times what it may."""
    with pytest.raises(ValueError, match="changes the gradients of others"):
        NetworkModel(module=kind(ACROSS[change]), input_shape=(4,))


@pytest.mark.parametrize("kind", [Hooked, Function])
@pytest.mark.parametrize("change", WITHIN)
def test_what_is_done_to_a_gradient_by_itself_is_free(kind: type[Hooked], change: str) -> None:
    NetworkModel(module=kind(WITHIN[change]), input_shape=(4,))


def test_a_function_must_have_a_rule_for_vmap() -> None:
    class Plain(Function):
        vectorised = False

    with pytest.raises(ValueError, match=r"one record at a time.*generate_vmap_rule"):
        NetworkModel(module=Plain(WITHIN["halved"]), input_shape=(4,))


class Together(Hooked):
    """Its rule for vmap shows the backward pass all records at once, and mends nothing."""

    def forward(self, x: Tensor) -> Tensor:
        change = self.change

        class Backward(torch.autograd.Function):
            @staticmethod
            def forward(errors: Tensor) -> Tensor:
                return change(errors)

            @staticmethod
            def setup_context(*_: Any) -> None:
                pass

            @staticmethod
            def vmap(_: Any, __: Any, errors: Tensor) -> tuple[Tensor, int]:
                return change(errors.squeeze(1)).unsqueeze(1), 0

        class Changed(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(value: Tensor) -> Tensor:
                return value.clone()

            @staticmethod
            def setup_context(*_: Any) -> None:
                pass

            @staticmethod
            def backward(_: Any, *errors: Tensor) -> Any:
                return Backward.apply(errors[0])  # type: ignore[no-untyped-call]

        out: Tensor = self.rest(torch.tanh(Changed.apply(self.first(x))))  # type: ignore[no-untyped-call]
        return out


@pytest.mark.parametrize("change", ACROSS)
def test_nor_meet_by_a_rule_of_their_own(change: str) -> None:
    """With those behind a record nothing of the first can meet: the last is altered, too."""
    with pytest.raises(ValueError, match="changes the gradients of others"):
        NetworkModel(module=Together(ACROSS[change]), input_shape=(4,))


@pytest.mark.parametrize("change", ACROSS)
def test_nor_where_layers_have_no_rule(change: str) -> None:
    """Vectorised autograd shows a hook one record at a time: it would compute something else."""
    with pytest.raises(ValueError, match="changes the gradients of others"):
        NetworkModel(module=Hooked(ACROSS[change], nn.LayerNorm(3)), input_shape=(4,))


class Sorted(nn.Module):
    """Takes its records in the order of their first feature, and puts scores back into theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.argsort(x[:, 0])
        scores: Tensor = self.last(torch.tanh(self.first(x))[order])
        return scores[torch.argsort(order)]


class Pieces(nn.Module):
    """Scores the pieces of all records one after the other, and takes the mean of each record's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        pieces = torch.tanh(self.first(x.reshape(-1, 2)))
        scores: Tensor = self.last(pieces).reshape(len(x), -1)
        return scores.mean(1, keepdim=True)


@pytest.mark.parametrize("kind", [Sorted, Pieces])
def test_a_record_has_its_own_gradient_in_every_layer(kind: type[nn.Module]) -> None:
    """Layers saw records in another order, or piece by piece: what was clipped was no record's.

    A row of gradients was of two records; or of one piece, and one record moved a sum by as many
    times its bound as it has pieces.
    """
    model = NetworkModel(module=kind(), input_shape=(4,))
    rng = torch.Generator().manual_seed(0)
    theta = torch.randn(model.dimension, generator=rng, dtype=torch.float64)
    X, y = torch.randn(7, 4, generator=rng, dtype=torch.float64), torch.ones(7)

    def gradients(first: int, last: int) -> Tensor:
        batch = RecordBatch(
            features=X[first:last], labels=y[first:last], offsets=torch.tensor([0, last - first])
        )
        factors = model.gradient_factors(theta, batch, Logistic())
        return torch.cat([factor.rows() for factor in factors], dim=1)

    alone = torch.cat([gradients(i, i + 1) for i in range(7)])
    torch.testing.assert_close(gradients(0, 7), alone)


class Chosen(nn.Module):
    """Scores no record that is far out: which rows a layer sees follows from the records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        near = ~(x.abs().amax(1) > 1e9)
        scores = torch.zeros(len(x), 1, dtype=x.dtype)
        scores[near] = self.layer(x[near])
        return scores


class Guarded(nn.Module):
    """Divides all records by the largest number, if one is far beyond all that a check tries."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        top = x.abs().amax()
        scores: Tensor = self.layer(x / top if top > 1e9 else x)
        return scores


@pytest.mark.parametrize("kind", [Chosen, Guarded])
def test_no_code_may_branch_on_a_record(kind: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match=r"one record at a time.*torch\.where"):
        NetworkModel(module=kind(), input_shape=(4,))
