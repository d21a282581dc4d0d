"""Private evaluation of a deployed model: noisy counts of right answers on held-out records.

A job on the directory of a run that has ended. Every party whose policy names the query kind
``accuracy`` counts on the records of its own ``party.test``, never on those that it learned from;
the counts go through the same secure sum, with noise at the server or in shares, as in the run. It
is a release like any other: charged in the ledger of the federation and in that of every party.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._toml import read_toml
from fedpriv.federation.deployed.asked import EVALUATION as MARK
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.deploy.federation_budget import ledger_path
from fedpriv.simulations.deploy.folders import ServerFolder
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.run.closed import EVALUATION
from fedpriv.simulations.deploy.run.lock import server_of
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import PATIENCE, deployed_federation, stated_plan
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.attendance import least_parties
from fedpriv.simulations.run.files import PRIVATE, private, read_json, write_json
from fedpriv.simulations.run.ledgers import mark_of, require_known, require_room
from fedpriv.simulations.run.prepare import train
from fedpriv.strategies import accuracy
from fedpriv.strategies.common.building import Setup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.courier import Patience
    from fedpriv.federation.engines.seals import ServerSeal
    from fedpriv.federation.strategy.base import Run
    from fedpriv.simulations.run.prepare import Prepared
    from fedpriv.strategies.accuracy import Accuracy

JOB = "evaluate"
"""What the run config calls it."""
_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an evaluation may cost, fixed when it is asked for.

    Attributes:
        run: Its name in all ledgers: that of the run, and a random part.
        epsilon: ε of the release.
        delta: δ of the release.
        roster: The digest of the roster that it began under: parties answer it under no other.
    """

    run: str
    epsilon: float
    delta: float
    roster: str


def propose(
    directory: Path,
    folder: ServerFolder,
    *,
    epsilon: float,
    delta: float | None = None,
    anew: bool = False,
) -> Terms:
    """Check that a run can be evaluated and paid for, and write down the terms.

    An evaluation with the same terms that was begun and not finished, in the same epoch of the
    roster, is taken up again, and charged once.

    Args:
        directory: Of the run.
        folder: The server's.
        epsilon: What the evaluation may cost.
        delta: Its δ; that of the run, if not given.
        anew: Whether one with other terms, which was begun and not finished, is given up: what it
            was charged stays charged.

    Raises:
        ValueError: The run has no result, an evaluation of it goes on or is not finished, or the
            ledger of the federation has no room for it.
    """
    if (process := server_of(directory)) is not None:
        raise ValueError(f"{str(directory)!r} is at work already, as process {process}.")
    if not (directory / "result.json").exists():
        raise ValueError(f"{str(directory)!r} must be a run that has ended: it has no result.json.")
    prepared = _prepared(directory, folder)
    share = prepared.experiment.privacy.delta if delta is None else delta
    begun, roster = _begun(directory), read_roster(folder.roster).digest.hex()
    if begun is not None and (begun.epsilon, begun.delta, begun.roster) == (epsilon, share, roster):
        return begun
    name = read_json(private(directory) / "run.json")["run"]
    run = f"{name}{MARK}{secrets.token_hex(_TOKEN_BYTES)}"
    terms = Terms(run=run, epsilon=epsilon, delta=share, roster=roster)
    plan = _strategy(prepared, terms, directory).plan
    with Ledger.open(ledger_path(folder), read_only=True) as ledger:
        _require_latest(ledger, directory)
        if begun is not None and begun.roster == roster and ledger.began(begun.run) and not anew:
            raise ValueError(
                f"an evaluation with epsilon = {begun.epsilon:g} and delta = {begun.delta:g} was "
                "paid for and not finished: the same numbers take it up again. With --anew it is "
                "given up, and stays charged."
            )
        require_room(ledger, plan, run=run)
    write_json(private(directory) / EVALUATION, asdict(terms))
    return terms


def carry_out(
    run_config: Mapping[str, Any], grid: Grid, *, seal: ServerSeal, patience: Patience = PATIENCE
) -> dict[str, Any]:
    """Evaluate on the nodes of a grid, as was proposed; the result, which is in a file then."""
    directory = Path(str(run_config["output"]))
    folder = ServerFolder(Path(str(run_config["roster"])).parent)
    terms = _begun(directory)
    roster = read_roster(folder.roster)
    if terms is None or terms.roster != roster.digest.hex():
        raise ValueError(
            f"no evaluation was asked for in {str(directory)!r}, or the roster has changed since."
        )
    prepared = _prepared(directory, folder)
    strategy = _strategy(prepared, terms, directory)
    stated = prepared.experiment.privacy
    with Ledger.open(ledger_path(folder), adjacency=stated.adjacency, unit=stated.unit) as ledger:
        _require_latest(ledger, directory)
        require_room(ledger, strategy.plan, run=terms.run)
        strategy.attach(_run(terms, ledger))
        plan = stated_plan(strategy, run=terms.run)
        parties = deployed_federation(
            prepared, roster, grid, seal=seal, patience=patience, plan=plan
        )
        if ledger.began(terms.run) is None:
            # Before anything is paid for: perhaps too few are there.
            parties.gather(least=least_parties(strategy))
        train(strategy, parties, lambda _query, _answer: True)
        rows, head = mark_of(ledger)
        result = _result(strategy, terms, directory)
        result |= {"ledger_rows": rows, "ledger_head": head}
    write_json(result_path(directory, terms), result)
    (directory / PRIVATE / EVALUATION).unlink()
    return result


