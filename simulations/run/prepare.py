"""One run of one experiment: prepare, build, train."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedpriv.federation.engines.ideal import IdealFederation
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import LocalTrainingQuery
from fedpriv.federation.strategy.joint import JointStrategy
from fedpriv.federation.task import HEADROOM, PersonBounds, Task
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.experiment.catalogue import PARTY_ALONE, checked, strategy_info
from fedpriv.simulations.experiment.models import learner, placed
from fedpriv.simulations.experiment.named_files.guest_code import blamed_while_it_runs
from fedpriv.simulations.experiment.records.data import party_records
from fedpriv.simulations.run.metrics.evaluation import Evaluator
from fedpriv.simulations.run.release_rules import require_every_label
from fedpriv.simulations.run.start import Beginning, beginning
from fedpriv.simulations.run.statement.coefficients import require_units
from fedpriv.simulations.run.streams import streams
from fedpriv.strategies.common.inference.linear_inference import LinearInference
from fedpriv.strategies.description import Description

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.data import Dataset, PartitionedDataset
    from fedpriv.federation.federation import Federation, Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.records.stand_in import StandIn
    from fedpriv.strategies import StrategyInfo


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """An experiment with its records loaded and its options checked: ready to run.

    Attributes:
        experiment: with every option filled in.
        info: of its strategy.
        data: who holds which records.
        task: the public facts of the learning problem.
        evaluator: of models, on the common test set.
        begun: where it begins, and which layers stay as they are.
        own_test: whether the test records were set apart by their source, and so can be public;
            those that a hash draws from a table are protected like all others.
    """

    experiment: Experiment
    info: StrategyInfo
    data: PartitionedDataset
    task: Task
    evaluator: Evaluator
    begun: Beginning
    own_test: bool = True

    @property
    def noise_free(self) -> bool:
        """Whether a strategy that has noise runs without, for study."""
        return self.info.private and self.experiment.privacy.noise_free

    @property
    def run(self) -> str:
        """The name of the run, if it is a simulation: the same experiment is the same run."""
        return self.experiment.run_name


def prepare(
    experiment: Experiment, *, keep: bool = False, stand_in: StandIn | None = None
) -> Prepared:
    """Check the experiment and load its records; ``keep`` them for the next run on them.

    An audit gives a ``stand_in`` for them.
    """
    resolved = checked(experiment)
    if resolved.run.engine == "deployment":
        raise ValueError(
            "engine 'deployment' runs on a SuperLink, with parties on machines of their own: see "
            "docs/deployment.md."
        )
    info = strategy_info(resolved.strategy.name, resolved.guests)
    persons = person_bounds(resolved, info)
    holding = party_records(resolved, keep=keep, persons=persons, stand_in=stand_in)
    data = holding.data
    if resolved.describing:
        from fedpriv.simulations.describe.prepare import described

        return described(resolved, info, holding, persons)
    model, loss = learner(
        resolved.model,
        data.dataset,
        headroom=most_members(resolved, info, persons, headroom=holding.headroom),
        minimises=info.minimises,
        seed=resolved.run.seed,
        pins=resolved.guests,
    )
    begun = beginning(resolved, model, data.dataset)
    trains = any(form.startswith(LocalTrainingQuery.kind) for form in info.asks)
    begun = replace(begun, model=placed(begun.model, resolved.run.device, trains=trains))
    task = Task(
        model=begun.model,
        loss=loss,
        regulariser=resolved.model.regulariser,
        feature_bound=resolved.data.feature_norm,
        sizes=holding.sizes,
        headroom=holding.headroom,
        in_place=holding.in_place,
        persons=persons,
        start=begun.theta,
        radius=resolved.model.radius,
    )
    prepared = Prepared(
        experiment=resolved,
        info=info,
        data=data,
        task=task,
        evaluator=Evaluator.of(begun.model, loss, data.dataset.test, unit=label_unit(data.dataset)),
        begun=begun,
        own_test=holding.own_test,
    )
    return with_public_table(prepared)


def with_public_table(prepared: Prepared) -> Prepared:
    """The run; what a schedule measures on a table of the user's own is written down in it."""
    from fedpriv.simulations.public.probing import is_table, written

    schedule = prepared.experiment.strategy.options.get("schedule")
    own = isinstance(schedule, dict) and is_table(schedule.get("public"))
    deployed = prepared.experiment.run.engine == "deployment"
    return written(prepared) if own or deployed else prepared


