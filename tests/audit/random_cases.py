"""Ways to make a release, and neighbouring tables for them, drawn at random.

Options that are admitted one by one meet here as nobody thought of them together: strategies,
units, adjacencies, splits, partitions, declared numbers and ranges; and values that a file may hold
in any place: gaps, codes, ends of ranges, numbers that no float32 has, empty parties, many copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.audit.neighbours import Case

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from tests.audit.neighbours import Row

PARTIES = {"north": 13, "south": 8, "west": 3}
_SIZES = [PARTIES, PARTIES, {"north": 30, "south": 2, "west": 0}, {"north": 1}]
_STRANGE = (
    "", "nan", "NaN", "-0.0", "1e308", "-1e308", "5e-324", "1e-45", " 7 ", "1e-400", "+0.5", "-9",
    "0.1", "99.99",
)  # fmt: skip
_RANGES = [(0.0, 100.0)] * 4 + [(-8e307, 8e307), (0.0, 5e-324), (1.0, 1.0000000000000002)]
_MODELS = {
    "binary": ["logistic", "huber-svm"],
    "number": ["huber-regression", "squared"],
    "classes": ["softmax"],
}


@dataclass(frozen=True, kw_only=True)
class Drawn(Case):
    """A case that was drawn.

    Attributes:
        kind: What the label is.
        unit: Whose privacy.
        persons: The section of the experiment.
        ends: The range of ages.
        codes: Texts that mean a missing value.
    """

    kind: str
    unit: str
    persons: dict[str, int] = field(default_factory=dict)
    ends: tuple[float, float] = (0.0, 100.0)
    codes: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return self.kind

    @property
    def sampled(self) -> bool:
        return "sampling_rate" in self.strategy

    @property
    def changes(self) -> int:
        return super().changes * self.persons.get("parties", 1)

    def experiment(self, folder: Path) -> dict[str, Any]:
        study = super().experiment(folder)
        study["privacy"]["unit"] = self.unit
        if self.unit == "person":
            study["persons"] = self.persons
        if self.strategy["name"] == "describe":
            del study["model"]
        return study

    def schema(self) -> dict[str, Any]:
        found = super().schema()
        low, high = self.ends
        found["columns"]["age"] = {"kind": "number", "min": low, "max": high, "fill": low}
        found["missing_values"] = list(self.codes)
        return {**found, **({"person": "patient"} if self.unit == "person" else {})}


def draw(rng: Random) -> Drawn:
    """A way to make a release; it may be one that is refused."""
    kind = rng.choice(["binary", "binary", "number", "classes"])
    unit = rng.choice(["record", "record", "person", "party"])
    adjacency = rng.choice(["replace-one", "add-remove"])
    strategy = _strategy(rng, unit, adjacency, kind)
    persons = {"records": rng.choice([1, 3]), "parties": rng.choice([1, 2, 3])}
    fold = rng.random() < 0.2
    data: dict[str, Any] = {
        "test_fraction": None if fold else rng.choice([None, 0.0, 0.3]),
        "scaling": "divide" if strategy["name"] == "inference" else rng.choice(["clip", "divide"]),
        "intercept": rng.choice([1.0, 1.0, 0.0]),
    }
    one_place = unit == "party" or "sampling_rate" in strategy  # see `neighbour`
    if rng.random() < 0.3 and not one_place:
        alone = adjacency == "replace-one" and unit == "record"
        data |= {"partition": "hashed", "parties": 1 if alone else rng.choice([1, 3])}
    if adjacency == "add-remove" or unit != "record":
        listed = [12, 8, 4] if "partition" not in data else 24
        data["records"] = rng.choice([24, 6, 1, listed])
    return Drawn(
        name="drawn",
        file=rng.choice(["csv", "csv", "parquet"]),
        tuning=_tuning(rng, strategy, kind, unit),
        strategy=strategy,
        adjacency=adjacency,
        model={"name": rng.choice(_MODELS[kind]), **_ball(rng, strategy)},
        data=data,
        fold=fold,
        kind=kind,
        unit=unit,
        persons=persons if unit == "person" else {},
        ends=rng.choice(_RANGES),
        codes=rng.choice([(), ("99.99",), ("-9", "0.1")]),
    )


def _strategy(rng: Random, unit: str, adjacency: str, kind: str) -> dict[str, Any]:
    if unit == "party":
        return _updates(rng, adjacency)
    rates = [{}, {"sampling_rate": 0.5}] if adjacency == "add-remove" else [{}]
    per_person = {"per_person": rng.choice(["mean", "records"])} if unit == "person" else {}
    asked: dict[str, Any] = rng.choice(
        [{"correlation": ["age", "dose"]}, {"edges": {"dose": [-0.5, 0.5]}}, _counted(rng, kind)]
    )
    if rng.random() < 0.5:
        asked["by_party"] = True
    return rng.choice(
        [
            {"name": "gradient-perturbation", "rounds": 3, **rng.choice(rates)},
            {"name": "gradient-perturbation", "rounds": 3, **rng.choice(rates)},
            {
                "name": "adaptive-clipping",
                "rounds": 2,
                "learning_rate": 0.1,
                "rule": rng.choice(["quantile", "coordinate"]),
                **rng.choice(rates),
            },
            {"name": "second-order", "rounds": 2, **rng.choice(rates)},
            {"name": "output-perturbation", "fit": rng.choice(["average", "joint"])},
            {"name": "objective-perturbation"},
            {"name": "inference"},
            {"name": "agd", "splits": 3, **rng.choice(rates)},
            {"name": "learned-protection", "horizon": 2, **rng.choice(rates)},
            {"name": "describe", "bins": 4, **asked, **per_person},
            {"name": "describe", "magnitudes": ["age", "dose"], **per_person},
        ]
    )


def _updates(rng: Random, adjacency: str) -> dict[str, Any]:
    """What parties make of a model on their own; steps that are far too long among it."""
    coins = [{"party_rate": 0.6}] if adjacency == "add-remove" else []
    return {
        "name": rng.choice(["federated-averaging", "scaffold"]),
        "rounds": 3,
        "allow_swamped": True,
        "batch_size": rng.choice(["all", 1, 4]),
        "weights": rng.choice(["equal", "proportional"]),
        "local_learning_rate": rng.choice([0.1, 1e6]),
        **rng.choice([{}, {"cohort": 2}, {"local_steps": 5}, *coins]),
    }


def _counted(rng: Random, kind: str) -> dict[str, Any]:
    """Tables and curves, which need categories."""
    if kind == "number":
        return {"bins": 8}
    seen = "yes" if kind == "binary" else "a"
    curve = {"time": "dose", "event": "outcome", "seen": seen, "edges": [-0.25, 0.5]}
    return {
        "tables": [["ward", "outcome"]],
        "survival": {**curve, **rng.choice([{}, {"by": "ward"}])},
    }


def _ball(rng: Random, strategy: dict[str, Any]) -> dict[str, float]:
    """A ball for the model, where it is projected onto one; steps are far too long for some."""
    descends = ("gradient-perturbation", "adaptive-clipping", "federated-averaging", "scaffold")
    fits = ("output-perturbation", "objective-perturbation")
    if strategy["name"] not in (*descends, *fits) or rng.random() < 0.6:
        return {}
    return {"radius": rng.choice([0.05, 3.0])}


def _tuning(rng: Random, strategy: dict[str, Any], kind: str, unit: str) -> dict[str, Any]:
    """Settings to try and to pay for, where they can be; steps that are far too long among them."""
    grids = {
        "gradient-perturbation": {"strategy.learning_rate": [0.1, rng.choice([1.0, 1e30, 1e300])]},
        "second-order": {"strategy.floor": [0.5, 2.0]},
    }
    if strategy["name"] not in grids or "sampling_rate" in strategy or rng.random() < 0.6:
        return {}
    score = "loss" if unit == "person" or kind == "number" else rng.choice(["loss", "accuracy"])
    grid = grids[strategy["name"]]
    return {"on": "private", "expected_trials": rng.choice([1.5, 3]), "grid": grid, "score": score}


def draw_rows(case: Drawn, rng: Random) -> list[Row]:
    """A table, in no order; of some records there are copies."""
    rows = [_row(case, rng, p) for p, size in rng.choice(_SIZES).items() for _ in range(size)]
    rows += [dict(rows[0]) for _ in range(rng.choice([0, 0, 4]))]
    rng.shuffle(rows)
    return rows


def neighbour(case: Drawn, rows: list[Row], rng: Random) -> list[Row]:
    """A table that differs by one unit.

    Where samples are drawn, by one more at the end of the last party: all others then have the
    coins that they had, and what the sum moves by is what that unit adds to it.
    """
    others = [dict(row) for row in rows]
    new = [_row(case, rng, rng.choice(list(PARTIES)), "new") for _ in range(rng.randint(1, 8))]
    if case.sampled:
        last = [{**row, "clinic": "west"} for row in new]
        return [*others, *(last[:1] if case.unit == "record" else last)]
    replaced = case.adjacency == "replace-one"
    if case.unit == "record":
        place = rng.randrange(len(others))
        if not replaced:
            return [
                *others[:place],
                *rng.choice([[], [others[place], new[0]]]),
                *others[place + 1 :],
            ]
        kept = {key: others[place][key] for key in ("clinic", "fold", "patient")}
        others[place] = {**new[0], **kept}
        return others
    key = "patient" if case.unit == "person" else "clinic"
    gone = rng.choice(others)[key]
    rest = [row for row in others if row[key] != gone]
    if case.unit == "party":
        new = [{**row, "clinic": gone} for row in new]
    return [*new[:2], *rest, *new[2:]] if replaced else rest


def _row(case: Drawn, rng: Random, party: str, person: str | None = None) -> Row:
    labels = {"binary": ["yes", "no"], "classes": ["a", "b", "c"]}
    numbers = ["1", "-1", "-0.0", "1e-45", repr(rng.uniform(-1, 1))]
    return {
        "age": _number(rng, *case.ends),
        "dose": _number(rng, -1.0, 1.0),
        "ward": rng.choice(["icu", "er", "", "nobody knows"]),
        "outcome": rng.choice(labels.get(case.kind, numbers)),
        "clinic": party,
        "fold": str(rng.randint(1, 6)),
        "patient": person or f"p{rng.randint(0, 9)}",
    }


def _number(rng: Random, low: float, high: float) -> str:
    ends = [repr(low + (high - low) * rng.random()), repr(low), repr(high)]
    return rng.choice([*ends, *ends, rng.choice(_STRANGE)])