def result_path(directory: Path, terms: Terms) -> Path:
    """Where the result of an evaluation is, or will be."""
    return directory / f"evaluation-{terms.run.rpartition('-')[2]}.json"


def in_words(result: Mapping[str, Any]) -> list[str]:
    """The result for people; bounds are rounded up."""
    share = "unknown" if result["accuracy"] is None else f"{100 * result['accuracy']:.2f} %"
    return [
        (
            f"accuracy {share}, between {100 * result['low']:.2f} and {100 * result['high']:.2f} % "
            f"with a confidence of {100 * result['confidence']:g} % over the noise, on about "
            f"{max(0.0, result['records']):.0f} held-out records"
        ),
        result["statement"],
    ]


def _begun(directory: Path) -> Terms | None:
    path = directory / PRIVATE / EVALUATION
    return Terms(**read_json(path)) if path.exists() else None


def _require_latest(ledger: Ledger, directory: Path) -> None:
    """Refuse a ledger that does not know the run: an older copy, or another one."""
    stated = read_json(directory / "statement.json")["ledger"]
    require_known(ledger, rows=stated["rows"], head=stated["head"])


def _prepared(directory: Path, folder: ServerFolder) -> Prepared:
    experiment = parse_experiment(read_toml(directory / "config.toml", "experiment"))
    return prepare_deployed(experiment, sizes=read_roster(folder.roster).sizes)


def _run(terms: Terms, ledger: Ledger | None = None) -> Run:
    from fedpriv.federation.strategy.base import Run

    return Run(
        name=terms.run, noise=lambda _round: RandomStream.from_os(), ledger=ledger, release=True
    )


def _strategy(prepared: Prepared, terms: Terms, directory: Path) -> Accuracy:
    privacy, task = prepared.experiment.privacy, prepared.task
    sharing = None
    if privacy.noise_at == "parties":
        sharing = Sharing(
            parties=task.parties,
            dropout=prepared.experiment.run.dropout,
            colluding=privacy.colluding,
            law="auto" if privacy.share_law == "polya" else privacy.share_law,
        )
    setup = Setup(
        task=task,
        adjacency=Adjacency(privacy.adjacency),
        unit=Unit(privacy.unit),
        run=_run(terms),
        allowance=Budget(epsilon=terms.epsilon, delta=terms.delta),
        sharing=sharing,
    )
    if not (directory / "model.npz").exists():
        raise ValueError(f"the run in {str(directory)!r} released no model to evaluate.")
    with np.load(directory / "model.npz") as arrays:
        theta = np.array(arrays["theta"], dtype=np.float64)
    return accuracy.build(setup, theta)


def _result(strategy: Accuracy, terms: Terms, directory: Path) -> dict[str, Any]:
    """What is published; it follows from the noisy counts and from public facts alone."""
    plan = strategy.plan
    if plan is None or strategy.counts is None:
        raise RuntimeError("the evaluation was cut short: nothing was released.")
    (mechanism,) = plan.mechanisms
    shared = isinstance(mechanism, SharedNoise)
    # With shares, all parties may have brought one: the widest that the noise can be.
    stddev = mechanism.stddev_of(plan.parties) if shared else mechanism.noise_stddev  # type: ignore[attr-defined]
    found = accuracy.estimate(strategy.counts, noise_stddev=stddev)
    epsilon, delta = rounded_up(plan.epsilon), rounded_up(plan.budget.delta)
    return {
        **asdict(found),
        "run": terms.run,
        "evaluates": directory.name,
        "epsilon": plan.epsilon,
        "delta": plan.budget.delta,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit.value,
        "noise_at": plan.noise_at,
        "parties": plan.parties,
        "statement": (
            f"evaluation {terms.run}: {plan.released}; (epsilon, delta) = ({epsilon}, {delta}) for "
            f"one held-out record ({plan.adjacency.value}), by {plan.method}; noise by the "
            f"{'parties' if shared else 'server'}; the accuracy is computed from the counts alone"
        ),
    }
