"""Cells of a comparison, strategies × ε × parties × axes × seeds: each is one run.

A cell is an experiment of its own: what it computes follows from its own hash and seed, whoever
computes it and in whatever order. So the numbers are the same to the bit with any number of
workers, and a finished cell never has to be computed again.
"""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.compare.axes import axes as axes_of
from fedpriv.simulations.compare.axes import by_table, in_words, points
from fedpriv.simulations.compare.rows import Row, sorted_rows
from fedpriv.simulations.experiment.budgets import INFINITE, shown
from fedpriv.simulations.experiment.catalogue import (
    EXACT,
    FRAME,
    inheriting,
    strategy_info,
    validated,
)
from fedpriv.simulations.experiment.compare_section import EntrySection, at_budget
from fedpriv.simulations.experiment.sections import StrategySection
from fedpriv.simulations.refusals import refusals
from fedpriv.simulations.run.files import CELLS, read_json, write_json
from fedpriv.simulations.safe_path import safe_children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from fedpriv.simulations.compare.axes import Point
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.strategies import StrategyInfo

    Shared = tuple[str, float, int | None, str]

# One thread per worker: the last bits of a sum may depend on the number of threads.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_START = ("model.start", "model.start_sha256")
_PATIENCE = 0.5  # seconds until Ctrl-C is noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a comparison.

    Attributes:
        experiment: What is run.
        point: By key of `compare.over`, the value that it has here.
    """

    experiment: Experiment
    point: Point = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name of its file: its label, its point, and the hash of the experiment."""
        named = (self.experiment.strategy.title, *map(str, self.point.values()))
        label = "-".join("".join(c if c.isalnum() else "-" for c in name) for name in named)
        return f"{label}-{self.experiment.config_hash[:16]}"

    def file(self, directory: Path) -> Path:
        """Where a comparison in this directory keeps its result."""
        return directory / CELLS / f"{self.key}.json"

    @property
    def setting(self) -> Shared:
        """What all seeds of a row share."""
        experiment, privacy = self.experiment, self.experiment.privacy
        point = json.dumps([dict(self.point), privacy.twin_of])
        return experiment.strategy.title, float(privacy.epsilon), experiment.data.parties, point


def cells(experiment: Experiment) -> list[Cell]:
    """All cells of a comparison; what does not change a strategy does not repeat it.

    Strategies without noise occur once, not once per ε; one that does not know the key of an axis
    occurs once, not once per value.
    """
    axes = experiment.compare
    if axes is None:
        raise ValueError(
            "compare is missing: add a table of this name, with strategies, epsilons and seeds."
        )
    if experiment.tuning is not None and experiment.tuning.grid:
        raise ValueError(
            "tuning.grid is for `fedpriv run`: one grid does not fit several strategies. Tune "
            "each, write the settings into compare.strategies, and keep tuning.on without a grid."
        )
    frame, listed = _entries(experiment)
    told = [strategy_info(e.name, experiment.guests, key="compare.strategies") for e in listed]
    swept = axes_of(experiment, told)
    epsilons = tuple(dict.fromkeys(axes.epsilons)) or (experiment.privacy.epsilon,)
    parties = tuple(dict.fromkeys(axes.parties)) or (experiment.data.parties,)
    seeds = range(experiment.run.seed, experiment.run.seed + axes.seeds)
    runs = []
    for entry, number in product((*frame, *listed), parties):
        info = strategy_info(entry.name, experiment.guests, key="compare.strategies")
        budgets = epsilons if info.private else epsilons[:1]
        for epsilon, point in product(budgets, points(swept, info)):
            if entry in frame and not _has_minimum(experiment, point):
                continue
            data = {} if number is None or "data.parties" in point else {"parties": number}
            for base in _at_budget(experiment, entry, epsilon, point, info):
                runs += [
                    Cell(experiment=base.replaced(data=data, run={"seed": seed}), point=point)
                    for seed in seeds
                ]
    return runs


def _has_minimum(experiment: Experiment, point: Point) -> bool:
    """Whether the problem at a point is strongly convex: what the frame computes are minimisers."""
    model = experiment.replaced(model=by_table(point).get("model", {})).model
    return model.convex and model.l2 != 0


def _at_budget(
    experiment: Experiment,
    entry: EntrySection,
    epsilon: float | str,
    point: Point,
    info: StrategyInfo,
) -> Iterator[Experiment]:
    """The experiment with the strategy of ``entry`` at a budget.

    Without noise, where settings follow from the budget, once for every budget of the comparison,
    as its twin: this separates the cost of noise from that of settings.
    """
    plain = _entered(experiment, entry, epsilon, point)
    # An entry for another unit of privacy may need another ε to promise the same.
    own = "epsilon" in _privacy(entry, epsilon)
    compared = experiment.compare.epsilons if experiment.compare else ()
    finite = [e for e in dict.fromkeys(compared) if e != INFINITE]
    if epsilon != INFINITE or own or not info.private or not finite:
        yield plain if own else plain.replaced(privacy={"epsilon": epsilon})
        return
    tables = (experiment.compare.at if experiment.compare else {}, entry.at)
    by_budget = any(at_budget(table, e) for table in tables for e in finite)
    alike = not by_budget and not info.follows_budget(validated(plain.strategy, info))
    if alike or any(at_budget(table, INFINITE) for table in tables):  # its own settings are stated
        yield plain.replaced(privacy={"epsilon": INFINITE})
        return
    for one in finite:
        private = _entered(experiment, entry, one, point)
        real = private.privacy.epsilon if "epsilon" in _privacy(entry, one) else one
        yield private.replaced(privacy={"epsilon": INFINITE, "twin_of": real})


