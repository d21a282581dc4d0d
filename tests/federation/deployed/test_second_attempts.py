"""Sums that fail, and are asked for again: nobody is left out for good, no release is stuck."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.engines.local import FIRST_NODE, LocalGrid
from fedpriv.federation.engines.seals import ServerSeal
from fedpriv.federation.party.client_app import client_app
from fedpriv.federation.protocol.openings import Openings
from fedpriv.secagg.errors import OutOfOrder
from fedpriv.secagg.party import Party
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.keys import KEY_BYTES
from fedpriv.simulations.deploy.run.openings import KeptOpenings
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FIVE, FOUR, HELD, PATIENCE, Deployment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flwr.app import Context, Message

    from fedpriv.federation.deployed.signed import SignedHost
    from fedpriv.federation.federation import Sum

SHARES: dict[str, Any] = {
    **FOUR,
    "policy": {"noise_at": "parties"},
    "experiment": {
        "strategy": {"rounds": 2},
        "privacy": {"noise_at": "parties"},
        "run": {"dropout": 0.25},
    },
}


class TroubledGrid(LocalGrid):
    """Some parties are not there; of the messages that ask to reveal, one or more are lost."""

    missing: frozenset[int] = frozenset()
    reveals: int | None = None
    unasked: frozenset[int] = frozenset()

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in super().get_node_ids() if node - FIRST_NODE not in self.missing]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = [m for m in messages if m.metadata.dst_node_id - FIRST_NODE not in self.missing]
        if sent and sent[0].metadata.message_type == "query.reveal":
            asked = sent[: self.reveals]
            sent = [m for m in asked if m.metadata.dst_node_id - FIRST_NODE not in self.unasked]
        return super().push_messages(sent)


def deployed(folder: Path, **settings: Any) -> Deployment:
    folder.chmod(0o700)
    return Deployment(folder=folder, **settings)


def troubled(deployment: Deployment, *missing: int, reveals: int | None = None) -> TroubledGrid:
    party = partial(deployment.signed_host, config=deployment.config())
    grid = TroubledGrid(client_app(party), len(deployment.names))
    grid.missing, grid.reveals = frozenset(missing), reveals
    return grid


def federation(
    deployment: Deployment, output: Path, grid: LocalGrid, *, openings: Openings | None = None
) -> tuple[GridFederation, Any]:
    """A server that begins anew, and the first query of its run."""
    place = {"config": deployment.config(), "roster": str(deployment.server / "roster.toml")}
    session, roster = open_session({**place, "output": str(output)})
    parties = GridFederation(
        grid,
        task=session.prepared.task,
        protection=protection(session.prepared.experiment),
        roster=roster.identities,
        patience=PATIENCE,
        seal=deployment.seal(),
        openings=openings,
    )
    return parties, build_strategy(session.prepared, run=session.identity.run).ask()


def test_a_party_whose_process_was_lost_when_it_was_asked_to_join_is_asked_again(
    tmp_path: Path,
) -> None:
    """Its node says that there is no reply: that is no answer, and no silence either."""
    deployment, lost = deployed(tmp_path, **FOUR), [2]

    def party(context: Context) -> SignedHost:
        if context.node_id - FIRST_NODE in lost:
            lost.clear()
            raise MemoryError
        return deployment.signed_host(context, deployment.config())

    grid = LocalGrid(client_app(party), len(deployment.names))
    parties, query = federation(deployment, tmp_path / "out", grid)
    parties.gather()
    assert (lost, len(parties.sum(query).sizes)) == ([], 4)


def test_a_party_that_refused_to_join_is_asked_again_when_it_is_missed(tmp_path: Path) -> None:
    """Three parties need all three; one had a stricter policy when it was first asked."""
    deployment = deployed(tmp_path)
    deployment.write_party("south", policy={"strategies": ["output-perturbation"]})
    grid = LocalGrid(client_app(deployment.signed_host), len(deployment.names))
    parties, query = federation(deployment, tmp_path / "out", grid)
    with pytest.raises(RoundFailed, match="takes part in no run of strategy"):
        parties.gather()
    deployment.write_party("south")
    parties.recall()
    parties.gather()
    assert len(parties.sum(query).sizes) == 3


def test_a_party_that_lost_its_seat_after_a_set_up_is_missing_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node was registered no more: the round that was set up with it ended the server."""
    deployment, seats = deployed(tmp_path, **FOUR), ServerSeal.seats
    parties, query = federation(deployment, tmp_path / "out", troubled(deployment))
    assert len(parties.sum(query).sizes) == 4

    def fewer(seal: ServerSeal) -> dict[int, int]:
        return {node: party for node, party in seats(seal).items() if party != 2}

    monkeypatch.setattr(ServerSeal, "seats", fewer)
    assert len(parties.sum(query).sizes) == 3


