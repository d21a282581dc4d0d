"""A module that is to treat records one by one is told what is wrong with its own `forward`."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from fedpriv.learning.record_wise import require_record_wise


@pytest.mark.parametrize(("returned", "kind"), [(None, "NoneType"), (([], []), "tuple")])
def test_a_module_that_returns_no_tensor_is_told_so(returned: object, kind: str) -> None:
    class Forgetful(nn.Module):
        def forward(self, _records: Tensor) -> object:
            return returned

    with pytest.raises(ValueError, match=f"must return a tensor.*got {kind}: does its forward"):
        require_record_wise(Forgetful(), (2,))
