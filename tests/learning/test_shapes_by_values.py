"""Functions whose shape follows from values: under vmap, from the values of all records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from fedpriv.learning.clipping.isolation import record_by_record
from fedpriv.learning.network import NetworkModel

if TYPE_CHECKING:
    from collections.abc import Callable


class Residuals(nn.Module):
    """Least squares of a record: PyTorch leaves residuals out for all if one lacks rank."""

    driver = "gelsd"

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        design = x.nan_to_num().view(-1, 3, 2) + torch.eye(3, 2).to(x)
        right = torch.ones_like(design[:, :, :1])
        found = torch.linalg.lstsq(design.detach(), right, driver=self.driver)
        scores: Tensor = self.head(found.residuals.reshape(len(x), -1).sum(1, keepdim=True))
        return scores


class Bag(nn.Module):
    """Counts codes; a code beyond them makes a longer row, which PyTorch cannot stack."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2000, 1)

    def forward(self, x: Tensor) -> Tensor:
        codes = x.nan_to_num().abs().long().clamp(max=5000)
        counts = [torch.bincount(each, minlength=2000)[:2000] for each in codes]
        scores: Tensor = self.head(torch.stack(counts).to(x.dtype))
        return scores


@pytest.mark.parametrize("kind", [Residuals, Bag])
def test_what_has_a_shape_by_the_values_of_all_records_is_refused(kind: type[nn.Module]) -> None:
    """One record without rank set the residuals of all others to nothing."""
    with pytest.raises(ValueError, match="shape follows from values"):
        NetworkModel(module=kind(), input_shape=(6,))


@pytest.mark.parametrize(
    "compute",
    [
        lambda row: torch.linalg.lstsq(row.view(3, 2), torch.ones(3, 1), driver="gelss").solution,
        lambda row: row.long().bincount(minlength=9),
        lambda row: torch.ops.aten.bincount(row.long()),
        lambda row: row.argwhere(),
        lambda row: torch.ones(6).repeat_interleave(row.long(), output_size=6),
    ],
)
def test_nothing_under_vmap_has_one(compute: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="shape follows from values"), record_by_record():
        vmap(compute)(torch.ones(4, 6))
    with record_by_record():  # of what is no record's, it has
        vmap(lambda row: row + torch.ones(6, dtype=torch.long).bincount().sum())(torch.ones(4, 6))