def test_a_release_that_was_half_opened_is_opened_over_the_same_parties_again(
    tmp_path: Path,
) -> None:
    """Three parties answered; two of them had revealed when the run stopped; the fourth is back."""
    deployment, output = deployed(tmp_path, **SHARES), tmp_path / "out"
    with pytest.raises(RoundFailed, match="no sum for release 0"):
        deployment.run(output, grid=troubled(deployment, 2, reveals=2))
    assert deployment.run(output)["rounds"] == 2
    assert [len(deployment.reserved(name)) for name in deployment.names] == [2, 2, 1, 2]


def test_without_that_memory_the_release_would_be_stuck(tmp_path: Path) -> None:
    """The twin of the test above: the two that revealed refuse every other set."""
    deployment, output = deployed(tmp_path, **SHARES), tmp_path / "out"
    openings = KeptOpenings(output)

    def asked(grid: LocalGrid, memory: Openings) -> Sum:
        parties, query = federation(deployment, output, grid, openings=memory)
        return parties.sum(query)

    with pytest.raises(RoundFailed):
        asked(troubled(deployment, 2, reveals=2), openings)
    with pytest.raises(RoundFailed):
        asked(troubled(deployment), Openings())
    opened = asked(troubled(deployment), KeptOpenings(output))
    assert len(opened.sizes) == 3
    again = asked(troubled(deployment, 2), KeptOpenings(output))
    np.testing.assert_array_equal(again.total, opened.total)


def test_if_a_party_of_the_set_is_gone_whoever_is_not_bound_goes_on(tmp_path: Path) -> None:
    """One party had revealed: without it another set may be opened, and is."""
    deployment, output = deployed(tmp_path, **SHARES), tmp_path / "out"
    grid = troubled(deployment, reveals=1)
    first, query = federation(deployment, output, grid, openings=KeptOpenings(output))
    with pytest.raises(RoundFailed):
        first.sum(query)
    # Party 0 is bound, and among the three that are there: they are one too few without it.
    stuck, query = federation(
        deployment, output, troubled(deployment, 2), openings=KeptOpenings(output)
    )
    with pytest.raises(RoundFailed):
        stuck.sum(query)
    free, query = federation(
        deployment, output, troubled(deployment, 0), openings=KeptOpenings(output)
    )
    assert len(free.sum(query).sizes) == 3


def test_a_set_that_nobody_signs_does_not_take_the_place_of_the_one_that_binds(
    tmp_path: Path,
) -> None:
    """Two of four had revealed when the server stopped; one was away when it was started again."""
    deployment, output = deployed(tmp_path, **SHARES), tmp_path / "out"
    for grid in (troubled(deployment, reveals=2), troubled(deployment, 3)):
        with pytest.raises(RoundFailed, match="no sum for release 0"):
            deployment.run(output, grid=grid)
    kept = read_json(output / "private" / "openings.json")
    assert (kept["parties"], kept["attempts"]) == ([[0, 1, 2, 3]], 2)
    assert deployment.run(output)["rounds"] == 2


def test_a_party_that_answers_no_more_does_not_hold_up_those_who_are_not_bound(
    tmp_path: Path,
) -> None:
    """The server stopped before anybody revealed; then one of its set refuses, and one may."""
    deployment, output = deployed(tmp_path, **SHARES), tmp_path / "out"
    with pytest.raises(RoundFailed, match="no sum for release 0"):
        deployment.run(output, grid=troubled(deployment, reveals=0))
    deployment.write_party("west", policy={"min_noise": 1e9})
    assert deployment.run(output)["rounds"] == 2


def test_a_set_that_too_few_are_bound_to_takes_turns_with_the_one_before(tmp_path: Path) -> None:
    """Of five, two had revealed; without the fifth the other two did, to another set, in vain."""
    level = {"secure_aggregation": "semi-honest"}
    deployment = deployed(
        tmp_path,
        names=FIVE,
        sizes=HELD,
        policy={"noise_at": "parties", **level},
        experiment={**SHARES["experiment"], "run": {"dropout": 0.25, **level}},
    )
    for grid in (troubled(deployment, reveals=2), troubled(deployment, 4)):
        with pytest.raises(RoundFailed, match="no sum for release 0"):
            deployment.run(tmp_path / "out", grid=grid)
    assert deployment.run(tmp_path / "out")["rounds"] == 2