def person_bounds(experiment: Experiment, info: StrategyInfo) -> PersonBounds | None:
    """The bounds on one person's data, if the run protects persons.

    None for a strategy without a guarantee, or without one for persons: it learns from records, if
    it is not refused.
    """
    wanted = Unit(experiment.privacy.unit) is Unit.PERSON and info.private
    if not wanted or Unit.PERSON not in info.units:
        return None
    section = experiment.persons
    return PersonBounds(records=section.records, parties=section.parties)


def most_members(
    experiment: Experiment, info: StrategyInfo, persons: PersonBounds | None, *, headroom: float
) -> float:
    """The largest ratio of a minimiser's records, or persons, to their declared number.

    The ball in which the bound of the squared loss holds contains all their minimisers. Strategies
    that descend clip their gradients and use the smaller ball.
    """
    adjacency = Adjacency(experiment.privacy.adjacency)
    joining = info.minimises and adjacency is Adjacency.ADD_REMOVE
    return headroom if persons is None and not joining else HEADROOM * headroom


def label_unit(dataset: Dataset) -> float:
    """What a step of one in a label is in the unit of its table; 1 where labels are not scaled."""
    low, high = (dataset.schema and dataset.schema.label_range) or (-1.0, 1.0)
    return (high - low) / 2


def build_strategy(
    prepared: Prepared, *, run: str, release: bool = False, ledger: Ledger | None = None
) -> SumStrategy:
    """The strategy of a run, planned within its budget; its ledger may be attached later."""
    from fedpriv import strategies
    from fedpriv.simulations.public.probing import with_influence

    if prepared.experiment.paid_tuning:
        from fedpriv.simulations.run.paid_tuning import build_tuned

        return build_tuned(prepared, run=run, release=release, ledger=ledger)

    privacy, info = prepared.experiment.privacy, prepared.info
    promised = info.private and not prepared.noise_free
    return strategies.build(
        info,
        task=prepared.task,
        budget=privacy.budget if promised else None,
        adjacency=Adjacency(privacy.adjacency),
        unit=Unit(privacy.unit),
        options=with_influence(_seeded(prepared), prepared),
        noise=streams(prepared, "noise", run=run, release=release),
        run=run,
        ledger=ledger,
        release=release,
        noise_free=prepared.noise_free,
        twin_of=privacy.twin_budget if prepared.noise_free else None,
        noise_at=privacy.noise_at if info.private else "server",
        dropout=prepared.experiment.run.dropout,
        colluding=privacy.colluding,
        share_law=privacy.share_law,
    )


def build_federation(
    prepared: Prepared,
    *,
    run: str,
    release: bool = False,
    workers: int | None = None,
    rounds: int = 1,
    done: int = 0,
) -> Federation:
    """The parties of a run, of which ``done`` of about ``rounds`` sums were formed before."""
    from fedpriv.simulations.engines.parties import dropouts, local_federation

    section = prepared.experiment.run
    workers = workers or section.workers
    if section.engine == "local":
        return local_federation(prepared, run=run, rounds=rounds, done=done)
    if section.engine == "ray":
        raise ValueError("engine 'ray' runs in processes of its own: use `fedpriv run`.")
    if section.engine == "sharded":
        from fedpriv.simulations.engines.sharded import sharded_federation

        return sharded_federation(prepared, run=run, workers=workers, done=done)
    return VectorizedFederation(
        prepared.data,
        task=prepared.task,
        sampling=streams(prepared, "sampling", run=run, release=release),
        workers=workers,
        dropouts=dropouts(prepared),
        first_round=done,
        apart=release,
    )


