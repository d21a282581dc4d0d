"""The sharded engine has the bits of the vectorized one, whoever computes, and whoever is lost.

Most of it with workers in this process, whose messages are pickled. One test starts real workers;
``FEDPRIV_STRESS=1`` runs all strategies on them, on one machine and on two, with kills.
"""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines import chunks, shard
from fedpriv.federation.engines.ray_session import RaySession
from fedpriv.federation.engines.shard import Place, parts
from fedpriv.federation.engines.sharded import ShardedFederation
from fedpriv.simulations.engines import sharded
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.experiment.records import stores
from fedpriv.simulations.run.prepare import build_federation, prepare
from tests.federation.engines.workforces import Workers, through
from tests.federation.worlds import linear_task, random_data
from tests.simulations.engines.shards import CASES, study, trained

if TYPE_CHECKING:
    from pathlib import Path

MLP = {"name": "mlp", "hidden": [5], "l2": 0.01}


@pytest.fixture
def hire(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have workers of this process in the place of Ray's."""

    def put(workers: int, *losing: int) -> Workers:
        staff = Workers(workers=workers, losing=frozenset(losing))
        monkeypatch.setattr(sharded, "RaySession", lambda **_options: staff)
        return staff

    return put


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_workers_has_the_bits_of_one_process(
    case: str, dropout: float, hire: Any
) -> None:
    expected = trained(study(case, engine="vectorized", dropout=dropout))
    for workers in (1, 2, 3):
        staff = hire(workers)
        found = trained(study(case, engine="sharded", dropout=dropout))
        np.testing.assert_array_equal(found, expected)
        assert (staff.hired, staff.closed) == (workers, 1)


@pytest.mark.parametrize("case", CASES)
def test_a_lost_worker_is_replaced_and_answers_the_same(case: str, hire: Any) -> None:
    """In its first round and in later ones; control variates are those of all rounds before."""
    expected = trained(study(case, engine="vectorized"))
    staff = hire(3, 1, 2, 4)
    found = trained(study(case, engine="sharded"))
    np.testing.assert_array_equal(found, expected)
    assert staff.hired > 3


def test_control_variates_that_were_not_rebuilt_would_show(
    hire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teeth of the test above: a new worker that is told nothing of earlier rounds errs."""
    expected = trained(study("scaffold", engine="vectorized"))
    hire(2, 5)
    monkeypatch.setattr(
        ShardedFederation,
        "_told",
        property(lambda _self: [], lambda _self, _told: None),
        raising=False,
    )
    assert (trained(study("scaffold", engine="sharded")) != expected).any()


def test_a_worker_that_is_lost_again_and_again_is_an_error(hire: Any) -> None:
    staff = hire(2, *range(1, 40))
    with pytest.raises(ValueError, match="was lost 4 times in one round"):
        trained(study("full batch", engine="sharded"))
    assert staff.closed == 1


@pytest.mark.parametrize("model", [MLP, {"name": "huber-svm", "l2": 0.05}], ids=["mlp", "svm"])
def test_models_with_matrix_products_agree_to_the_bit(model: dict[str, Any], hire: Any) -> None:
    tables = study("full batch", engine="vectorized", model=model, workers=2)
    tables["strategy"]["learning_rate"] = 0.5
    expected = trained(tables)
    hire(3)
    found = trained({**tables, "run": {"engine": "sharded"}})
    np.testing.assert_array_equal(found, expected)


def test_workers_are_kept_apart_where_all_are_on_one_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart: list[tuple[int, int]] = []
    monkeypatch.setattr(shard, "keep_to_own_processors", lambda *place: apart.append(place))
    for workers, beside in ((1, 1), (3, 3), (3, 2)):  # of three on two machines, two are on one
        for index in range(workers):
            place = Place(index=index, workers=workers, beside=beside)
            shard.Shard(lambda: pytest.fail("not asked"), place, apart=False)
    assert apart == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(("length", "stored"), [(10, False), (100_000, True)])
def test_only_a_small_query_goes_with_a_call_and_arrives_as_it_was(
    length: int, stored: bool
) -> None:
    put: list[Any] = []
    session = object.__new__(RaySession)
    session._ray = SimpleNamespace(cloudpickle=pickle, put=put.append)  # type: ignore[assignment]
    query = np.arange(length)
    found = session.share(query)
    assert len(put) == stored
    if not stored:
        np.testing.assert_array_equal(through(found), query)


def test_parts_are_whole_consecutive_and_about_equal() -> None:
    sizes = (7, 1, 300, 40, 2, 150, 30, 30, 30, 30)
    data, task = random_data(sizes, 5), linear_task(sizes, 5)
    fixed = [extent for part in parts(data, task, workers=1, anywhere=False) for extent in part]
    for workers in (1, 2, 3, 4, 9):
        for anywhere in (True, False):
            found = parts(data, task, workers=workers, anywhere=anywhere)
            assert len(found) == workers
            flat = [extent for part in found for extent in part]
            assert anywhere or flat == fixed
            ends = [0, *(extent.parties.stop for extent in flat)]
            assert [extent.parties.start for extent in flat] == ends[:-1]
            assert ends[-1] == len(sizes)
            assert [extent.records.start for extent in flat] == [
                int(data.offsets[end]) for end in ends[:-1]
            ]


def test_chunks_that_do_not_fit_the_memory_are_opened_anew_with_the_same_bits(
    hire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    open_ = chunks.Chunk.open

    def watched(*arguments: Any, **options: Any) -> chunks.Chunk:
        opened.append(1)
        return open_(*arguments, **options)

    monkeypatch.setattr(chunks.Chunk, "open", watched)
    counts = []
    for share in (0.5, 0.0):
        monkeypatch.setattr(chunks, "_KEPT_SHARE", share)
        for case in ("full batch", "scaffold"):
            expected = trained(study(case, engine="vectorized"))
            hire(2)
            opened.clear()
            np.testing.assert_array_equal(trained(study(case, engine="sharded")), expected)
            counts.append(len(opened))
    kept, kept_variates, anew, anew_variates = counts
    assert anew == 3 * kept  # one for each of three rounds
    assert anew_variates == kept_variates  # what parties remember is never let go


def test_errors_of_a_worker_are_those_of_one_process(hire: Any) -> None:
    tables = study("output", engine="sharded")
    tables["strategy"]["tolerance"] = 1e-30
    messages = []
    for engine in ("vectorized", "sharded"):
        tables["run"]["engine"] = engine
        hire(2)
        with pytest.raises(Exception, match="tolerance") as failure:
            trained(tables)
        messages.append((type(failure.value), str(failure.value)))
    assert messages[0] == messages[1]


def test_a_store_that_a_worker_does_not_find_or_is_another_one_is_named(tmp_path: Path) -> None:
    prepared = prepare(parse_experiment(study("full batch", engine="vectorized")))
    sharded._write(prepared, tmp_path / "store")
    values = prepared.experiment.to_dict()
    values["data"]["store"] = str(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"is not on '.*', where a worker was started"):
        sharded.open_parties(values, "digest")
    values["data"]["store"] = str(tmp_path / "store")
    with pytest.raises(ValueError, match="is another one than that of the run"):
        sharded.open_parties(values, "digest")


def test_keys_of_the_engine_are_refused_elsewhere() -> None:
    for run, reason in (
        ({"engine": "vectorized", "ray_address": "auto"}, "ray_address is for engine = 'sharded'"),
        ({"engine": "local", "workers": 2}, "workers is for engine"),
        ({"engine": "sharded", "secure_aggregation": "active"}, "'sharded' computes what"),
    ):
        with pytest.raises(ValueError, match=reason):
            parse_experiment(study("full batch", **run))


def test_workers_and_places_do_not_change_what_a_run_is() -> None:
    plain = parse_experiment(study("full batch", engine="vectorized"))
    other = parse_experiment(
        study("full batch", engine="sharded", workers=7, ray_address="10.0.0.5:6379")
    )
    assert plain.config_hash == other.config_hash


def test_the_processes_of_a_failed_start_are_ended(hire: Any, monkeypatch: Any) -> None:
    staff, made = hire(2), []
    write = stores.write_holding

    def written(folder: Path, *arguments: Any) -> Any:
        made.append(folder)
        manifest = write(folder, *arguments)
        (folder / "train_X.npy").unlink()
        return manifest

    monkeypatch.setattr(sharded, "write_holding", written)
    prepared = prepare(parse_experiment(study("full batch", engine="sharded")))
    with pytest.raises(ValueError, match=r"train_X\.npy is missing"):
        build_federation(prepared, run="r")
    assert staff.closed == 1
    assert not made[0].exists()
