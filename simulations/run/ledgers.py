"""The ledger of a run: named by its owner, bound to the records, and the same from start to end.

A new ledger is a new, full budget. So a run creates one only if explicitly told to, and a resumed
run continues with the ledger that it began with, or not at all. What a round costs is reserved in
it by the strategy (`fedpriv.federation.strategy.base`), and at a deployed party before it answers
(`fedpriv.federation.deployed.paying`).
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.data import built_in_identity, table_identity
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger import (
    BudgetRefusal,
    Ledger,
    LedgerMismatch,
    LedgerMissing,
    fitting_composition,
)
from fedpriv.privacy.ledger.composition import BasicComposition, RdpComposition
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.sections import DataSection
    from fedpriv.simulations.run.prepare import Prepared
    from fedpriv.simulations.run.session import Session

_PRINTED = 0.05  # per cent: less is printed as 0.0


def require_ledger(path: Path, *, new: bool) -> None:
    """Refuse a ledger that does not exist or, if a new one is to be made, one that does."""
    if path.is_symlink() and not path.exists():
        raise ValueError(
            f"--ledger {str(path)!r} is a link to {str(path.resolve())!r}, which is not there."
        )
    if new and path.exists():
        raise ValueError(
            f"--new-ledger: {str(path)!r} exists already. Leave --new-ledger out to use it."
        )
    if new and not path.parent.is_dir():
        raise ValueError(f"--ledger {str(path)!r}: its folder does not exist.")
    if not new and not path.exists():
        near = get_close_matches(path.name, _beside(path), n=1)
        hint = f" Did you mean {str(path.with_name(near[0]))!r}?" if near else ""
        raise ValueError(
            f"--ledger {str(path)!r} does not exist.{hint} A run makes none by itself, because a "
            "new ledger is a full budget: name the one that these people have. If nothing was ever "
            "released of them, add --new-ledger, or make one with `fedpriv ledger init`."
        )


def require_apart(path: Path, directory: Path) -> None:
    """Refuse a ledger in the directory of a run, which is published: a ledger is private."""
    if path.resolve().is_relative_to(directory.resolve()):
        raise ValueError(
            f"--ledger {str(path)!r} must not lie in the directory of the run, "
            f"{str(directory)!r}: what is there is published, and the ledger is for the owner of "
            "the data alone."
        )


def make_ledger(path: Path, experiment: Experiment, plan: Plan | None) -> Ledger:
    """A ledger with the budget of a run not yet started, and composition that fits its plan."""
    budget, adjacency = experiment.privacy.budget, Adjacency(experiment.privacy.adjacency)
    unit = Unit(experiment.privacy.unit)
    rule = None
    if isinstance(plan, AdaptivePlan):
        rule = plan.ledger_rule
    elif plan is not None and plan.releases:
        rule = fitting_composition(
            plan.releases, delta=plan.budget.delta, budget=budget, adjacency=adjacency, unit=unit
        )
    return Ledger.create(
        path,
        data_name=experiment.data.title,
        budget=budget,
        adjacency=adjacency,
        unit=unit,
        composition=rule,
    )


def require_affordable(path: Path, experiment: Experiment, plan: Plan | None) -> None:
    """Refuse a run that its ledger cannot price or pay for, before anything is written."""
    privacy = experiment.privacy
    with Ledger.open(
        path, adjacency=privacy.adjacency, unit=privacy.unit, read_only=True
    ) as ledger:
        require_room(ledger, plan, run=experiment.run_name)


def require_room(ledger: Ledger, plan: Plan | None, *, run: str) -> None:
    """Refuse a run that would end before its last release; one that has begun goes on."""
    if plan is None or next(names_of(ledger, run), None) is not None:
        return
    try:
        ledger.require_room(run, plan.needed, delta=plan.budget.delta)
    except BudgetRefusal as refusal:
        raise BudgetExceeded(_too_much(refusal, plan)) from None


def _too_much(refusal: BudgetRefusal, plan: Plan) -> str:
    spent, asked, rule = refusal.spent, refusal.asked, refusal.asked.composition
    remedy = "Plan for less: a smaller privacy.epsilon"
    if isinstance(rule, RdpComposition) and plan.accountant != RdpComposition.name:
        remedy += (
            "; or, where the strategy has that key, strategy.accountant = 'rdp', which plans as "
            "this ledger adds up"
        )
    if plan.sampling_rate < 1 and not isinstance(rule, BasicComposition):
        remedy += (
            "; or a ledger that is made with composition 'basic', which charges what is planned"
        )
    if 100 * spent.left.share < _PRINTED:
        return (
            f"privacy.epsilon = {plan.budget.epsilon:g}: the ledger is used up. Of its budget, "
            f"{spent.budget}, less than 0.1 % is left, which pays for no useful release: nothing "
            "more can be released of these people under it. Nothing was spent now."
        )
    limit = rule.limit() if rule else 0.0
    share = asked.total.amount / limit if limit else inf
    return (
        f"privacy.epsilon = {plan.budget.epsilon:g}: the releases that are planned do not fit what "
        f"is left of the ledger. Of its budget, {spent.budget}, {100 * spent.left.share:.1f} % are "
        f"left, and {spent.left.delta:g} of delta. With these releases all together would have "
        f"spent {100 * share:.1f} % of it: epsilon = {asked.guarantee.epsilon:.6g} at delta = "
        f"{asked.guarantee.delta:.6g}. Nothing was spent. {remedy}."
    )


def names_of(ledger: Ledger, run: str) -> Iterator[str]:
    """The names of a run in a ledger: its own, and run/part for further releases."""
    known = (entry.run for entry in ledger.runs())
    return (name for name in known if name == run or name.startswith(f"{run}/"))


@contextmanager
def open_ledger(session: Session) -> Iterator[Ledger | None]:
    """The ledger that the run started with; None if it has none, or needs none any more.

    A real release binds it to the owner's original records, before schema, split and partition:
    other records are refused, but another scale is accepted. The column that identifies a person,
    or party, is fixed in the same way.
    """
    if session.identity.ledger is None or session.finished:
        yield None
        return
    experiment = session.prepared.experiment
    with own_ledger(session) as ledger:
        if session.identity.release:
            source = raw_identity(experiment.data)
            if session.source not in (None, source):
                raise ValueError(
                    f"{experiment.data.title!r} was changed while the run started: what was read "
                    "may be neither the old file nor the new one. Nothing was spent. Start again."
                )
            ledger.bind_data(source, whom=_whom(session.prepared))
        yield ledger


def _whom(prepared: Prepared) -> str | None:
    """The column that says who is one person, or party, if that is the unit; built-in: none."""
    schema = prepared.data.dataset.schema
    columns = {} if schema is None else {Unit.PERSON: schema.person, Unit.PARTY: schema.party}
    return columns.get(Unit(prepared.experiment.privacy.unit))


@contextmanager
def own_ledger(session: Session) -> Iterator[Ledger]:
    """The ledger that the run started with; refuses any other, and any older copy of it."""
    path = Path(str(session.identity.ledger))
    if not path.exists():
        raise LedgerMissing(
            f"the ledger {str(path)!r}, with which this run began, is not there, and another one "
            "would not know what was spent. Put it back; or, if it was moved, name its new place "
            "with --ledger."
        )
    privacy = session.prepared.experiment.privacy
    with Ledger.open(path, adjacency=privacy.adjacency, unit=privacy.unit) as ledger:
        require_known(ledger, rows=session.identity.ledger_rows, head=session.identity.ledger_head)
        yield ledger


def mark_of(ledger: Ledger) -> tuple[int, str]:
    """The number and hash of the last row, by which `require_known` recognises a ledger."""
    rows = ledger.length
    return rows, str(ledger.hash_of(rows))


def require_known(ledger: Ledger, *, rows: int | None, head: str | None) -> None:
    """Refuse a ledger whose row ``rows`` has another hash: another ledger, or an older copy."""
    if head is not None and (rows is None or ledger.hash_of(rows) != head):
        raise LedgerMismatch(
            "this is not the ledger with which the run began, or a copy from before its last "
            "release: it does not know what was spent. Put back the newest one."
        )


def raw_identity(section: DataSection) -> bytes:
    """The identity of the people in a data section, however it uses their records."""
    if section.name is not None:
        return built_in_identity(section.name)
    return table_identity(Path(str(section.path)))


def _beside(path: Path) -> list[str]:
    folder = path.parent
    return [each.name for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []
