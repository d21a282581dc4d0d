"""One experiment on every engine: the same model, the same plan, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.engines.dropouts import Dropouts
from fedpriv.federation.engines.local import LocalGrid
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.secagg.primitives import public_keys
from fedpriv.simulations.client_app import app
from fedpriv.simulations.engines.parties import (
    grid_experiment,
    grid_federation,
    party_host,
    protection,
)
from fedpriv.simulations.run.prepare import build_federation, build_strategy, check, prepare, train
from fedpriv.simulations.run.session import carry_on, reopen, start
from tests.simulations.engines.experiments import GRADIENT, experiment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.simulations.run.prepare import Prepared


def trained(
    prepared: Prepared, strategy: SumStrategy | None = None
) -> tuple[np.ndarray[Any, Any], list[tuple[int, ...]]]:
    """The model, and who was in each sum."""
    strategy = strategy or build_strategy(prepared, run=prepared.run)
    federation = build_federation(prepared, run=prepared.run, rounds=strategy.rounds)
    sizes: list[tuple[int, ...]] = []

    def watch(_query: Query, answer: Sum) -> bool:
        sizes.append(answer.sizes)
        return True

    train(strategy, federation, watch)
    return np.array(strategy.theta), sizes


SAMPLED = {**GRADIENT, "sampling_rate": 0.2, "accountant": "rdp"}


@pytest.mark.parametrize(
    ("strategy", "adjacency"),
    [
        (GRADIENT, "replace-one"),
        ({**GRADIENT, "weights": "equal"}, "replace-one"),
        (SAMPLED, "add-remove"),
        ({"name": "output-perturbation"}, "replace-one"),
        ({"name": "objective-perturbation"}, "replace-one"),
        ({"name": "non-private"}, "replace-one"),
        ({"name": "pooled"}, "replace-one"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "-".join(map(str, value.values())),
)
@pytest.mark.parametrize("level", ["off", "semi-honest", "active"])
def test_an_experiment_gives_the_same_model_on_every_engine(
    strategy: dict[str, Any], adjacency: str, level: str
) -> None:
    """Up to the order of float sums, which may move an answer by a step of the grid."""
    one = prepare(experiment(strategy, adjacency=adjacency))
    two = prepare(
        experiment(strategy, adjacency=adjacency, engine="local", secure_aggregation=level)
    )
    assert one.run == two.run, "one experiment, one noise"
    first, second = (build_strategy(prepared, run=prepared.run) for prepared in (one, two))
    plans = first.plan, second.plan
    assert (plans[0] and plans[0].to_dict()) == (plans[1] and plans[1].to_dict())
    (expected, _), (theta, sizes) = trained(one, first), trained(two, second)
    assert all(sorted(present) == sorted(one.task.sizes) for present in sizes)
    step = 2.0**-40 if plans[0] is None else plans[0].step
    assert np.abs(theta - expected).max() <= one.task.parties * max(step, 2.0**-30)
    assert np.abs(expected).max() > 0.01


def test_a_party_draws_its_own_part_of_the_sample_of_all() -> None:
    prepared = prepare(experiment(SAMPLED, adjacency="add-remove"))
    query = build_strategy(prepared, run=prepared.run).ask()
    assert query is not None
    whole = build_federation(prepared, run=prepared.run).sum(query)
    alone = [
        party_host(prepared, number, run=prepared.run, identities=()).party.answer(query)
        for number in range(prepared.task.parties)
    ]
    total = query.grid.decode(np.add.reduce(alone, dtype=query.grid.dtype))
    assert np.abs(total - whole.total).max() <= prepared.task.parties
    others = prepare(experiment(SAMPLED, adjacency="add-remove", seed=1))
    skewed = party_host(others, 3, run=prepared.run, identities=()).party.answer(query)
    assert (skewed != alone[3]).any(), "another sample would be seen"


@pytest.mark.parametrize("strategy", [GRADIENT, {"name": "output-perturbation"}])
def test_drop_outs_are_the_same_in_the_clear_and_in_one_process(strategy: dict[str, Any]) -> None:
    one = prepare(experiment(strategy, dropout=0.3))
    two = prepare(experiment(strategy, dropout=0.3, engine="local", secure_aggregation="off"))
    (expected, sizes), (theta, same) = trained(one), trained(two)
    assert sizes == same
    assert np.abs(theta - expected).max() <= 1e-5
    full, _ = trained(prepare(experiment(strategy)))
    assert np.abs(full - expected).max() > 1e-4


@pytest.mark.parametrize("level", ["semi-honest", "active"])
@pytest.mark.parametrize("noise_at", ["server", "parties"])
def test_masked_sums_survive_the_drop_outs_that_were_planned_for(level: str, noise_at: str) -> None:
    prepared = prepare(
        experiment(
            {**GRADIENT, "rounds": 8},
            dropout=0.3,
            engine="local",
            secure_aggregation=level,
            noise_at=noise_at,
        )
    )
    theta, sizes = trained(prepared)
    assert np.isfinite(theta).all()
    assert {len(present) for present in sizes} <= {6, 7, 8}
    assert min(len(present) for present in sizes) < 8


def test_parties_of_one_process_verify_a_signature_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 parties in active mode: keys of all set-ups, and consents of all rounds."""
    calls: list[bytes] = []
    verify = vars(public_keys)["require_signature"]

    def counted(identity: bytes, signature: bytes, content: bytes, *, signer: int) -> None:
        calls.append(signature)
        verify(identity, signature, content, signer=signer)

    monkeypatch.setattr(public_keys, "require_signature", counted)
    trained(prepare(experiment(GRADIENT, engine="local", secure_aggregation="active")))
    assert len(calls) == len(set(calls)) == 8 * (GRADIENT["rounds"] + 1) + 8 * GRADIENT["rounds"]