def _privacy(entry: EntrySection, epsilon: float | str) -> dict[str, Any]:
    return entry.changes(epsilon).get("privacy", {})


def _entered(
    experiment: Experiment, entry: EntrySection, epsilon: float | str, point: Point
) -> Experiment:
    """The experiment with the strategy of ``entry``, what it changes at a budget, and the point."""
    changes = entry.changes(epsilon)
    for table, values in by_table(point).items():
        changes[table] = {**changes.get(table, {}), **values}
    section = StrategySection(name=entry.name, label=entry.label, **changes.pop("strategy"))
    shared = at_budget(experiment.compare.at if experiment.compare else {}, epsilon)
    return inheriting(experiment.replaced(strategy=shared, **changes), section)


def _entries(
    experiment: Experiment,
) -> tuple[tuple[EntrySection, ...], tuple[EntrySection, ...]]:
    """The frame that the experiment did not list, and the strategies; each label is used once.

    The frame needs minimisers, which only a strongly convex problem has. The exact joint model, the
    reference of twins without noise, joins the frame where there are twins.
    """
    axes = experiment.compare
    own = EntrySection(**experiment.strategy.model_dump())
    listed = (axes.strategies if axes else ()) or (own,)
    names = {entry.name for entry in listed}
    # A minimiser is the same from any start, and refuses one.
    anywhere = {} if experiment.model.start is None else dict.fromkeys(_START)
    frame = tuple(
        EntrySection(name=name, override=anywhere)
        for name in (*FRAME, *([EXACT] if axes and INFINITE in axes.epsilons else []))
        if name not in names
    )
    labels = [entry.title for entry in (*frame, *listed)]
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise ValueError(
            f"compare.strategies names {', '.join(sorted(twice))} more than once: give each entry "
            'a label of its own, as in { name = "…", weights = "equal", label = "equal weights" }.'
        )
    return frame, listed


@safe_children()
def compute(
    todo: Sequence[Cell],
    directory: Path,
    *,
    workers: int,
    on_cell: Callable[[Cell, int], None] = lambda _cell, _done: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Compute every cell that has no file yet; False if ``stop`` ended it early.

    In processes of their own if there are to be several workers. Every setting is first built, and
    refused with its reason if it cannot be, before any is run.
    """
    (directory / CELLS).mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in todo if not cell.file(directory).exists()]
    done = len(todo) - len(missing)
    if not missing:
        return True
    distinct = {cell.setting: cell for cell in missing}

    def keep(cell: Cell, result: dict[str, Any]) -> None:
        nonlocal done
        write_json(cell.file(directory), result)
        done += 1
        on_cell(cell, done)

    if workers == 1:
        from fedpriv.learning.threads import one_thread

        with one_thread():  # as a worker would
            for cell in distinct.values():
                if stop():
                    return False
                check_cell(cell)
            for cell in missing:
                if stop():
                    return False
                keep(cell, run_cell(cell))
        return True
    # Spawned, not forked: a fork of a process with threads may hang.
    pool = ProcessPoolExecutor(
        min(workers, len(missing)), mp_context=get_context("spawn"), initializer=_become_worker
    )
    try:
        with _deaf_children():
            checked = pool.map(check_cell, distinct.values())
        for _ in checked:
            if stop():
                return False
        with _deaf_children():
            running: dict[Future[dict[str, Any]], Cell] = {
                pool.submit(run_cell, cell): cell for cell in missing
            }
        while running:
            finished, _ = wait(running, timeout=_PATIENCE, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = running.pop(future)
                if not future.cancelled():
                    keep(cell, future.result())
            if stop():  # what runs is finished, what waits is not begun
                for future in running:
                    future.cancel()
        return done == len(todo)
    except KeyboardInterrupt:  # a second Ctrl-C: stop now
        for worker in active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that start in this block do not hear Ctrl-C until they can ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def collect(todo: Sequence[Cell], directory: Path) -> list[Row]:
    """The rows of a table, from the files of all cells."""
    groups: dict[Shared, list[dict[str, Any]]] = {}
    at: dict[Shared, Point] = {}
    for cell in todo:
        result = read_json(cell.file(directory))
        groups.setdefault(cell.setting, []).append(result)
        at[cell.setting] = cell.point
    labels = list(dict.fromkeys(cell.experiment.strategy.title for cell in todo))
    rows = [Row.of(results, point=at[setting]) for setting, results in groups.items()]
    return sorted_rows(rows, labels)


def check_cell(cell: Cell) -> None:
    """Build the strategy of a cell without running it."""
    with _naming(cell):
        from fedpriv.simulations.run.prepare import check, prepare

        engine = cell.experiment.run.engine
        if engine in ("ray", "sharded"):
            raise ValueError(
                f"run.engine must be 'vectorized' or 'local' in a comparison, got {engine!r}: a "
                "comparison has processes of its own."
            )
        check(prepare(cell.experiment, keep=True))


def run_cell(cell: Cell) -> dict[str, Any]:
    """The result of one cell."""
    with _naming(cell):
        from fedpriv.simulations.run.summary import simulate

        return simulate(cell.experiment, workers=1)


@contextmanager
def _naming(cell: Cell) -> Iterator[None]:
    """Errors that name the cell, and that can cross from one process to another."""
    try:
        with refusals():
            yield
    except ValueError as error:
        title, epsilon, *_ = cell.setting
        where = ", ".join(filter(None, (f"ε = {shown(epsilon)}", in_words(cell.point))))
        raise ValueError(f"{title} at {where}: {error}") from None


def _become_worker() -> None:
    """Set up a worker: one thread, Ctrl-C left to the parent, and an end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `_deaf_children`
    os.environ.update(_ONE_THREAD)
    import torch

    torch.set_num_threads(1)
    Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
