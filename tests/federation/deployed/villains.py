"""A server that lies to deployed parties, the peer beside it, and deployments to lie to."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.protocol.wire import Announce, Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.secagg import FixedPoint, Round, Server
from fedpriv.secagg.errors import SecureAggregationError
from fedpriv.secagg.messages import MaskedAnswer, Reveal, Survivors
from fedpriv.secagg.party_state import Answered as AnsweredState
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.shamir import SHARE_BYTES
from fedpriv.secagg.recovery import Puzzle, recover
from fedpriv.secagg.server_state import AnswersCollected
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from tests.federation.deployed.deployments import FIVE, HELD, Deployment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fedpriv.federation.deployed.host import DeployedHost
    from fedpriv.secagg.messages import Message
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.round import Bound
    from fedpriv.secagg.server_state import SharesCollected

RUN = b"v" * 32


@dataclass
class Villain:
    """A server that says to each party what it likes, and reads what comes back.

    ``beside`` and ``after`` go into every request, before and after what is asked.
    """

    deployment: Deployment
    run: bytes = RUN
    beside: tuple[Bound, ...] = ()
    after: tuple[Bound, ...] = ()
    refusals: list[str] = field(default_factory=list)

    @property
    def everybody(self) -> range:
        return range(len(self.deployment.names))

    def host(self, number: int, config: str | None = None) -> DeployedHost:
        found: Any = self.deployment.host(self.deployment.names[number], config)
        return found  # type: ignore[no-any-return]

    def ask(
        self,
        number: int,
        *records: Bound,
        query: GradientQuery | bytes = b"",
        config: str | None = None,
    ) -> tuple[Bound, ...]:
        data = query if isinstance(query, bytes) else codec.to_bytes(query)
        request = Request(messages=(*self.beside, *records, *self.after), query=data).to_bytes()
        try:
            reply = Reply.from_bytes(self.host(number, config).handle(request))
        except SecureAggregationError as error:  # a worker turns it into a failed task
            self.refusals.append(type(error).__name__)
            return ()
        if reply.refusal:
            self.refusals.append(reply.refusal)
        return reply.messages

    def journal(self, number: int) -> Journal:
        return Journal(self.deployment.home(self.deployment.names[number]) / "state")

    def tell(self, boxes: Mapping[int, Bound], **options: Any) -> list[Message]:
        found: list[Any] = []
        for number, box in boxes.items():
            found.extend(self.ask(number, box, **options))
        return found

    def joined(self, **options: Any) -> list[Message]:
        return self.tell(
            {number: Join(run=self.run, round=0, party=0) for number in self.everybody}, **options
        )

    def round(self, minimum: int) -> Round:
        config = parse_experiment(tomllib.loads(self.deployment.config()))
        roster = self.deployment.roster.identities
        parameters = protection(config).parameters(len(roster), roster=len(roster), minimum=minimum)
        return Round(
            run=self.run,
            number=1,
            cohort=tuple(self.everybody),
            roster=roster,
            parameters=parameters,
        )

    def answered(self, announced: Round, query: GradientQuery) -> Answered:
        """A round, honestly, up to the masked answers of everybody."""
        server, minimum = Server(announced=announced), announced.parameters.minimum
        keys, lists = server.collect_keys(
            self.tell(
                {
                    number: Announce(
                        run=self.run,
                        round=1,
                        party=number,
                        cohort=announced.cohort,
                        minimum=minimum,
                    )
                    for number in self.everybody
                }
            )
        )
        shares, deliveries = server.collect_shares(keys, self.tell(lists))
        answers = self.tell(deliveries, query=query)
        return Answered(
            server=server,
            shares=shares,
            vectors={a.party: a.vector for a in answers if isinstance(a, MaskedAnswer)},
            query=query,
        )

    def survivors(self, number: int, survivors: Sequence[int]) -> Survivors:
        return Survivors(run=self.run, round=1, party=number, survivors=tuple(survivors))


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Masked answers of a round, one by one, as an honest server never keeps them."""

    server: Server
    shares: SharesCollected
    vectors: Mapping[int, Ring]
    query: GradientQuery

    def opened(self, reveals: Sequence[Message], wanted: Sequence[int]) -> Ring:
        """The sum over ``wanted`` alone, from whatever shares were revealed."""
        state = AnswersCollected(
            shares=self.shares,
            survivors=frozenset(wanted),
            masked=np.add.reduce([self.vectors[party] for party in wanted]),
            about=codec.to_bytes(self.query),
            rejected=(),
        )
        shares: dict[int, dict[int, bytes]] = {owner: {} for owner in self.vectors}
        for message in reveals:
            assert isinstance(message, Reveal)
            for owner, share in message.seed_shares.items():
                if owner in wanted:
                    shares[owner][message.party] = share
            for owner, share in message.key_shares.items():
                if owner not in wanted:
                    shares[owner][message.party] = share
        puzzles = [
            Puzzle(owner=owner, shares=parts, fits=self.server._recogniser(state, owner))
            for owner, parts in shares.items()
        ]
        threshold = self.server.announced.parameters.threshold
        return self.server._unmasked(state, recover(puzzles, threshold)[0])


def shares_of_five(folder: Path, *, colluding: float = 0.1, **policy: Any) -> Deployment:
    """One of them may be missing; by default, another may collude with the server."""
    folder.chmod(0o700)
    return Deployment(
        folder=folder,
        names=FIVE,
        sizes=HELD,
        policy={"noise_at": "parties", "min_parties": 4, "colluding": colluding, **policy},
        experiment={
            "privacy": {"noise_at": "parties", "colluding": colluding},
            "run": {"least_parties": 4, "secure_aggregation": "active", "dropout": 0.2},
        },
    )


def clear_of_three(folder: Path) -> Deployment:
    """Parties that answer in the clear: what is tried here, masks do not hide."""
    folder.chmod(0o700)
    return Deployment(
        folder=folder,
        policy={"secure_aggregation": "off"},
        experiment={"run": {"secure_aggregation": "off"}},
    )


def shared(villain: Villain, *, minimum: int = 4, **changes: Any) -> GradientQuery:
    """A query whose noise the parties bring."""
    engagement = villain.host(0).engagement
    query = GradientQuery(
        run=engagement.run,
        round=0,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=np.full(3, 0.1),
        clip_norm=1.0,
        share=NoiseShare(law="skellam", parameter=1e16, minimum=minimum, colluders=1),
    )
    query = replace(query, **changes)
    mechanism = share_mechanism(query, engagement.task)
    assert mechanism is not None
    return replace(query, event=mechanism.event())


COLLUDER = 4


def colluding(villain: Villain, announced: Round, survivors: Sequence[int]) -> tuple[bytes, Reveal]:
    """The signature of the colluder under any set, and its shares as if that had been opened."""
    keys, journal = villain.host(COLLUDER).keys, villain.journal(COLLUDER)
    assert keys is not None
    with journal.held():
        _, state = journal.memory(RUN).state(1)
    assert isinstance(state, AnsweredState)
    reveal = Reveal(
        run=RUN,
        round=1,
        party=COLLUDER,
        seed_shares={p: state.held[p][:SHARE_BYTES] for p in survivors},
        key_shares={p: s[SHARE_BYTES:] for p, s in state.held.items() if p not in survivors},
    )
    content = binding.consent(announced, COLLUDER, tuple(survivors))
    return keys.identity.sign(content), reveal
