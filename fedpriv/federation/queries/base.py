"""Query: the frozen question that a server sends to every party, and what every kind must state.

A query states everything that its answer depends on besides the records: the point, the bound, the
sampling, the fixed-point grid, and the event that its release is charged as. The model, the loss
and the bound on features are in the `Task`, which every party already knows. All queries ask for
one vector per party.

A new kind is one file like its neighbours, a line in `kinds.QUERIES`, and the code by which a party
computes the answer (`fedpriv.federation.party.answers`). Guards, bounds and encoding read nothing
but the members below: a kind that leaves one of them open cannot be instantiated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    GaussianEvent,
    LaplaceEvent,
    PoissonPartsEvent,
    PureEvent,
    ZcdpEvent,
)
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import Unit
from fedpriv.privacy.written_events import event_from_dict
from fedpriv.secagg import FixedPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.planning.objective.objective import ObjectiveNoise

ON_A_VECTOR: tuple[type[Event], ...] = (GaussianEvent, ZcdpEvent, PureEvent, LaplaceEvent)
"""Noise on a vector of bounded L2 sensitivity; ρ-zCDP is discrete Gaussian noise."""

ARRAY = {"array": True}
"""Metadata of a field that is a float64 array: its numbers follow the header on the wire."""

LATER = {"later": True}
"""Metadata of a field added later: its default is not written, so older bytes stay the same."""

_LONGEST_NAME = 200  # it is stored with every release
_SLACK = 1 + 2.0**-30  # float64 rounding of an answer exactly on its bound


def read_by(read: Callable[[Any], object], *, optional: bool = True) -> dict[str, Any]:
    """Metadata of a field that ``read`` makes from its JSON value; from null too, if allowed."""
    return {"read": lambda value: None if optional and value is None else read(value)}


def with_terms(make: Callable[..., object]) -> Callable[[Any], object]:
    """Reader of a value with several fields, two of them an `Adjacency` and a `Unit`."""
    terms = {"adjacency": Adjacency, "unit": Unit}
    return lambda values: make(**{**values, **{key: terms[key](values[key]) for key in terms}})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Query(ABC):
    """What every query carries, and what every kind of query states about its answers.

    >>> from fedpriv.federation.queries.kinds import GradientQuery
    >>> query = GradientQuery(
    ...     run="example",
    ...     round=0,
    ...     grid=FixedPoint(step=2.0**-20),
    ...     event=None,
    ...     theta=np.zeros(3),
    ...     clip_norm=1.0,
    ... )
    >>> query.kind, query.sampling_rate
    ('gradient', 1.0)

    Attributes:
        held_out: Whether it is about records that a party holds out, not those it learns from.
        units: The units that a release may be charged for: those `sensitivity` is proved for.
        run: The run it belongs to.
        round: Which release of the run it serves, from 0.
        grid: The fixed-point grid on which answers are rounded and summed.
        event: What the release costs; None without a guarantee.
        share: The party's share of the noise on the sum, if the parties add it.
    """

    kind: ClassVar[str]
    held_out: ClassVar[bool] = False
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD,)
    run: str
    round: int
    grid: FixedPoint = field(metadata=read_by(lambda grid: FixedPoint(**grid), optional=False))
    event: Event | None = field(metadata=read_by(event_from_dict))
    share: NoiseShare | None = field(
        default=None, metadata=read_by(lambda share: NoiseShare(**share))
    )

    def __post_init__(self) -> None:
        if type(self.run) is not str or not 0 < len(self.run) <= _LONGEST_NAME:
            raise ValueError(f"run must be a name of at most {_LONGEST_NAME} characters.")
        if not self.run.isprintable():
            raise ValueError(f"run must be a name of printable characters, got {self.run!r}.")
        require_index(round=self.round)
        if self.share is not None and self.event is None:
            raise ValueError("event must be given with a share of noise: a share is sized for it.")
        if self.event is not None and self.event.unit not in self.units:
            known = " or ".join(repr(unit.value) for unit in self.units)
            raise ValueError(
                f"unit of the event must be {known} for {self.kind!r} queries, got "
                f"{self.event.unit.value!r}: how far {self.event.unit.words} can move their sum is "
                "not bounded."
            )

    @property
    @abstractmethod
    def events(self) -> tuple[type[Event], ...]:
        """What a release of this kind may be charged as, if its noise is not added in shares."""

    @property
    @abstractmethod
    def sampling_rate(self) -> float:
        """The Poisson rate at which each record, or each party, joins; 1 is everything."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether an answer depends on its party's true number of records: then no add-remove."""

    @property
    @abstractmethod
    def joint_fit(self) -> bool:
        """Whether many queries serve one release, each with an exact sum that is not clamped."""

    @property
    def form(self) -> str:
        """What strategies ask for: the kind, and what makes it a sum of something else."""
        return self.kind

    @property
    def shows_parties(self) -> bool:
        """Whether the sum shows every party's answer separately, so that masks hide none."""
        return False

    @property
    @abstractmethod
    def own_noise(self) -> LocalNoise | ObjectiveNoise | None:
        """Noise that the party itself adds, on its answer or before; not a share."""

    @abstractmethod
    def record_bound(self, task: Task) -> float:
        """The most that one record may add to an answer, in the units of the query."""

    @abstractmethod
    def answer_width(self, task: Task) -> int:
        """The number of coordinates of an answer."""

    @abstractmethod
    def reach(self, task: Task, size: int) -> float:
        """The largest |coordinate| of the answer of a party of ``size``, in exact arithmetic.

        Sums over more records than ``size`` are clamped to it, which moves no two of them apart.
        Joint fits are not clamped: their minimum would not be that of a risk.
        """

    @abstractmethod
    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """How far one record moves the sum over the parties of ``sizes``, in L2, before the grid.

        None where no such bound is proved for noise of the parties, which then add none.
        """

    @abstractmethod
    def check(self, task: Task) -> None:
        """Raise `ValueError` if a party of ``task`` must not answer: from public facts alone."""

    @abstractmethod
    def check_certain(self, task: Task) -> None:
        """Raise `ValueError` if records, or noise, could decide whether there is an answer."""

    def local_steps(self, task: Task) -> int:
        """The most steps of local training at any party, by the public sizes."""
        return 0

    def contributors(self, parties: int) -> int:
        """How many of so many parties contribute; the others' answers are known to be zero."""
        return parties

    def own_part(self, task: Task, party: int) -> slice:
        """The coordinates of the sum to which a party adds noise of its own: all of them."""
        return slice(0, self.answer_width(task))

    @property
    def wide(self) -> bool:
        """Whether gradients are summed in float64, whatever the precision of the records."""
        return False

    @property
    def remembering(self) -> bool:
        """Whether an answer depends on what the party kept of earlier rounds."""
        return False

    @property
    def noise_by_party(self) -> bool:
        """Whether the party adds noise: its own, or a share of that of the sum."""
        return self.share is not None or self.own_noise is not None

    def answer_bound(self, task: Task, size: int) -> float:
        """The largest |coordinate| of the answer of a party of ``size``, before any noise."""
        return self.reach(task, size) * _SLACK

    def local_mechanism(self, task: Task, size: int) -> Mechanism | None:
        """The noise that a party of ``size`` adds to its own answer, if the query asks for it.

        Raises:
            ValueError: It asks for noise that cannot be calibrated.
        """
        noise = self.own_noise
        if noise is None:
            return None
        moved = self.sensitivity(task, sizes=(size,), adjacency=noise.adjacency)
        if moved is None or not isinstance(noise, LocalNoise):
            raise ValueError(f"noise of a party's own is not known for {self.kind!r} queries.")
        width = self.answer_width(task)
        return noise.mechanism(sensitivity=moved + sqrt(width) * self.grid.step, dimension=width)

    def _check_parts(self, task: Task) -> None:
        """For samples at several parties the event must count on exactly the declared number.

        At the same relative noise more parts are cheaper: each has a smaller share of the
        sensitivity, and all of them being in the sample is less likely.
        """
        event, persons = self.event, task.persons
        if event is None or self.sampling_rate == 1:
            return
        parts = 1 if persons is None else persons.parties
        stated = event.parts if isinstance(event, PoissonPartsEvent) else 1
        if stated != parts:
            raise ValueError(
                f"event must be one of samples at {parts} parties, at which a person may have "
                f"records, got {event.kind!r} of {stated}: each party draws its own sample."
            )

    def local_event(self, task: Task) -> Event | None:
        """The cost of the noise that a party adds by itself; None if it adds none.

        On a Poisson sample, which the party draws in secret, as much as any sampled release.
        """
        mechanism = self.local_mechanism(task, task.smallest)
        return None if mechanism is None else sampled(mechanism.event(), self.sampling_rate)


def point(
    theta: NDArray[np.float64], name: str = "theta", *, shape: tuple[int, ...] | None = None
) -> NDArray[np.float64]:
    """A read-only copy of a finite float64 vector."""
    vector = np.array(theta, dtype=np.float64)
    wrong = vector.ndim != 1 or vector.shape != (shape or vector.shape)
    if wrong:
        raise ValueError(f"{name} must be a vector, got shape {vector.shape}.")
    if not np.isfinite(vector).all():
        raise ValueError(
            f"{name} must be finite, and some of its {vector.size} numbers are not. A model that "
            "grows without bound needs a smaller learning rate."
        )
    vector.flags.writeable = False
    return vector


def require_point(theta: NDArray[np.float64], task: Task) -> None:
    """Refuse a point that does not fit the model."""
    if theta.shape != (task.dimension,) or not np.isfinite(theta).all():
        raise ValueError(
            f"theta must be finite with {task.dimension} coordinates, got shape {theta.shape}."
        )


def require_index(**parameters: int) -> None:
    """Require an integer of at least 0."""
    for name, value in parameters.items():
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, got {value!r}.")