def test_a_joint_fit_refuses_drop_outs_before_anything_is_asked() -> None:
    prepared = prepare(experiment({"name": "objective-perturbation"}, dropout=0.3))
    with pytest.raises(ValueError, match="needs every party in every exchange"):
        check(prepared)


def test_shares_of_noise_need_masks_on_a_grid() -> None:
    run: dict[str, Any] = {"engine": "local", "secure_aggregation": "off"}
    prepared = prepare(experiment(GRADIENT, noise_at="parties", **run))
    with pytest.raises(ValueError, match="secure_aggregation"):
        check(prepared)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"secure_aggregation": "active"}, "needs engine = 'local' or 'ray'"),
        ({"engine": "rya"}, "engine"),
        ({"engine": "local", "secure_aggregation": "ideal"}, "secure_aggregation"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_impossible_settings_are_refused_with_their_key(run: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experiment(GRADIENT, **run)


def test_engines_are_masked_unless_told_otherwise() -> None:
    assert protection(experiment(GRADIENT, engine="local")).level == "semi-honest"
    assert protection(experiment(GRADIENT)).level == "off"


def test_a_simulation_leaves_the_same_row_in_a_ledger_on_every_engine(tmp_path: Path) -> None:
    rows = []
    for engine in ("vectorized", "local"):
        with Ledger.create(
            tmp_path / f"{engine}.ledger",
            data_name="synthetic",
            budget=Budget(epsilon=1.0, delta=1e-6),
            adjacency="replace-one",
        ) as ledger:
            session = start(prepare(experiment(GRADIENT, engine=engine)), tmp_path / engine)
            carry_on(session, ledger=ledger)
            rows.append([(row.kind, row.run, row.round, row.detail) for row in ledger.rows()])
    assert rows[0][1:] == rows[1][1:] != []


@pytest.mark.parametrize("engine", ["local", "sharded", "ray"])
def test_a_release_is_no_matter_for_simulated_parties(
    fedpriv: Callable[..., Any], tmp_path: Path, engine: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(to_toml(experiment(GRADIENT).to_dict()))
    book = tmp_path / "book.ledger"
    done = fedpriv("run", file, "--engine", engine, "--release", "--ledger", book, "--new-ledger")
    assert done.code == 2
    assert "--release needs engine = 'vectorized'" in done.message
    assert not book.exists()


def test_the_command_takes_an_engine_and_says_what_it_cost(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(to_toml(experiment(GRADIENT).to_dict()))
    masked = fedpriv("run", file, "--engine", "local", "--out", tmp_path / "a", "--json").json()
    plain = fedpriv("run", file, "--out", tmp_path / "b", "--json").json()
    assert masked["run"] == plain["run"]
    assert (masked["engine"], masked["secure_aggregation"]) == ("local", "semi-honest")
    assert (plain["engine"], plain["secure_aggregation"]) == ("vectorized", "ideal")
    assert plain["exchanges"] is None
    traffic = masked["exchanges"]["traffic"]
    assert {step: one["exchanges"] for step, one in traffic.items()} == {
        "join": 1, "advertise": 1, "share": 1, "answer": 5, "reveal": 5,
    }  # fmt: skip
    received = sum(one["received"] for one in traffic.values())
    assert masked["bytes"] == pytest.approx(received / 8, abs=5)
    assert masked["bytes"] > plain["bytes"]
    statement = " ".join((tmp_path / "a" / "statement.txt").read_text().split())
    assert "a server that follows the protocol sees sums of answers only" in statement
    assert "8 parties, semi-honest. Tolerates 1 party colluding" in statement
    assert "No sum of fewer than 7." in statement


def test_an_interrupted_run_with_drop_outs_ends_in_the_same_model(tmp_path: Path) -> None:
    study = experiment(GRADIENT, dropout=0.3, checkpoint_seconds=0.0)
    whole = start(prepare(study), tmp_path / "whole")
    carry_on(whole)
    cut = start(prepare(study), tmp_path / "cut")
    asked = iter([False, False, True])
    assert carry_on(cut, stop=lambda: next(asked)) is None
    carry_on(reopen(tmp_path / "cut"))
    models = [np.load(tmp_path / name / "model.npz")["theta"] for name in ("whole", "cut")]
    assert (models[0] == models[1]).all()


def test_the_client_app_of_a_simulation_is_the_party_of_its_partition() -> None:
    study = experiment(GRADIENT, engine="ray", secure_aggregation="active")
    prepared = prepare(study)
    config = {"config": to_toml(study.to_dict()), "experiment": "", "output": ""}
    grid = LocalGrid(app, prepared.task.parties, run_config=config)
    federation = grid_federation(grid, prepared, rounds=2)
    strategy = build_strategy(prepared, run=prepared.run)
    train(strategy, federation, lambda _query, _answer: True)
    expected, _ = trained(prepare(experiment(GRADIENT)))
    assert np.abs(strategy.theta - expected).max() <= 1e-5


def test_nodes_named_by_an_experiment_are_masked_whatever_engine_its_file_names(
    tmp_path: Path,
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(to_toml(experiment(GRADIENT).to_dict()))
    prepared = prepare(grid_experiment(str(file)))
    assert protection(prepared.experiment).level == "semi-honest"
    run_config = {"config": "", "experiment": str(file), "output": ""}
    grid = LocalGrid(app, prepared.task.parties, run_config=run_config)
    query = build_strategy(prepared, run=prepared.run).ask()
    assert query is not None
    answer = grid_federation(grid, prepared, rounds=1).sum(query)
    assert answer.sizes == prepared.task.sizes


def test_a_comparison_on_ray_is_refused(fedpriv: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    study = experiment(GRADIENT, engine="ray").to_dict() | {"compare": {"seeds": 1}}
    file.write_text(to_toml(study))
    done = fedpriv("compare", file, "--out", tmp_path / "out", "--workers", 1)
    assert done.code == 2
    assert "run.engine must be 'vectorized' or 'local' in a comparison" in done.message


@pytest.mark.deep
def test_a_comparison_sets_masked_and_ideal_sums_side_by_side(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    masked = {"run.engine": "local", "run.secure_aggregation": "active"}
    entries = [
        {**GRADIENT, "label": "ideal"},
        {**GRADIENT, "label": "active", "override": masked},
    ]
    study = experiment(GRADIENT).to_dict() | {"compare": {"strategies": entries, "seeds": 2}}
    file.write_text(to_toml(study))
    done = fedpriv("compare", file, "--out", tmp_path / "out", "--workers", 1, "--json").json()
    rows = {row["label"]: row for row in done}
    assert rows["ideal"]["values"] == pytest.approx(rows["active"]["values"], abs=1e-3)
    assert rows["active"]["bytes"] > rows["ideal"]["bytes"] > 0


def test_planned_drop_outs_leave_every_second_round_alone() -> None:
    leaving = Dropouts(parties=10, fraction=0.29, seed=1)
    assert {len(leaving.of(round_)) for round_ in (0, 2, 4)} == {2}
    assert [leaving.of(round_) for round_ in (1, 3)] == [{}, {}]
    assert Dropouts(parties=10, fraction=0.05, seed=1).of(0) == {}
    moments = {m for r in range(0, 40, 2) for m in leaving.of(r).values()}
    assert moments == {"answer", "confirm", "reveal"}
