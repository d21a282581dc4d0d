"""Workers in this process, whose messages are pickled as if they were elsewhere; some are lost."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(kw_only=True, eq=False)
class Reference:
    """What a worker was asked; whether it will never answer."""

    worker: Any
    method: str
    arguments: Any
    lost: bool = False


@dataclass(kw_only=True)
class Workers:
    """A workforce without processes.

    Attributes:
        workers: How many.
        losing: Which answers, counted over all workers from 0, never arrive: their worker is gone.
        hired: How many were, in all.
        asked: How many answers were asked for.
        closed: How often it was closed.
    """

    workers: int
    losing: frozenset[int] = frozenset()
    hired: int = 0
    asked: int = 0
    closed: int = 0
    workers_per_machine: int = 1
    gone: set[int] = field(default_factory=set)

    def hire(self, kind: type, *arguments: Any, **options: Any) -> Any:
        self.hired += 1
        return kind(*through(arguments), **through(options))

    def ask(self, worker: Any, method: str, *arguments: Any) -> Reference:
        reference = Reference(worker=worker, method=method, arguments=through(arguments))
        if method == "answer":
            if self.asked in self.losing:
                self.gone.add(id(worker))
            self.asked += 1
            reference.lost = id(worker) in self.gone
        return reference

    def share(self, value: Any) -> Any:
        return value

    def first_of(self, references: Sequence[Reference]) -> Reference:
        return references[-1]  # no order is promised

    def result(self, reference: Reference) -> Any | None:
        if reference.lost:
            return None
        return through(getattr(reference.worker, reference.method)(*reference.arguments))

    def close(self) -> None:
        self.closed += 1


def through(value: Any) -> Any:
    """What arrives of a value at another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
