"""The vectorized engine, where parties train: its sums do not depend on how parties are shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import LocalTrainingQuery
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, random_data, streams

SIZES, WIDTH = tuple(range(3, 40)), 31
MODELS = [LinearModel(width=WIDTH), MlpModel(widths=(WIDTH, 6, 1))]
WORKERS = (1, 2, 3, 7)


@pytest.mark.parametrize("scaffold", [False, True], ids=["averaging", "scaffold"])
@pytest.mark.parametrize("model", MODELS, ids=["linear", "perceptron"])
def test_the_bits_do_not_depend_on_the_number_of_workers(model: Model, scaffold: bool) -> None:
    """Chunks then follow from that number; parties keep their control variates in them."""
    data, task = random_data(SIZES, WIDTH), replace(linear_task(SIZES, WIDTH), model=model)
    theta = np.linspace(-1, 1, model.dimension)
    query = LocalTrainingQuery(
        run="r",
        round=0,
        grid=FixedPoint(step=2.0**-40, bits=64),
        event=None,
        theta=theta,
        training=LocalSgd(epochs=2, batch_size=4, learning_rate=0.3),
        clip_norm=0.2,
        control=theta if scaffold else None,
    )
    sums = []
    for workers in WORKERS:
        federation = VectorizedFederation(
            data, task=task, sampling=streams(0, "p"), workers=workers
        )
        assert len(federation._stripes(query)) == workers
        rounds = [federation.sum(replace(query, round=index)).total for index in range(2)]
        sums.append(np.concatenate(rounds))
    assert sums[0].any()
    for other in sums[1:]:
        np.testing.assert_array_equal(other, sums[0])


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_get_as_many_parties_where_there_are_many_chunks(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With chunks as large as they may be, the last would be smaller, and its worker idle."""
    sizes = (5,) * 60
    data, task = random_data(sizes, WIDTH), linear_task(sizes, WIDTH)
    most = int(data.dataset.train.X.nbytes / 3.7)
    monkeypatch.setattr("fedpriv.federation.engines.chunks.CHUNK_BYTES", most)
    federation = VectorizedFederation(data, task=task, sampling=streams(0, "p"), workers=workers)
    stripes = federation._even
    assert {sum(chunk.parties.stop - chunk.parties.start for chunk in own) for own in stripes} == {
        len(sizes) // workers
    }
    assert sum(len(own) for own in stripes) >= 4
