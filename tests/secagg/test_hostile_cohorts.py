"""A state machine plays a hostile server, with one corrupt party, against honest ones.

It keeps everything it ever saw, of two rounds, and sends any of it to anybody at any time. After
every move three promises are checked: an honest party never releases both kinds of share for one
peer, never reveals twice, never below the threshold; and in active mode nobody's seed and mask key
can both be opened.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fedpriv.secagg import Mode, Parameters, Party, rules
from fedpriv.secagg.errors import SecureAggregationError
from fedpriv.secagg.messages import Confirmations, Delivery, KeyList, Reveal, Survivors
from fedpriv.secagg.party_state import (
    Advertised,
    Answered,
    Confirmed,
    PartyState,
    Revealed,
    Shared,
)
from fedpriv.secagg.primitives import binding
from tests.secagg.cohort import Cohort, Dice, random_answers

CORRUPT = 4
HONEST = range(4)
EVERYONE = set(range(5))
ROUNDS = st.sampled_from([1, 1, 1, 2])
SUBSETS = st.sets(st.integers(0, 4))
PARTIES = st.sampled_from([True, True, True, False]).flatmap(
    lambda all_of_them: st.just(EVERYONE) if all_of_them else SUBSETS
)
STALE = st.sampled_from([True, True, False]).flatmap(
    lambda none: st.just(EVERYONE - EVERYONE) if none else SUBSETS
)
LIES: st.SearchStrategy[dict[int, set[int]]] = st.one_of(
    st.just({}),
    st.dictionaries(st.integers(0, 4), st.sets(st.integers(0, 4), min_size=4), max_size=3),
    st.dictionaries(st.integers(0, 4), st.sets(st.integers(0, 4), max_size=2), max_size=5),
    st.dictionaries(st.integers(0, 4), st.sets(st.integers(0, 5)), max_size=2),
)
SETTINGS = settings(max_examples=60, stateful_step_count=20)
UNTIL_CAUGHT = settings(SETTINGS, max_examples=300, phases=[Phase.generate])


class HostileServer(RuleBasedStateMachine):
    """Honest parties 0 to 3 and the corrupt party 4, whose keys the server knows."""

    mode = Mode.ACTIVE
    party_type: type[Party] = Party

    @initialize()
    def start(self) -> None:
        least = 4 if self.mode is Mode.ACTIVE else 3
        self.parameters = Parameters.plan(mode=self.mode, parties=5, minimum=least)
        assert (self.parameters.threshold, self.parameters.colluders) == (least, 1)
        self.cohort = Cohort(self.parameters)
        self.parties = {r: self._parties(r) for r in (1, 2)}
        self.answers = random_answers(range(5), 2, 32)
        self.states: dict[int, dict[int, PartyState]] = {1: {}, 2: {}}
        self.last: dict[int, PartyState] = {i: self.cohort.enrolled(i) for i in range(5)}
        # All that was ever sent, by whom (and to whom), with the round that it was sent in.
        self.keys: dict[int, dict[int, bytes]] = {i: {} for i in range(6)}
        self.sealed: dict[tuple[int, int], dict[int, bytes]] = {}
        self.signatures: dict[int, dict[int, bytes]] = {i: {} for i in range(6)}
        self.told: dict[tuple[int, int], tuple[int, ...]] = {}
        self.reveals: list[tuple[int, int, Reveal]] = []
        self.moves = 0

    def _parties(self, number: int) -> dict[int, Party]:
        made = self.cohort.parties(number)
        return {
            i: self.party_type(
                number=i,
                announced=p.announced,
                identity=p.identity,
                channel_key=p.channel_key,
            )
            for i, p in made.items()
        }

    def _bound(self, r: int, i: int) -> dict[str, Any]:
        return {"run": self.cohort.run, "round": r, "party": i}

    def _dice(self) -> Dice:
        self.moves += 1
        return Dice("hostile", self.moves)

    def _try(self, r: int, i: int, step: str, *arguments: Any) -> Any:
        """The message sent, or None if the party refused; the state moves only if it did not."""
        state = self.states[r].get(i, self.cohort.enrolled(i))
        try:
            state, message = getattr(self.parties[r][i], step)(state, *arguments)
        except SecureAggregationError:
            return None
        self.states[r][i] = state
        return message

    def _pick(self, seen: dict[int, bytes], r: int, *, stale: bool) -> bytes | None:
        """What was sent in this round, or, as a lie, in the other one."""
        return seen.get(3 - r if stale else r)

    @rule(r=ROUNDS, members=PARTIES, lies=LIES, stale=STALE)
    def proceed(
        self, r: int, members: set[int], lies: dict[int, set[int]], stale: set[int]
    ) -> None:
        """Send every member something of the kind that it waits for."""
        kinds: dict[type, Any] = {
            type(None): self.announce,
            Advertised: self.send_keys,
            Shared: self.deliver,
            Answered: self.ask_consent if self.mode is Mode.ACTIVE else self.ask_reveal,
            Confirmed: self.ask_reveal,
            Revealed: self.ask_reveal,
        }
        for i in sorted(members):
            kinds[type(self.states[r].get(i))](r, i, lies.get(i), stale)

    @rule(r=ROUNDS, members=PARTIES, lies=LIES, stale=STALE, kind=st.integers(0, 4))
    def disturb(
        self, r: int, members: set[int], lies: dict[int, set[int]], stale: set[int], kind: int
    ) -> None:
        """Send members something of any kind."""
        send = (self.announce, self.send_keys, self.deliver, self.ask_consent, self.ask_reveal)[
            kind
        ]
        for i in sorted(members):
            send(r, i, lies.get(i), stale)

    def announce(self, r: int, i: int, lie: set[int] | None, stale: set[int]) -> None:
        del lie, stale
        try:
            state, message = self.parties[r][i].advertise(self.last[i], self._dice())
        except SecureAggregationError:
            return
        self.states[r][i] = self.last[i] = state
        self.keys[i][r] = message.keys

    def send_keys(self, r: int, i: int, lie: set[int] | None, stale: set[int]) -> None:
        listed = set(range(5)) - {i} if lie is None else lie
        picked = {j: self._pick(self.keys[j], r, stale=j in stale) for j in listed}
        box = KeyList(**self._bound(r, i), keys={j: k for j, k in picked.items() if k})
        message = self._try(r, i, "share", box, self._dice())
        if message:
            for j, sealed in message.ciphertexts.items():
                self.sealed.setdefault((i, j), {})[r] = message.salt + sealed

    def deliver(self, r: int, i: int, lie: set[int] | None, stale: set[int]) -> None:
        shared = {j for (j, _), seen in self.sealed.items() if r in seen}
        sharers = shared | {i} if lie is None else lie
        picked = {
            j: self._pick(self.sealed.get((j, i), {}), r, stale=j in stale) for j in sharers - {i}
        }
        box = Delivery(
            **self._bound(r, i),
            sharers=tuple(sorted(sharers)),
            ciphertexts={j: c for j, c in picked.items() if c},
        )
        self._try(r, i, "answer", box, self.answers[i])

    def _survivors(self, r: int, i: int, lie: set[int] | None) -> Survivors:
        survivors = tuple(sorted(range(5) if lie is None else lie))
        return Survivors(**self._bound(r, i), survivors=survivors)

    def ask_consent(self, r: int, i: int, lie: set[int] | None, stale: set[int]) -> None:
        del stale
        box = self._survivors(r, i, lie)
        message = self._try(r, i, "confirm", box)
        if message:
            self.signatures[i][r] = message.signature
            self.told[r, i] = box.survivors

    def ask_reveal(self, r: int, i: int, lie: set[int] | None, stale: set[int]) -> None:
        if i == CORRUPT:
            return
        if self.mode is Mode.SEMI_HONEST:
            box = self._survivors(r, i, lie)
            self._record(r, i, box, box.survivors)
        elif (r, i) in self.told:
            signers = (set(self.told[r, i]) if lie is None else lie) - {CORRUPT}
            picked = {j: self._pick(self.signatures[j], r, stale=j in stale) for j in signers}
            corrupt = self.parties[r][CORRUPT]
            content = binding.consent(corrupt.announced, CORRUPT, self.told[r, i])
            signatures = {j: s for j, s in picked.items() if s}
            signatures[CORRUPT] = corrupt.identity.sign(content)
            request = Confirmations(**self._bound(r, i), signatures=signatures)
            self._record(r, i, request, self.told[r, i])

    def _record(self, r: int, i: int, box: Any, told: tuple[int, ...]) -> None:
        held = getattr(self.states[r].get(i), "held", {})
        message = self._try(r, i, "reveal", box)
        if message:
            self.reveals.append((r, i, message))
            self.told[r, i] = told
            released = set(message.seed_shares) | set(message.key_shares)
            assert released == set(held), "one share for each peer"

    @invariant()
    def no_party_releases_both_kinds(self) -> None:
        for _, _, message in getattr(self, "reveals", []):
            assert not set(message.seed_shares) & set(message.key_shares), "both kinds"

    @invariant()
    def no_party_reveals_twice(self) -> None:
        made = Counter((r, i) for r, i, _ in getattr(self, "reveals", []))
        assert not [key for key, times in made.items() if times > 1], "revealed twice"

    @invariant()
    def no_party_reveals_below_the_threshold(self) -> None:
        for r, i, _ in getattr(self, "reveals", []):
            assert len(self.told[r, i]) >= self.parameters.threshold, "below the threshold"
            assert i in self.told[r, i], "revealed although listed as dead"

    @invariant()
    def nobody_can_be_opened_completely(self) -> None:
        """The corrupt holder has a share of both kinds of everybody."""
        if self.mode is not Mode.ACTIVE:
            return
        threshold = self.parameters.threshold
        for r in (1, 2):
            revealed = [m for made, _, m in getattr(self, "reveals", []) if made == r]
            seeds = Counter(o for m in revealed for o in m.seed_shares)
            keys = Counter(o for m in revealed for o in m.key_shares)
            for owner in HONEST:
                both = min(seeds[owner], keys[owner]) + 1
                assert both < threshold, "both secrets open"
        agreed = {(r, self.told[r, i]) for r, i, _ in getattr(self, "reveals", [])}
        assert len({r for r, _ in agreed}) == len(agreed), "two sets of survivors opened"


class CuriousServer(HostileServer):
    mode = Mode.SEMI_HONEST


class Gullible(Party):
    """A twin that does not look at signatures: the machine must catch it."""

    def reveal(self, state: Any, inbox: Any) -> Any:
        kept, rules.require_consent = rules.require_consent, lambda *_: None
        try:
            return super().reveal(state, inbox)
        finally:
            rules.require_consent = kept


class Lax(Party):
    """A twin that does not count: the machine must catch it."""

    def reveal(self, state: Any, inbox: Any) -> Any:
        kept, rules.require_enough = rules.require_enough, lambda *_: None
        try:
            return super().reveal(state, inbox)
        finally:
            rules.require_enough = kept


class Forgetful(Party):
    """A twin that does not notice that it has revealed: the machine must catch it."""

    def reveal(self, state: Any, inbox: Any) -> Any:
        _, message = super().reveal(state, inbox)
        return state, message


class AgainstGullible(HostileServer):
    party_type = Gullible


class AgainstLax(CuriousServer):
    party_type = Lax


class AgainstForgetful(CuriousServer):
    party_type = Forgetful


@pytest.mark.parametrize("machine", [HostileServer, CuriousServer])
def test_no_server_makes_an_honest_party_break_its_promises(
    machine: type[HostileServer],
) -> None:
    reached: set[type] = set()

    class Watched(machine):  # type: ignore[valid-type, misc]
        def teardown(self) -> None:
            for states in getattr(self, "states", {}).values():
                reached.update(type(state) for state in states.values())

    run_state_machine_as_test(Watched, settings=SETTINGS)
    # The machine went through the whole protocol: otherwise its failure would prove nothing.
    waypoints = {Advertised, Shared, Answered, Revealed}
    assert waypoints | ({Confirmed} if machine.mode is Mode.ACTIVE else set()) <= reached


@pytest.mark.parametrize(
    ("machine", "promise"),
    [
        (AgainstGullible, "two sets of survivors opened"),
        (AgainstLax, "below the threshold"),
        (AgainstForgetful, "revealed twice"),
    ],
)
def test_the_hostile_server_has_teeth(machine: type[HostileServer], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        run_state_machine_as_test(machine, settings=UNTIL_CAUGHT)
