"""`fedpriv.run` and `fedpriv.compare`: experiments from Python, as the command line runs them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from fedpriv._toml import to_toml_value
from fedpriv.simulations.api.result import Result
from fedpriv.simulations.compare.comparison import carry_out, start_comparison
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.fitting import read_fit
from fedpriv.simulations.run.launch import carry_through, open_session, require_learning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.compare.comparison import Comparison
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.tracking.tracker import Tracker

    Source = str | Path | Mapping[str, Any]


def run(
    experiment: Source,
    /,
    *,
    out: str | Path | None = None,
    release: bool = False,
    ledger: str | Path | None = None,
    new_ledger: bool = False,
    trackers: Sequence[Tracker] = (),
    **tables: Any,
) -> Result:
    """Run an experiment: train one model, as `fedpriv run` does; a simulation unless ``release``.

    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "gradient-perturbation"}}
    >>> result = fedpriv.run(study, strategy={"rounds": 5}, privacy={"epsilon": 0.5})
    >>> result.summary["rounds"], result.epsilon <= 0.5
    (5, True)

    Args:
        experiment: A TOML file, the name of a built-in experiment, or the tables of one as a dict.
        out: A new or empty directory for the results. Without it, the results of a simulation are
            in a temporary directory that is deleted with the result.
        release: Whether to make a real release: noise from the operating system, every round paid
            for in the ledger. Needs ``out`` and ``ledger``.
        ledger: The ledger of the data set, which pays for a release; a simulation leaves an
            uncharged row in it.
        new_ledger: Whether to create that ledger first, with a full budget: for people about whom
            nothing was ever released.
        trackers: Objects that follow the run: see `fedpriv.simulations.tracking.tracker.Tracker`.
        **tables: Keys to replace, by table of the experiment, as in ``privacy={"epsilon": 0.5}``,
            ``strategy={"name": "output-perturbation"}``, ``run={"seed": 1, "engine": "local"}``.

    Raises:
        ValueError: If the experiment is refused, with the message of the command line.
        BudgetExceeded: If the ledger does not pay for it; nothing was spent.
        KeyboardInterrupt: If it was stopped; continue with ``fedpriv run --resume DIR``.
    """
    wanted = read_experiment(experiment, overrides(tables))
    require_learning(wanted)
    return _run(
        wanted,
        out=out,
        release=release,
        ledger=ledger,
        new_ledger=new_ledger,
        trackers=trackers,
    )


def _run(
    wanted: Experiment,
    *,
    out: str | Path | None,
    release: bool,
    ledger: str | Path | None,
    new_ledger: bool,
    trackers: Sequence[Tracker] = (),
) -> Result:
    with carried_out(
        wanted,
        "run",
        out=out,
        release=release,
        ledger=ledger,
        new_ledger=new_ledger,
        trackers=trackers,
    ) as directory:
        result = Result.load(directory, own_code=True)
    _leave_with(result, directory, out)
    return result


@contextmanager
def carried_out(
    wanted: Experiment,
    command: str,
    *,
    out: str | Path | None,
    release: bool,
    ledger: str | Path | None,
    new_ledger: bool,
    trackers: Sequence[Tracker] = (),
) -> Iterator[Path]:
    """The directory of a completed run; ``command`` is what resumes it."""
    if release and out is None:
        raise ValueError(
            "out must be given with release = True, got None: a release is made once, so its "
            "files do not belong in a temporary directory."
        )
    with results_directory(out) as directory:
        session = open_session(
            wanted,
            out=directory,
            release=release,
            ledger=None if ledger is None else Path(ledger),
            new_ledger=new_ledger,
        )
        if carry_through(session, trackers=trackers) is None:
            raise KeyboardInterrupt(stopped(command, directory, out))
        yield directory


def fit(
    experiment: Source,
    /,
    *,
    out: str | Path | None = None,
    release: bool = False,
    ledger: str | Path | None = None,
    new_ledger: bool = False,
    **tables: Any,
) -> Result:
    """Fit a linear or logistic regression with intervals, as `fedpriv fit` does.

    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "model": {"name": "logistic"}}
    >>> result = fedpriv.fit(study, privacy={"epsilon": 8.0}, data={"intercept": 0.0})
    >>> result.coefficients.refusal
    ''
    >>> result.coefficients.rows[0].low < result.coefficients.rows[0].high
    True

    Args:
        experiment: As in `run`; ``strategy`` is set here, and so are ``data.scaling`` and the
            model, if they are left open.
        out: As in `run`.
        release: As in `run`.
        ledger: As in `run`.
        new_ledger: As in `run`.
        **tables: Keys to replace, as in `run`.
    """
    return _run(
        read_fit(experiment, overrides(tables)),
        out=out,
        release=release,
        ledger=ledger,
        new_ledger=new_ledger,
    )


def compare(
    experiment: Source,
    /,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    **tables: Any,
) -> Comparison:
    """Compare strategies over budgets, parties and seeds, as `fedpriv compare` does; a simulation.

    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> axes = {"epsilons": [0.5, 2.0], "seeds": 2}
    >>> comparison = fedpriv.compare(study, compare=axes, workers=1)
    >>> for row in comparison.rows:
    ...     print(row.label, row.epsilon_budget)
    non-private None
    party-alone None
    output-perturbation 0.5
    output-perturbation 2.0

    Args:
        experiment: As in `run`, with a table ``compare``.
        out: A new or empty directory for the report; without it a temporary one.
        workers: Number of processes; one per processor by default. It does not change the results.
        **tables: Keys to replace, as in `run`.
    """
    study = read_experiment(experiment, overrides(tables))
    with results_directory(out) as directory:
        start_comparison(study, out=directory)
        comparison = carry_out(study, directory, workers=workers)
        if comparison is None:
            raise KeyboardInterrupt(stopped("compare", directory, out))
    _leave_with(comparison, directory, out)
    return comparison


def overrides(tables: Mapping[str, Any]) -> list[str]:
    """Keys to replace, in the form of ``--set``: ``{"run": {"seed": 1}}`` is ``run.seed=1``.

    >>> overrides({"run": {"seed": 1}, "name": "study"})
    ['run.seed=1', 'name="study"']
    """
    keys: dict[str, Any] = {}
    for table, value in tables.items():
        if isinstance(value, Mapping):
            keys |= {f"{table}.{key}": each for key, each in value.items()}
        else:
            keys[table] = value
    return [f"{key}={to_toml_value(value, key=key)}" for key, value in keys.items()]


def stopped(command: str, directory: Path, out: str | Path | None) -> str:
    """How to continue what was stopped."""
    return "stopped." if out is None else f"continue with: fedpriv {command} --resume {directory}"


@contextmanager
def results_directory(out: str | Path | None) -> Iterator[Path]:
    """Where to write: ``out``, or a temporary directory, which is deleted if the block fails."""
    if out is not None:
        yield Path(out)
        return
    path = Path(tempfile.mkdtemp(prefix="fedpriv-"))
    try:
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _leave_with(owner: object, directory: Path, out: str | Path | None) -> None:
    """Delete a temporary directory together with its owner."""
    if out is None:
        finalize(owner, shutil.rmtree, directory, ignore_errors=True)
