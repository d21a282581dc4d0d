"""A deployed party on neighbouring files: from the table on its disk to what leaves it.

For every kind of query, two tables that differ in one record are put where the party's data file
is. The party is opened on each with the same messages and the same random numbers, and must behave
alike in everything but its answer:

(a) what it says, whether it answers, what it pays, what it keeps and the noise that it adds are the
    same;
(b) its exact answer, before any noise, moves by no more than the sensitivity that it charges for;
(c) whatever it draws, it answers; and if it fails on the way, it answers from the same draw later.

At the end the faults that these checks are for are put back, one by one, and must be found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import Files, read_table
from fedpriv.federation.deployed import own_tables
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.party import party as answering
from fedpriv.federation.party.draws import draw_local_noise
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries import erm
from fedpriv.federation.queries.kinds import ErmQuery
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.deploy.run import client as deployed_client
from tests.audit.deployed_cases import (
    BASE,
    CASES,
    DRAWN,
    LABEL,
    LAMBDA,
    NEIGHBOURS,
    SCHEMA,
    A,
    R,
    changed,
    gradient,
    locally_gaussian,
    perturbed_minimiser,
)
from tests.audit.deployed_scene import Scene, random_numbers
from tests.federation.deployed.deployments import take_any_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.data import Dataset
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from tests.audit.deployed_cases import Case, Table


def compare(
    scene: Scene, tables: tuple[Table, Table], case: Case, *, answered: bool = True
) -> float:
    """(a) and (b), for two tables; how far the exact answer moved, of what is charged for."""
    query, sensitivity = case
    one, two = (scene.ask(table, query) for table in tables)
    assert one.said == two.said
    assert one.paid == two.paid
    assert one.kept == two.kept
    assert one.noise == two.noise
    assert (one.answered, two.answered) == (answered, answered), one.said
    if one.exact is None or two.exact is None:
        return 0.0
    moved = float(np.linalg.norm((one.exact - two.exact).astype(float)))
    assert moved <= sensitivity
    return moved / sensitivity


def draw_again(scene: Scene, table: Table, query: Query, draws: int = 6) -> None:
    """(c): every draw is answered, and one that fails on the way is the one that is answered."""
    for seed in range(draws):
        seen: list[bytes] = []

        def failing(*arguments: Any, seen: list[bytes] = seen) -> Any:
            noise = draw_local_noise(*arguments)
            seen.append(b"" if noise is None else noise.tobytes())
            if len(seen) == 1:
                raise RuntimeError("the machine fails")
            return noise

        scene.write(table)
        ask = scene.answering(query, 0)
        with random_numbers(seed), pytest.MonkeyPatch.context() as patched:
            patched.setattr(answering, "draw_local_noise", failing)
            with pytest.raises(RuntimeError, match="the machine fails"):
                ask()
            answer = ask()
            assert seen[0] == seen[1]
        np.testing.assert_array_equal(ask(), answer)


@pytest.fixture(autouse=True)
def _any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    take_any_kind(monkeypatch)  # queries are put by hand, and not by the strategy of the run


@pytest.mark.parametrize("name", CASES)
def test_neighbouring_files_differ_in_a_bounded_answer_and_in_nothing_else(
    name: str, tmp_path: Path
) -> None:
    case, adjacency, least = CASES[name]
    scene = Scene.of(tmp_path, adjacency)
    made = case(scene.task, adjacency)
    moved = {
        pair: compare(scene, NEIGHBOURS[adjacency][pair], made) for pair in NEIGHBOURS[adjacency]
    }
    assert max(moved.values()) > least, moved


@pytest.mark.parametrize("case", DRAWN, ids=lambda case: case.__name__)
def test_every_draw_is_answered_once(
    case: Callable[[Task, Adjacency], Case], tmp_path: Path
) -> None:
    scene = Scene.of(tmp_path, R)
    draw_again(scene, BASE, case(scene.task, R)[0])


# The faults that this audit is for: refused as things are, and found where they are put back.

PARTIES = 'party = "clinic"\n[columns.clinic]\nkind = "category"\nvalues = ["a", "b"]\n'
WITH_PARTIES = tuple(f"{row},{'b' if i == 0 else 'a'}" for i, row in enumerate(BASE))
WHOLE_FILE: dict[str, tuple[str, str, tuple[Table, Table]]] = {
    "label": (
        SCHEMA.replace(LABEL, ""),
        "age,dose,sick",
        NEIGHBOURS[R]["only positive record"],
    ),
    "party": (
        SCHEMA.replace(LABEL, LABEL + PARTIES.partition("\n")[2]).replace(
            "\npositive", '\nparty = "clinic"\npositive'
        ),
        "age,dose,sick,clinic",
        (WITH_PARTIES, changed(WITH_PARTIES, 0, f"{BASE[0]},a")),
    ),
    "drop": (
        SCHEMA.replace("fill = 50\n", "").replace("\npositive", '\nmissing = "drop"\npositive'),
        "age,dose,sick",
        NEIGHBOURS[R]["missing"],
    ),
}


@pytest.mark.parametrize("fault", WHOLE_FILE)
def test_a_schema_that_leaves_a_fact_to_the_file_is_refused_on_both_and_found_if_put_back(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, header, tables = WHOLE_FILE[fault]
    (tmp_path / "sound").mkdir(mode=0o700)
    case = gradient(Scene.of(tmp_path / "sound", R).task, R)
    (tmp_path / "faulty").mkdir(mode=0o700)
    scene = Scene.of(tmp_path / "faulty", R, schema=schema, header=header)
    compare(scene, tables, case, answered=False)
    if fault == "party":  # a party without a record decides nothing any more, whatever the schema
        return
    for module in (own_tables, deployed_client):
        monkeypatch.setattr(module, "require_releasable", lambda *_, **__: None)
    assert {scene.ask(table, case[0]).answered for table in tables} == {True, False}
    with pytest.raises(AssertionError):
        compare(scene, tables, case)


def test_a_number_of_records_that_decides_under_add_remove_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(tmp_path, A)
    case, tables = gradient(scene.task, A), NEIGHBOURS[A]["first row"]
    compare(scene, tables, case)

    def exactly(party: DeployedParty, count: int) -> None:
        if count != party.size:
            raise QueryRefused("another number")

    monkeypatch.setattr(DeployedParty, "_require_count", exactly)
    with pytest.raises(AssertionError):
        compare(scene, tables, case)


def test_records_that_are_found_unusable_after_they_were_paid_for_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a row that is no record costs nothing; where it is paid for first, it does."""
    scene = Scene.of(tmp_path, R)
    case, tables = gradient(scene.task, R), (BASE, changed(BASE, 5, "1,1,maybe"))
    assert scene.ask(tables[1], case[0]).paid == ()

    def paid_first(party: DeployedParty, ledger: Any) -> Any:
        ledger.reserve(case[0].event, run="audit", round=0)
        return party._records

    monkeypatch.setattr(DeployedParty, "_checked", paid_first)
    assert scene.ask(tables[1], case[0]).paid != ()