@contextmanager
def serving(federation: Federation) -> Iterator[Federation]:
    """A federation, whose own processes, if it has any, end with the block."""
    from fedpriv.federation.engines.sharded import ShardedFederation

    try:
        yield federation
    finally:
        if isinstance(federation, ShardedFederation):
            federation.close()


def _seeded(prepared: Prepared) -> dict[str, Any]:
    """The options; where one is a seed and the file does not set it, that of the run."""
    options = prepared.experiment.strategy.options
    if "seed" in prepared.info.options.model_fields:
        options.setdefault("seed", prepared.experiment.run.seed)
    return options


def check(prepared: Prepared, *, release: bool = False) -> SumStrategy | None:
    """Build the strategy of a run, so that what it refuses is known before anything starts.

    Nothing is queried or paid for yet: `carry_on` attaches it to its run. None for party-alone,
    which has no strategy.
    """
    if prepared.info.name == PARTY_ALONE:
        return None
    if release and prepared.data.dataset.schema is not None:
        require_every_label(prepared.task.loss, prepared.data.dataset.task)
    strategy = build_strategy(prepared, run=prepared.run, release=release)
    if release:
        require_drawable(strategy)
        require_units(prepared, strategy)
    section = prepared.experiment.run
    if isinstance(strategy, JointStrategy | LinearInference) and section.dropout:
        raise ValueError(
            f"run.dropout must be 0 for this {strategy.name}, got {section.dropout:g}: a joint fit "
            "needs every party in every exchange."
        )
    if isinstance(strategy, Description) and strategy.by_party and section.dropout:
        raise ValueError(
            f"run.dropout must be 0 with describe.by_party, got {section.dropout:g}: of who is not "
            "there it would release only noise."
        )
    _check_masks(prepared)
    return strategy


def require_drawable(strategy: SumStrategy) -> None:
    """Refuse noise that no sampler can draw on its grid, before a release is paid for."""
    plan = strategy.plan
    if isinstance(plan, FixedPlan) and plan.noise_at == "server":
        by_noise = sorted(plan.mechanisms, key=lambda mechanism: mechanism.noise_stddev)
        for mechanism in (by_noise[0], by_noise[-1]):
            rehearsal = RandomStream.seeded(0, "rehearsal")
            mechanism.noise((plan.dimension,), step=plan.step, stream=rehearsal)


def _check_masks(prepared: Prepared) -> None:
    """Refuse parties without the masks that the noise assumes, or too few parties to mask."""
    from fedpriv.simulations.engines.parties import protection

    experiment = prepared.experiment
    if experiment.run.level != "off":
        protection(experiment).parameters(prepared.task.parties)
    elif experiment.privacy.noise_at == "parties" and not experiment.run.ideal:
        raise ValueError(
            "run.secure_aggregation must not be 'off' with privacy.noise_at = 'parties': one "
            "party's share of the noise does not protect its own answer."
        )


def train(
    strategy: SumStrategy, federation: Federation, watch: Callable[[Query, Sum], bool]
) -> bool:
    """Ask, sum, learn, until the strategy is finished: True; or ``watch`` says stop: False.

    A joint fit has failed if one process refuses its sum, for example because there are more
    records than the grid has room for: the points it evaluates, hence whether that happens, depend
    on its draw.
    """
    with blamed_while_it_runs(strategy):
        while (query := strategy.ask()) is not None:
            try:
                answer = federation.sum(query)
            except ValueError:
                if isinstance(strategy, JointStrategy) and isinstance(federation, IdealFederation):
                    strategy.void()
                raise
            strategy.learn(answer)
            if not watch(query, answer):
                return False
    return True
