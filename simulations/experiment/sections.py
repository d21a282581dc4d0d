"""Tables of an experiment file: data, strategy, privacy, persons, run; their keys and rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.unit import Unit, sizes_are_public
from fedpriv.simulations.experiment.budgets import INFINITE, NO_RELEASE, Epsilon
from fedpriv.simulations.experiment.named_files import guests

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Sequence = Field(strict=False)  # TOML has lists where a frozen value has tuples


class Section(BaseModel):
    """A table of the file: frozen, no unknown keys, no silent conversions, no NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class DataSection(Section):
    """Which records, and who holds them.

    Attributes:
        name: a built-in data set, or a function of one's own, ``file.py:Name``; or else ``path``.
        path: a CSV or Parquet file, relative to the experiment file; in a deployment, that of a
            public test set, if there is one.
        schema_path: its schema (key ``schema``); alone in a deployment, where parties hold the
            records.
        root: the folder of `.npz` archives, instead of FEDPRIV_DATA.
        store: a folder of `fedpriv data shard` with these records, as prepared by all other keys;
            ``path`` of an experiment file may name it, and the other keys are filled in.
        partition: how records are given to parties; ``natural`` and ``hashed`` look at one record
            at a time, which a release needs.
        parties: how many; with ``natural``, so many of the natural ones, chosen by the seed.
        exponent: of the sizes, for ``sized``.
        alpha: concentration, for ``dirichlet``.
        records: the public number of records, in all or by party, that every number of a run is
            computed from; needed by a release under add-remove adjacency, and for persons and
            parties, where the true one is private. For persons it is the number of *persons*. If
            not given, they are counted.
        min_records: fewest records of a party; no demand if not given.
        test_fraction: share of the records to test on, drawn by a seeded hash of each; 0 for none.
            If not given: the data set's own split, or 0.2.
        public_test: whether the test records are public: a real release computes no metric on
            records that are not.
        feature_norm: bound on ‖x‖₂, the intercept included.
        intercept: the constant feature; 0 for none.
        scaling: how the bound is enforced.
        records_per_person: most records of one person, for the statement: what a guarantee for one
            record means for a person, by group privacy.
    """

    name: str | None = None
    path: str | None = None
    schema_path: str | None = Field(default=None, alias="schema")
    root: str | None = None
    store: str | None = None
    partition: Literal["natural", "hashed", "iid", "sized", "dirichlet"] = "natural"
    parties: Count | None = None
    exponent: Annotated[float, Field(ge=0)] | None = None
    alpha: Positive | None = None
    records: Count | Annotated[tuple[Count, ...], Sequence] | None = None
    min_records: Count | None = None
    test_fraction: Annotated[float, Field(ge=0, lt=1)] | None = None
    public_test: bool = False
    feature_norm: Positive = 1.0
    intercept: float = 1.0
    scaling: Literal["clip", "divide"] = "clip"
    records_per_person: Count = 1

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.name is None) == (self.path is None and self.schema_path is None):
            both = "" if self.name is None else f"; got both, with name = {self.name!r}"
            raise ValueError(
                f"needs either name, a built-in data set, or path, a file of your own{both}."
            )
        if self.path is not None and self.schema_path is None:
            raise ValueError(
                "path needs a schema beside it, a file that states the public bounds of the table "
                "and its label: docs/own-table.md has one to begin with."
            )
        if self.partition != "natural" and self.parties is None:
            raise ValueError(
                f"parties must be given for partition = {self.partition!r}, as in parties = 3."
            )
        for option, owner in (("exponent", "sized"), ("alpha", "dirichlet")):
            if getattr(self, option) is not None and self.partition != owner:
                raise ValueError(f"{option} is for partition = {owner!r} only.")
        return self

    @property
    def title(self) -> str:
        """What reports call the data."""
        if self.name is not None:
            return guests.title(self.name)
        return Path(str(self.path or self.schema_path)).stem


