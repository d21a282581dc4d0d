"""Tracker: the protocol of a callback that hears of a run, and when it hears what.

Of a simulation a tracker hears every round when it is over. **Of a release it hears nothing before
the end**, not even that it began, and nothing of one that did not end; then what the files of the
outcome hold. How long a run or a round took depends on the records, and how many exchanges a joint
fit took does, too. So whatever a tracker keeps, and where it sends that, is covered by the
guarantee of the run, but for the moment of its end.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

from fedpriv.simulations.run.files import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fedpriv.simulations.run.history import Record, Round
    from fedpriv.simulations.run.session import Session


class Tracker(Protocol):
    """Follows a run: `begin`, `follow` for every round, `end` with the result, then `close`.

    >>> class Printing:
    ...     def begin(self, name, settings):
    ...         print(settings["strategy.name"])
    ...
    ...     def follow(self, number, values):
    ...         print(number, sorted(values))
    ...
    ...     def end(self, values):
    ...         print(values["epsilon"] <= 0.5)
    ...
    ...     def close(self):
    ...         print("closed")
    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> result = fedpriv.run(study, privacy={"epsilon": 0.5}, trackers=[Printing()])
    output-perturbation
    1 ['accuracy', 'epsilon', 'loss', 'seconds']
    True
    closed
    """

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        """A run begins or is resumed, or a release has ended: its name, its experiment's keys."""

    def follow(self, number: int, values: Mapping[str, float]) -> None:
        """A round is over: what was spent by then, and what was measured."""

    def end(self, values: Mapping[str, float]) -> None:
        """The run is finished: the numbers of its result."""

    def close(self) -> None:
        """The end, whether the run is finished or was interrupted."""


@contextmanager
def tracked(
    session: Session, trackers: Sequence[Tracker]
) -> Iterator[Callable[[Record, Round], None]]:
    """Have trackers follow a run: the block gets a function to report every round.

    A tracker that fails during the run causes a warning, and is left out from then on.
    """
    experiment = session.prepared.experiment
    live = not session.identity.release and experiment.run.engine != "ray"
    settings = dict(_flat(experiment.to_dict()))
    following: list[Tracker] = []

    def begin() -> None:
        for tracker in trackers:
            tracker.begin(session.identity.run, settings)
            following.append(tracker)

    def begin_late() -> None:  # the release is made: what fails now undoes nothing
        following.extend(trackers)
        tell(lambda each: each.begin(session.identity.run, settings))

    def tell(what: Callable[[Tracker], None]) -> None:
        for tracker in tuple(following):
            try:
                what(tracker)
            except Exception as error:  # a run is worth more than what is told of it
                following.remove(tracker)
                warnings.warn(f"{type(tracker).__name__} is left out: {error}", stacklevel=2)

    def on_round(_record: Record, told: Round) -> None:
        if live:
            row = asdict(told)
            tell(lambda each: each.follow(row["round"], _numbers(row)))

    try:
        if not session.identity.release:
            begin()
        yield on_round
        if session.finished:
            if session.identity.release:
                begin_late()
            for row in () if live else _rows(session):
                tell(lambda each, row=row: each.follow(row["round"], _numbers(row)))  # type: ignore[misc]
            result = _numbers(read_json(session.directory / "result.json"))
            tell(lambda each: each.end(result))
    finally:
        tell(lambda each: each.close())


def _rows(session: Session) -> list[dict[str, Any]]:
    path = session.directory / "metrics.json"
    rows: list[dict[str, Any]] = read_json(path) if path.exists() else []
    return rows


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are finite numbers, but for the number of the round."""
    return {
        name: float(value)
        for name, value in values.items()
        if name != "round"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Keys of nested tables, with dots."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
