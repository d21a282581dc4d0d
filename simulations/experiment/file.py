"""Experiment files: what a run is, in one validated value.

A file is TOML. Every key is checked before anything is computed; an unknown one is refused with the
nearest known one. What an experiment leaves out is filled in, and the result directory of a run
holds the file with nothing left out. Two experiments with the same `config_hash` compute the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, ValidationError, model_validator

from fedpriv._toml import parse_toml, read_toml, to_toml
from fedpriv.simulations.experiment.budgets import NO_RELEASE
from fedpriv.simulations.experiment.changes import apply, leave_behind
from fedpriv.simulations.experiment.compare_section import CompareSection  # noqa: TC001 - pydantic
from fedpriv.simulations.experiment.complaints import complaint
from fedpriv.simulations.experiment.model_section import ModelSection
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.experiment.named_files.protector_file import (
    anchor_protector,
    pin_protector,
)
from fedpriv.simulations.experiment.named_files.start_file import pin_start
from fedpriv.simulations.experiment.records.store_keys import take_store
from fedpriv.simulations.experiment.sections import (
    DataSection,
    PersonsSection,
    PrivacySection,
    RunSection,
    Section,
    StrategySection,
)
from fedpriv.simulations.experiment.sources import experiment_file, require_no_schema
from fedpriv.simulations.experiment.tuning_section import TuningSection  # noqa: TC001 - pydantic

if TYPE_CHECKING:
    from collections.abc import Iterable

# What does not change a number of a run.
_NOT_HASHED = {
    "path",
    "schema_path",
    "root",
    "store",
    "public_test",
    "label",
    "evaluate_every",
    "checkpoint_seconds",
    "secure_aggregation",
    "least_parties",
    "training_metrics",
    "workers",
    "ray_address",
    "start",  # known by its hash, wherever it lies
}
_BOUNDS = ("feature_norm", "intercept", "scaling")  # whatever they are, the records are the same
_LATER = {
    "model": {"loss", "shape", "options", "start_sha256", "frozen", "radius"},
    "privacy": {"twin_of"},
}


class Experiment(Section):
    """One experiment file.

    Attributes:
        name: what its results are filed under; that of the file, if not given.
        summary: what it is for, for `fedpriv list experiments`.
        describe: what `fedpriv describe` is to tell; an experiment of it needs no strategy.
        guests: by file, or by entry point, the SHA-256 of all code of the user's own that the
            experiment names: filled in when it is read, and compared whenever the code is loaded.
    """

    name: str = "experiment"
    summary: str = ""
    data: DataSection
    model: ModelSection = ModelSection()
    strategy: StrategySection
    privacy: PrivacySection = PrivacySection()
    persons: PersonsSection = PersonsSection()
    run: RunSection = RunSection()
    tuning: TuningSection | None = None
    compare: CompareSection | None = None
    describe: dict[str, Any] | None = None
    guests: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _pin_guests(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if isinstance(asked := values.get("describe"), dict) and "strategy" not in values:
            values = {**values, "describe": None, "strategy": {"name": "describe", **asked}}
        run = values.get("run")
        if isinstance(run, dict) and run.get("engine") == "deployment":
            guests.require_no_guest(values)
        pins = guests.pinned(values)
        return {**values, "guests": pins} if pins else values

    @model_validator(mode="after")
    def _records_somewhere(self) -> Self:
        deployed, section = self.run.engine == "deployment", self.data
        if deployed and section.schema_path is None:
            raise ValueError("data.schema must be given with engine = 'deployment'.")
        if not deployed and section.name is None and section.path is None:
            raise ValueError(
                "data.path is missing: a schema without records is for engine = 'deployment'."
            )
        if deployed and self.model.frozen:
            raise ValueError(
                "model.frozen must be empty with engine = 'deployment': every party would have to "
                "compute with the frozen weights, and one that is deployed reads no file that an "
                "experiment names."
            )
        if deployed and self.privacy.noise_free:
            raise ValueError(NO_RELEASE)
        if section.records is not None and self.privacy.sizes_public:
            raise ValueError(
                "data.records must not be given under replace-one adjacency for privacy.unit = "
                "'record', where the number of records is public, and counted. It is for "
                "add-remove, and for the other units."
            )
        if self.privacy.unit == "person" and section.records_per_person != 1:
            raise ValueError(
                "data.records_per_person is for group privacy, beside a guarantee for one record; "
                "for privacy.unit = 'person' state persons.records, or nothing."
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """The experiment as JSON-ready values with nothing left out but what is not set."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not self.guests:
            del values["guests"]
        for key in ("options", "frozen"):
            if not getattr(self.model, key):
                del values["model"][key]
        if not self.run.training_metrics:
            del values["run"]["training_metrics"]
        if self.compare is not None and not self.compare.over:
            del values["compare"]["over"]
        return values

    @model_validator(mode="after")
    def _trials_in_one_place(self) -> Self:
        if self.paid_tuning and self.run.engine != "vectorized":
            raise ValueError(
                f"tuning.on = 'private' needs run.engine = 'vectorized', got {self.run.engine!r}: "
                "how many trials there are must stay hidden, and parties that answer each of them "
                "would count them, and pay for them round by round."
            )
        return self

    @property
    def paid_tuning(self) -> bool:
        """Whether settings are tried on the private records, and paid for."""
        return self.tuning is not None and self.tuning.paid

    @property
    def describing(self) -> bool:
        """Whether it describes a table, and learns nothing."""
        return self.strategy.name == "describe"

    @property
    def guest_code(self) -> list[dict[str, str]]:
        """The code of the user's own that a run executes: kind, source, and SHA-256."""
        return [
            {
                "kind": kind,
                "source": guests.title(name),
                "sha256": pin.removeprefix("sha256:"),
            }
            for (table, key), kind in guests.KEYS.items()
            if (name := getattr(getattr(self, table), key)) is not None
            and (pin := guests.pin_of(kind, name, self.guests)) is not None
        ]

    @property
    def start_file(self) -> dict[str, str] | None:
        """The pretrained model that a run begins with: its file's name, and SHA-256."""
        section = self.model
        if section.start is None or section.start_sha256 is None:
            return None
        return {"source": Path(section.start).name, "sha256": section.start_sha256}

    @property
    def config_hash(self) -> str:
        """SHA-256 of everything that determines a run's numbers: not names, axes or checkpoints."""
        of_persons = ["persons"] if self.privacy.unit == "person" else []
        of_trials = ["tuning"] if self.paid_tuning else []
        names = ["data", "model", "strategy", "privacy", "run", *of_persons, *of_trials]
        return _digest({name: self._section_values(name) for name in names})

    @property
    def run_name(self) -> str:
        """What its runs are called: strategy and hash, in a deployment of the protection as well.

        There only the name in a query binds a party's peers to the experiment that it was shown.
        Two experiments whose hashes share 12 digits are found in 2²⁵ attempts; with them, a server
        could make one party answer while all others contribute nothing. Nor may a run in the clear,
        or with small sums, share the name of one with masks, or with larger sums: parties sign the
        statement of a run by its name.
        """
        title = guests.title(self.strategy.name)
        if self.run.engine != "deployment":
            return f"{title}-{self.config_hash[:12]}"
        protected = [self.config_hash, self.run.level, self.run.least_parties]
        return f"{title}-{_digest(protected)}"

    def seed_of(self, purpose: str) -> int:
        """A seed for one purpose that data and ``run.seed`` alone decide, whatever the strategy.

        So all strategies of a comparison see the same parties, and a larger number of parties
        includes the smaller. All values of a feature bound see them, too: the bound is compared,
        not the split.
        """
        bounds = {key: DataSection.model_fields[key].default for key in _BOUNDS}
        data = {**self._section_values("data"), "parties": None, "records": None, **bounds}
        return int(_digest([purpose, self.run.seed, data])[:32], 16)

    def _section_values(self, name: str) -> dict[str, Any]:
        """A section as it enters a hash; own data by the name of the file, wherever that lies."""
        section: Section = getattr(self, name)
        # Options of a strategy are its own, whatever a user calls them.
        apart = {"label"} if name == "strategy" else _NOT_HASHED
        values = section.model_dump(mode="json", by_alias=True, exclude=apart)
        if name == "data":
            values["title"] = self.data.title
        later = _LATER.get(
            name, set()
        )  # keys that came later leave the hash of older files as it was
        values = {key: value for key, value in values.items() if value or key not in later}
        for (table, key), kind in guests.KEYS.items():
            pin = guests.pin_of(kind, values.get(key), self.guests) if table == name else None
            if pin is not None:  # by its code, wherever its file lies
                values[key] = f"{guests.title(values[key])} {pin}"
        if name == "run":
            # All engines compute the same, up to the fixed-point step: one run, one noise.
            values["engine"] = "vectorized"
            if not self.run.dropout:
                del values["dropout"]
            if self.run.device == "cpu":
                del values["device"]
        return values

    def with_strategy(self, strategy: Mapping[str, Any]) -> Experiment:
        """The experiment with another strategy section."""
        return parse_experiment({**self.to_dict(), "strategy": dict(strategy)})

    def replaced(self, **sections: Mapping[str, Any]) -> Experiment:
        """The experiment with some keys of some sections replaced; None removes a key."""
        values = self.to_dict()
        for section, keys in sections.items():
            merged = {**values.get(section, {}), **keys}
            values[section] = {key: value for key, value in merged.items() if value is not None}
        return parse_experiment(values)


