"""A server that says what it likes, at random: several places in one run, several rounds at once.

It announces smaller cohorts, leaves out sharers, asks some for another release or another query,
tells of two sets of survivors, and has one colluding party sign whatever it wants. Whatever it
does: no honest party gives two draws of a release, or helps to open one over two sets; no release
is opened twice; nobody's two secrets are opened in one round; nothing is answered unpaid.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.protocol.wire import Announce
from fedpriv.secagg.messages import (
    Advertise,
    Confirm,
    Confirmations,
    Delivery,
    KeyList,
    MaskedAnswer,
    Reveal,
    Share,
    Survivors,
)
from fedpriv.secagg.primitives import binding
from fedpriv.simulations.deploy.keys import read_identity
from tests.federation.deployed.villains import Villain, shared, shares_of_five

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedpriv.federation.queries.kinds import GradientQuery

PLACES = [letter * 32 for letter in (b"a", b"b", b"c")]
COLLUDER, THRESHOLD, ROUNDS = 4, 4, 24
Parties = tuple[int, ...]


class Walk:
    """What was said so far, and what came of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.deployment = shares_of_five(folder)
        self.villains = {run: Villain(self.deployment, run=run) for run in PLACES}
        self.query = shared(self.villains[PLACES[0]])
        home = self.deployment.home(self.deployment.names[COLLUDER])
        self.colluding = read_identity(home / "identity.key")
        self.any = random.Random(seed)  # noqa: S311
        self.release = 0
        self.numbers: dict[bytes, int] = defaultdict(int)
        self.drawn: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.helped: dict[int, dict[Parties, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.seeds: dict[tuple[bytes, int, int], set[int]] = defaultdict(set)
        self.keys: dict[tuple[bytes, int, int], set[int]] = defaultdict(set)

    def chance(self, of: float) -> bool:
        return self.any.random() < of

    def asked(self) -> GradientQuery:
        """A query for the present release or one before, now and then another one for it."""
        self.release += self.chance(0.12)
        point = np.full(3, 0.2 if self.chance(0.1) else 0.1)
        return replace(self.query, round=max(0, self.release - self.chance(0.15)), theta=point)

    def round(self, run: bytes) -> Iterator[None]:
        """One round of masks in one place, with a pause wherever others may go on."""
        villain, everybody = self.villains[run], range(5)
        self.numbers[run] += 1
        place: dict[str, Any] = {"run": run, "round": self.numbers[run]}
        small = tuple(sorted(self.any.sample(everybody, 4)))
        cohort = small if self.chance(0.1) else tuple(everybody)
        villain.joined()
        invited = {p: Announce(**place, party=p, cohort=cohort, minimum=THRESHOLD) for p in cohort}
        known = {m.party: m.keys for m in villain.tell(invited) if isinstance(m, Advertise)}
        yield
        lists = {
            p: KeyList(**place, party=p, keys={q: k for q, k in known.items() if q != p})
            for p in known
        }
        sent = {m.party: m for m in villain.tell(lists) if isinstance(m, Share)}
        yield
        answered: dict[int, GradientQuery] = {}
        usual = self.asked()
        for p in self.any.sample(sorted(sent), len(sent)):
            fewer = {*self.any.sample(sorted(sent), min(4, len(sent))), p}
            sharers = tuple(sorted(sent if self.chance(0.85) else fewer))
            sealed = {q: sent[q].salt + sent[q].ciphertexts[p] for q in sharers if q != p}
            box = Delivery(**place, party=p, sharers=sharers, ciphertexts=sealed)
            query = usual if self.chance(0.9) else self.asked()
            for message in villain.ask(p, box, query=query):
                assert isinstance(message, MaskedAnswer)
                answered[p] = query
                given = villain.journal(p).given(query.run)
                assert given is not None
                self.drawn[p, query.round].add(given.vector.tobytes())
            if self.chance(0.15):
                yield
        yield
        yield from self.opened(run, cohort, answered)

    def opened(
        self, run: bytes, cohort: Parties, answered: dict[int, GradientQuery]
    ) -> Iterator[None]:
        """Tell two halves of two sets of survivors, and have them reveal what they will."""
        villain, number = self.villains[run], self.numbers[run]
        place: dict[str, Any] = {"run": run, "round": number}
        sets = sorted({tuple(sorted(answered)), *combinations(sorted(answered), 4)})
        told = self.any.sample(sets, min(len(sets), 2))
        signed: dict[Parties, dict[int, bytes]] = defaultdict(dict)
        chosen: dict[int, Parties] = {}
        for p in answered:
            for survivors in self.any.sample(told, len(told)):
                box = Survivors(**place, party=p, survivors=survivors)
                for message in villain.ask(p, box):
                    assert isinstance(message, Confirm)
                    assert p not in chosen
                    signed[survivors][p], chosen[p] = message.signature, survivors
            if self.chance(0.2):
                yield
        announced = replace(villain.round(THRESHOLD), number=number)
        for p, survivors in chosen.items():
            signatures = dict(signed[survivors])
            if COLLUDER in survivors and len(cohort) == 5:
                content = binding.consent(announced, COLLUDER, survivors)
                signatures[COLLUDER] = self.colluding.sign(content)
            shown = Confirmations(**place, party=p, signatures=signatures)
            for message in villain.ask(p, shown):
                assert isinstance(message, Reveal)
                self.helped[answered[p].round][survivors].add(p)
                for owner in message.seed_shares:
                    self.seeds[run, number, owner].add(p)
                for owner in message.key_shares:
                    self.keys[run, number, owner].add(p)
            if self.chance(0.2):
                yield

    def require_sound(self) -> None:
        """What holds whatever was said."""

        def enough(parties: set[int]) -> bool:
            return len(parties - {COLLUDER}) + 1 >= THRESHOLD

        assert all(len(vectors) == 1 for vectors in self.drawn.values())
        for helped in self.helped.values():
            assert sum(enough(parties) for parties in helped.values()) <= 1
            honest = [p for parties in helped.values() for p in parties if p != COLLUDER]
            assert len(honest) == len(set(honest))
        assert not [at for at in self.seeds if enough(self.seeds[at]) and enough(self.keys[at])]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_a_server_says_gets_it_more_than_one_sum(seed: int, tmp_path: Path) -> None:
    walk = Walk(tmp_path, seed)
    rounds = [walk.round(walk.any.choice(PLACES)) for _ in range(ROUNDS)]
    while rounds:
        going = walk.any.choice(rounds[:3])
        if next(going, rounds) is rounds:
            rounds.remove(going)
        walk.require_sound()
    assert walk.helped  # or nothing was tried
    for number, name in enumerate(walk.deployment.names):
        paid = walk.deployment.reserved(name)
        assert len(paid) == len(set(paid))
        answered = {release for party, release in walk.drawn if party == number}
        assert answered <= {release for _, release in paid}