class StrategySection(Section):
    """How it is learned: a name, and whatever options that strategy has.

    In `compare`, ``label`` tells two settings of one strategy apart.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: str
    label: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Everything but name and label."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def title(self) -> str:
        """What tables call it."""
        return self.label or guests.title(self.name)


class PrivacySection(Section):
    """The budget of the run, which data sets the guarantee compares, and who adds the noise.

    Attributes:
        epsilon: ε; "inf" for a simulation without noise: the twin of a private run, never released.
        twin_of: without noise, the ε of the private run that this is the twin of: settings that
            follow from a budget are those of that run. If not given, they are those of no noise.
        delta: δ; 0 for a pure guarantee.
        adjacency: when two data sets are neighbours.
        unit: whose privacy is protected: one record, all records of one person, or all records of
            one party.
        noise_at: "server", who then sees exact sums; or "parties", each with a share of the noise,
            sized for ``run.dropout`` and ``colluding``.
        colluding: the largest fraction of the parties that tell the server all they know: masks
            and shares of noise hold against so many, and of three or more parties against one at
            least; 0 says that nobody does.
        share_law: of the shares; "auto" is Skellam if δ > 0, else Pólya.
    """

    epsilon: Epsilon = 1.0
    twin_of: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] = 1e-6
    adjacency: Literal["replace-one", "add-remove"] = "replace-one"
    unit: Literal["record", "person", "party"] = "record"
    noise_at: Literal["server", "parties"] = "server"
    colluding: Annotated[float, Field(ge=0, lt=1)] = DEFAULT_COLLUDING
    share_law: Literal["auto", "skellam", "discrete-gaussian", "polya"] = "auto"

    @property
    def sizes_public(self) -> bool:
        """Whether the numbers of records are public; else a release uses declared ones."""
        return sizes_are_public(Unit(self.unit), Adjacency(self.adjacency))

    @property
    def noise_free(self) -> bool:
        """Whether nothing is promised, whatever the strategy."""
        return self.epsilon == INFINITE

    @model_validator(mode="after")
    def _twin_without_noise(self) -> Self:
        if self.twin_of is not None and not self.noise_free:
            raise ValueError(
                f"twin_of is for epsilon = 'inf', a run without noise, got epsilon = {self.epsilon}"
            )
        return self

    @property
    def twin_budget(self) -> Budget | None:
        """(ε, δ) of the private run whose settings a run without noise takes."""
        return None if self.twin_of is None else Budget(epsilon=self.twin_of, delta=self.delta)

    @property
    def budget(self) -> Budget:
        """(ε, δ), of which there is none without noise."""
        if self.epsilon == INFINITE:
            raise ValueError(NO_RELEASE)
        return Budget(epsilon=self.epsilon, delta=self.delta)


class PersonsSection(Section):
    """How much of the data one person may be, for ``privacy.unit = "person"``: declared bounds.

    Attributes:
        records: most records of one person at one party; what a person has beyond is dropped by a
            rule that looks at that person alone. If not given, any number.
        parties: at how many parties one person may have records. In a deployment it is a promise
            that no party can check; where all records are in one place, what is beyond is dropped.
    """

    records: Count | None = None
    parties: Count = 1


class RunSection(Section):
    """How a run is carried out.

    Attributes:
        seed: drives partition, first model, sampling and, in a simulation, the noise.
        engine: what computes the sums: ``vectorized``, all parties in one computation; ``local``,
            the real ClientApp of every party in one process; ``sharded``, that of ``vectorized``
            in worker processes of one machine or many; ``ray``, Flower's simulation runtime;
            ``deployment``, parties on machines of their own.
        workers: threads of ``vectorized``, processes of ``sharded``; one per processor if not
            given. No number of a run depends on it.
        ray_address: of a Ray cluster for ``sharded``, such as "auto" or "10.0.0.5:6379"; processes
            of this machine if not given.
        device: where clipped gradients of a network that is a module are computed: ``cpu``; a GPU
            as PyTorch calls it, such as ``cuda``; ``auto``, a GPU where there is one. Simulations
            in one process only.
        secure_aggregation: how answers are protected on the way to the sum; if not given,
            ``semi-honest`` for ``local`` and ``ray`` and ``active`` for ``deployment``.
            ``vectorized`` and ``sharded`` compute the ideal sum.
        least_parties: in a deployment, the least number of parties in a sum that is opened; at
            least what every party's policy asks for.
        dropout: the largest fraction of the parties that may be missing from a sum. In a simulation
            so many leave every second round, and come back.
        evaluate_every: rounds between metrics; "auto" keeps them cheap against the training.
        checkpoint_seconds: time between checkpoints, for `--resume`.
        training_metrics: whether a simulation computes the training objective, its excess over the
            minimum and the distance from it after every round; never a release, for nobody pays.
    """

    seed: Seed = 0
    engine: Literal["vectorized", "local", "sharded", "ray", "deployment"] = "vectorized"
    workers: Count | None = None
    ray_address: str | None = None
    device: Annotated[str, Field(pattern=r"^[a-z]+(:[0-9]+)?$")] = "cpu"
    secure_aggregation: Literal["off", "semi-honest", "active"] | None = None
    least_parties: Count | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    evaluate_every: Count | Literal["auto"] = "auto"
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 2.0
    training_metrics: bool = False

    @model_validator(mode="after")
    def _nothing_to_measure(self) -> Self:
        if self.engine == "deployment" and self.training_metrics:
            raise ValueError(
                "training_metrics is for simulations: in a deployment no one place has the records."
            )
        return self

    @model_validator(mode="after")
    def _nothing_to_mask(self) -> Self:
        if self.ideal and self.level != "off":
            raise ValueError(
                f"secure_aggregation = {self.secure_aggregation!r} needs engine = 'local' or "
                f"'ray': {self.engine!r} computes what the protocol would return, without it."
            )
        return self

    @model_validator(mode="after")
    def _workers_somewhere(self) -> Self:
        if self.ray_address is not None and self.engine != "sharded":
            raise ValueError(
                f"ray_address is for engine = 'sharded', got engine = {self.engine!r}."
            )
        if self.workers is not None and not self.ideal:
            raise ValueError(
                f"workers is for engine = 'vectorized' or 'sharded', got {self.engine!r}."
            )
        return self

    @model_validator(mode="after")
    def _device_of_this_process(self) -> Self:
        if self.device != "cpu" and self.engine not in ("vectorized", "local"):
            raise ValueError(
                f"device must be 'cpu' for engine = {self.engine!r}, got {self.device!r}: an "
                "accelerator is used by simulations in one process, 'vectorized' and 'local'."
            )
        return self

    @property
    def ideal(self) -> bool:
        """Whether the engine computes ideal sums, without a protocol."""
        return self.engine in ("vectorized", "sharded")

    @property
    def level(self) -> Literal["off", "semi-honest", "active"]:
        """How answers are protected, if the file leaves it open."""
        if self.secure_aggregation is not None:
            return self.secure_aggregation
        if self.ideal:
            return "off"
        return "active" if self.engine == "deployment" else "semi-honest"