def read_experiment(
    source: str | Path | Mapping[str, Any], overrides: Iterable[str] = (), *, describe: bool = False
) -> Experiment:
    """An experiment: a file, a built-in one by name, or its tables, with ``key=value`` overrides.

    Paths in tables and overrides are relative to the working directory. With ``describe``, no
    strategy is needed.
    """
    if isinstance(source, Mapping):
        values = parse_toml(to_toml(source), "experiment")
    else:
        path = experiment_file(source)
        values = read_toml(path, "experiment")
        require_no_schema(values, path)
        values.setdefault("name", path.stem)
        _anchor(values, path.parent)
    written = values.get("strategy")
    written = dict(written) if isinstance(written, dict) else {}
    for override in overrides:
        apply(values, override)
    if describe:
        values.setdefault("describe", {})
    _anchor(values, Path.cwd())
    anchor_protector(values)
    leave_behind(values, written)
    take_store(values)
    pin_start(values)
    pin_protector(values)
    return parse_experiment(values)


def parse_experiment(values: Mapping[str, Any]) -> Experiment:
    """Check the values of a file; the first thing that is wrong is the message."""
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise ValueError(complaint(error, Experiment)) from None


def _anchor(values: dict[str, Any], folder: Path) -> None:
    """Paths of a file are relative to the file; those of --set to where the command runs.

    From here on they are absolute: what reads them may run elsewhere.
    """
    data = values.get("data")
    if isinstance(data, dict):
        for key in ("path", "schema", "root", "store"):
            if isinstance(data.get(key), str):
                data[key] = str((folder / data[key]).resolve())
    strategy = values.get("strategy")
    schedule = strategy.get("schedule") if isinstance(strategy, dict) else None
    if isinstance(schedule, dict) and str(schedule.get("public")).endswith((".csv", ".parquet")):
        schedule["public"] = str((folder / schedule["public"]).resolve())
    model = values.get("model")
    if isinstance(model, dict) and isinstance(model.get("start"), str):
        model["start"] = str((folder / model["start"]).resolve())
    guests.anchor(values, folder)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()