@pytest.mark.parametrize("which", ["table", "schema"])
def test_a_file_that_changes_while_it_is_read_is_not_answered_for(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger was bound to the new table, and the answer was of the old one."""
    scene = Scene.of(tmp_path, R)
    query, _ = gradient(scene.task, R)
    assert scene.ask(BASE, query).answered
    read, home = Files.table, scene.deployment.home("north")

    def raced(self: Files, path: Path, *, schema: Path) -> Dataset:
        if which == "schema":
            other = self.schema(schema).model_copy(update={"missing": "drop"})
            return read_table(path, other)[0]
        dataset = read(self, path, schema=schema)
        (home / "records.csv").write_text("\n".join((scene.header, *changed(BASE, 0, "1,1,yes"))))
        return dataset

    monkeypatch.setattr(Files, "table", raced)
    seen = scene.ask(BASE, query)
    assert not seen.answered
    assert seen.paid == ()
    assert "the records of this party cannot be used." in seen.said


@pytest.mark.parametrize("case", DRAWN, ids=lambda case: case.__name__)
def test_a_release_that_is_drawn_again_is_found(
    case: Callable[[Task, Adjacency], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(tmp_path, R)
    monkeypatch.setattr(RandomStream, "from_secret", lambda *_: RandomStream.from_os())
    with pytest.raises(AssertionError):
        draw_again(scene, BASE, case(scene.task, R)[0])


def test_a_tolerance_that_only_short_draws_reach_is_refused_and_found_if_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(tmp_path, R)
    query, _ = perturbed_minimiser(scene.task, R, epsilon=0.002)
    assert isinstance(query, ErmQuery)
    draw_again(scene, BASE, query)
    low = replace(query, tolerance=scene.task.certain_tolerance(LAMBDA))
    compare(scene, NEIGHBOURS[R]["first row"], (low, 0.0), answered=False)
    monkeypatch.setattr(
        erm,
        "certain_tolerance",
        lambda task, regulariser, **_: task.certain_tolerance(regulariser),
    )
    with pytest.raises((AssertionError, ToleranceNotReachedError)):
        draw_again(scene, BASE, low)


@pytest.mark.parametrize("fault", ["half the sensitivity", "noise from the records"])
def test_an_answer_that_moves_too_far_and_noise_that_knows_a_record_are_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.of(tmp_path, R)
    query, sensitivity = locally_gaussian(scene.task, R)
    if fault == "half the sensitivity":
        sensitivity /= 2
    else:
        monkeypatch.setattr(
            answering,
            "draw_local_noise",
            lambda *_: np.full(
                3, len(scene.deployment.home("north").joinpath("records.csv").read_text())
            ),
        )
    with pytest.raises(AssertionError):
        compare(scene, NEIGHBOURS[R]["label flips"], (query, sensitivity))