def test_a_party_whose_secrets_nobody_can_open_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shares are sealed and signed as they must be, and of nothing."""
    deployment, split = deployed(tmp_path, **FOUR), Party._split

    def of_nothing(party: Party, secrets: bytes, *rest: Any) -> dict[int, bytes]:
        return split(party, bytes(len(secrets)) if party.number == 3 else secrets, *rest)

    monkeypatch.setattr(Party, "_split", of_nothing)
    assert deployment.run(tmp_path / "out")["rounds"] == 4
    assert [len(deployment.reserved(name)) for name in deployment.names] == [4, 4, 4, 1]


def test_a_party_that_also_reveals_nothing_does_not_hold_up_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four, three were heard, and one of them may have lied: who is at fault is not certain."""
    deployment, split, reveal = deployed(tmp_path, **FOUR), Party._split, Party.reveal

    def of_nothing(party: Party, secrets: bytes, *rest: Any) -> dict[int, bytes]:
        return split(party, bytes(len(secrets)) if party.number == 3 else secrets, *rest)

    def refusing(party: Party, *inbox: Any) -> Any:
        if party.number == 3:
            raise OutOfOrder("No.")
        return reveal(party, *inbox)

    monkeypatch.setattr(Party, "_split", of_nothing)
    monkeypatch.setattr(Party, "reveal", refusing)
    assert deployment.run(tmp_path / "out")["rounds"] == 4


def test_a_party_that_shares_nothing_and_does_not_answer_is_in_no_set_and_loses_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are bound to a set without it, and bring the noise: it is left out, too."""
    deployment, split = deployed(tmp_path, **SHARES), Party._split

    def of_nothing(party: Party, secrets: bytes, *rest: Any) -> dict[int, bytes]:
        return split(party, bytes(len(secrets)) if party.number == 3 else secrets, *rest)

    monkeypatch.setattr(Party, "_split", of_nothing)
    deployment.write_party("west", policy={"noise_at": "parties", "min_noise": 1e9})
    assert deployment.run(tmp_path / "out")["rounds"] == 2


def test_a_liar_has_no_honest_party_left_out_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once one message was lost, a wrong share of party 0 had it left out of the whole run."""
    deployment, reveal = deployed(tmp_path, names=FIVE, sizes=HELD), Party.reveal

    def lying(party: Party, *inbox: Any) -> Any:
        state, sent = reveal(party, *inbox)
        if party.number == 4:
            wrong = {0: bytes(len(sent.seed_shares[0]))} if 0 in sent.seed_shares else {}
            sent = replace(sent, seed_shares={**sent.seed_shares, **wrong})
        return state, sent

    monkeypatch.setattr(Party, "reveal", lying)
    grid = troubled(deployment)
    parties, query = federation(deployment, tmp_path / "out", grid)
    grid.unasked = frozenset({1})
    with pytest.raises(RoundFailed, match="'wrongly shared': 1"):
        parties.sum(query)
    grid.unasked = frozenset()
    parties.recall()
    assert [len(parties.sum(query).sizes) for _ in range(2)] == [4, 5]


def test_who_advertises_keys_of_others_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channel keys live for a run; party 0 is the first to reply, and has two of them listed."""
    deployment = deployed(tmp_path, names=FIVE, sizes=HELD)
    share, advertise, seen = Party.share, Party.advertise, dict[int, bytes]()

    def looking(party: Party, state: Any, inbox: Any, entropy: Any) -> Any:
        if party.number == 0:
            seen.update({peer: keys[:KEY_BYTES] for peer, keys in inbox.keys.items()})
        return share(party, state, inbox, entropy)

    def copying(party: Party, *given: Any) -> Any:
        state, sent = advertise(party, *given)
        if party.number == 0 and seen:
            keys = seen[1] + seen[2]
            signed = party.identity.sign(binding.advertisement(party.announced, 0, keys))
            sent = replace(sent, keys=keys + signed)
        return state, sent

    monkeypatch.setattr(Party, "share", looking)
    monkeypatch.setattr(Party, "advertise", copying)
    parties, query = federation(deployment, tmp_path / "out", troubled(deployment))
    assert [len(parties.sum(query).sizes) for _ in range(3)] == [5, 4, 4]


def test_sets_that_are_there_take_turns_the_latest_one_first() -> None:
    openings = Openings()
    for parties in ((0, 1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2, 3)):
        openings.note(b"one", parties)

    def asked_for(*there: int, others: bool = False, query: bytes = b"one") -> Any:
        return openings.to_repeat(query, there, others=others)

    assert [asked_for(0, 1, 2, 3) for _ in range(4)] == [
        (0, 1, 2),
        (1, 2, 3),
        (0, 1, 2, 3),
        (0, 1, 2),
    ]
    assert {asked_for(1, 2, 3, others=True) for _ in range(2)} == {(1, 2, 3), None}
    assert asked_for(0, 2, 3) is None
    assert asked_for(0, 1, 2, 3, query=b"another") is None
    openings.note(b"another", (0, 1, 2))
    assert asked_for(0, 1, 2, 3) is None
    assert asked_for(0, 1, 2, query=b"another") == (0, 1, 2)
