"""A node of a deployment: the party that its own file describes, in the run that its server states.

From the run config a party takes the experiment, which its server must have signed, as a claim to
be checked; everything that protects it comes from its own disk. The seed of an experiment is for
simulations: nothing here, and nothing behind it, takes one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv._toml import parse_toml
from fedpriv._validate import require_choice
from fedpriv.data import Files, require_releasable
from fedpriv.federation.deployed.asked import forms_of
from fedpriv.federation.deployed.engagement import Engagement
from fedpriv.federation.deployed.errands import Errands
from fedpriv.federation.deployed.host import DeployedHost
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.deployed.policy import read_party
from fedpriv.federation.deployed.signed import SignedHost
from fedpriv.federation.deployed.statements.attesting import People, Signatory
from fedpriv.federation.party.host import Keys
from fedpriv.federation.protocol.instruction import Place
from fedpriv.federation.strategy.joint import HESSIANS_SEEN, JointStrategy
from fedpriv.learning.losses import Logistic
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.deploy.certificates import fingerprint, read_certificate
from fedpriv.simulations.deploy.keys import identity_public, read_identity, too_open
from fedpriv.simulations.deploy.members.epochs import accepted_roster
from fedpriv.simulations.deploy.members.roster import identity_fingerprint
from fedpriv.simulations.deploy.run.jobs.statement_file import members
from fedpriv.simulations.deploy.run.public_facts import (
    ENGINE,
    bounds_of,
    magnitudes_of,
    public_task,
)
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.catalogue import (
    DESCRIBE,
    catalogue,
    checked,
    strategy_info,
)
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.experiment.named_files.guests import require_no_guest
from fedpriv.simulations.run.identity import experiment_digest
from fedpriv.simulations.run.statement.statements import deployed_words
from fedpriv.strategies import build
from fedpriv.strategies.common.describing import DescribeOptions
from fedpriv.strategies.description import released_words

MODELS = "models"
"""The folder of models that a party was handed, beside its state."""

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.data import Schema
    from fedpriv.federation.deployed.policy import PartyFile
    from fedpriv.federation.task import Task
    from fedpriv.simulations.deploy.members.roster import Roster
    from fedpriv.simulations.experiment.file import Experiment


def open_signed(
    party: str, config: str, *, flower: int, node: int, files: Files | None = None
) -> SignedHost:
    """The party of the file ``party``, behind the signature of its server.

    Args:
        party: Where the party's file is.
        config: The text of the run's experiment, as the server states it: not looked into until
            the server has signed it.
        flower: Flower's number of the run.
        node: Flower's number of this node.
        files: Where schema and records come from; the disk, if not given.

    Raises:
        ValueError: The file, a key, the roster or the certificate is not as it must be.
    """
    own = _Own.read(Path(party))
    return SignedHost(
        place=Place(
            roster=own.roster.digest,
            flower=flower,
            node=node,
            party=own.number,
            config=sha256(config.encode()).digest(),
        ),
        server=own.roster.server,
        identity=own.identity,
        journal=Journal(own.file.state),
        max_seconds=own.file.policy.max_seconds,
        open_party=partial(_opened, own, config, files or Files()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """What a party has on its own disk, held against each other.

    Attributes:
        file: Its own file.
        roster: Everybody's public keys.
        identity: Its private key, which the roster pins.
    """

    file: PartyFile
    roster: Roster
    identity: Ed25519PrivateKey

    @classmethod
    def read(cls, path: Path) -> _Own:
        file = read_party(path)
        names = {f"policy.strategies[{i}]": name for i, name in enumerate(file.policy.strategies)}
        require_choice((*catalogue(), DESCRIBE), **names)
        roster = accepted_roster(file)
        _require_server(file, roster)
        return cls(file=file, roster=roster, identity=_identity(file, roster))

    @property
    def number(self) -> int:
        """Which party it is."""
        return self.roster.number(self.file.name)


def _opened(own: _Own, config: str, files: Files) -> DeployedHost:
    """The party in a run."""
    file, roster, number = own.file, own.roster, own.number
    schema = files.schema(file.schema)
    require_releasable(schema, deployed=True)
    experiment = _experiment(config)
    engagement = _engagement(experiment, schema, roster)
    journal = Journal(file.state)
    party = DeployedParty(
        file,
        number=number,
        size=roster.sizes[number],
        engagement=engagement,
        journal=journal,
        files=files,
    )
    return DeployedHost(
        number=number,
        party=party,
        protection=engagement.protection,
        keys=Keys(identity=own.identity, roster=roster.identities),
        store=journal,
        engagement=engagement,
        policy=file.policy,
        errands=Errands(
            party=party,
            journal=journal,
            models=file.state.parent / MODELS,
            signatory=Signatory(
                number=number,
                name=file.name,
                identity=own.identity,
                roster=roster.digest.hex(),
                members=members(roster),
                server=roster.server,
                run=engagement.run,
                protection=engagement.protection,
                experiment=sha256(config.encode()).hexdigest(),
                budget=engagement.budget,
                sharing=engagement.sharing,
                people=People(
                    records_per_person=experiment.data.records_per_person,
                    person_records=experiment.persons.records,
                    person_parties=experiment.persons.parties,
                    records=sum(roster.sizes),
                    smallest_party=min(roster.sizes),
                ),
                told=_told(experiment, engagement),
                noise=partial(_noise, experiment, engagement),
            ),
            shown=engagement.shown,
        ),
    )


def _experiment(config: str) -> Experiment:
    values = parse_toml(config, "the experiment of the run")
    require_no_guest(values)  # before anything that it names is looked for
    experiment = checked(parse_experiment(values))
    if experiment.run.engine != ENGINE:
        raise ValueError(
            f"run.engine must be {ENGINE!r} for a deployed party, got {experiment.run.engine!r}."
        )
    return experiment


def _engagement(experiment: Experiment, schema: Schema, roster: Roster) -> Engagement:
    privacy, sharing = experiment.privacy, None
    by_party = experiment.describing and bool(experiment.strategy.options.get("by_party"))
    if privacy.noise_at == "parties" and not by_party:  # where each adds all of its own part
        sharing = Sharing(
            parties=len(roster.sizes),
            dropout=experiment.run.dropout,
            colluding=privacy.colluding,
            law=privacy.share_law,
        )
    task = public_task(experiment, schema, sizes=roster.sizes)
    joint, hessian = _joint(experiment, task)
    info = strategy_info(experiment.strategy.name, experiment.guests)
    return Engagement(
        strategy=experiment.strategy.name,
        forms=forms_of(info.asks, joint=joint, hessian=hessian, by_party=by_party),
        magnitudes=magnitudes_of(experiment) if experiment.describing else (),
        run=experiment.run_name,
        task=task,
        bounds=bounds_of(experiment),
        protection=protection(experiment),
        roster=roster.digest,
        budget=privacy.budget,
        sharing=sharing,
        shown=bytes.fromhex(experiment_digest(experiment)),
    )


def _told(experiment: Experiment, engagement: Engagement) -> dict[str, dict[str, Any]]:
    """What the experiment decides of a statement, in words, and what its server sees on the way."""
    info = strategy_info(experiment.strategy.name, experiment.guests)
    seen = ""
    match _joint(experiment, engagement.task):
        case (True, True):
            seen = HESSIANS_SEEN
        case (True, False):
            seen = JointStrategy.server_also_sees
    return {
        "run": deployed_words(experiment, info, loss=engagement.task.loss),
        "plan": {"strategy": experiment.strategy.name, **_released(experiment)},
        "trust": {"server_also_sees": seen},
    }


def _released(experiment: Experiment) -> dict[str, str]:
    """What a description releases, which its options decide: of whom, and with which bounds."""
    if not experiment.describing:
        return {}
    return {"released": released_words(DescribeOptions(**experiment.strategy.options))}


def _joint(experiment: Experiment, task: Task) -> tuple[bool, bool]:
    """Whether a run fits one model to all records together, and whether with a Hessian.

    That is all that makes `JointStrategy`: objective perturbation, ``fit = "joint"``, and a
    logistic fit with intervals.
    """
    name, options = experiment.strategy.name, experiment.strategy.options
    hessian = name == "inference" and isinstance(task.loss, Logistic)
    joint = name == "objective-perturbation" or options.get("fit") == "joint"
    return joint or hessian, hessian


def _noise(experiment: Experiment, engagement: Engagement) -> list[dict[str, Any]]:
    """The noise of a run whose releases are all planned, as its plan is written."""
    privacy = experiment.privacy
    strategy = build(
        strategy_info(experiment.strategy.name, experiment.guests),
        task=engagement.task,
        budget=privacy.budget,
        adjacency=privacy.adjacency,
        unit=privacy.unit,
        options=experiment.strategy.options,
        noise=lambda _round: RandomStream.from_os(),
        run=engagement.run,
        noise_at=privacy.noise_at,
        dropout=experiment.run.dropout,
        colluding=privacy.colluding,
        share_law=privacy.share_law,
    )
    planned = {} if strategy.plan is None else strategy.plan.to_dict()
    noise: list[dict[str, Any]] = json.loads(canonical_json(planned.get("mechanisms", [])))
    return noise


def _require_server(file: PartyFile, roster: Roster) -> None:
    """Certificate and roster must have the authority and the server that the party's policy names.

    Whether the SuperNode was started with that certificate a ClientApp cannot see.
    """
    pinned = fingerprint(read_certificate(file.certificate))
    if pinned != file.policy.server:
        raise ValueError(
            f"policy.server must be the fingerprint of {str(file.certificate)!r}, {pinned}, got "
            f"{file.policy.server!r}. Find out from the federation which one is right."
        )
    identity = identity_fingerprint(roster.server)
    if identity != file.policy.server_identity:
        raise ValueError(
            f"policy.server_identity must be the fingerprint of the server in the roster, "
            f"{identity}, got {file.policy.server_identity!r}. Find out from the other parties "
            "which one is right."
        )


def _identity(file: PartyFile, roster: Roster) -> Ed25519PrivateKey:
    if problem := too_open(file.identity):
        raise ValueError(f"party.identity must be readable by its owner alone: {problem}")
    key = read_identity(file.identity)
    if identity_public(key) != roster.identities[roster.number(file.name)]:
        raise ValueError(
            f"party.identity must be the private key of {file.name!r} in the roster, and is not."
        )
    return key
