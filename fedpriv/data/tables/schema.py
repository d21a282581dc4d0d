"""The schema: what is publicly known about a table, its columns, bounds, label and parties.

A schema is written before anyone looks at the records and is the same for all parties:

    label = "income"
    positive = ">50K"
    party = "state"
    person = "patient"
    out_of_range = "clamp"

    [columns.age]
    kind = "number"
    min = 17
    max = 90

    [columns.job]
    kind = "category"
    values = ["clerk", "nurse", "other"]
"""

from __future__ import annotations

from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from fedpriv._toml import read_toml
from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from fedpriv.data.dataset import Task

Rule = Literal["reject", "clamp"]


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("must be a text that is not blank, an integer, or true or false")


# Labels and categories are compared as text: 1 and "1" are the same category.
Text = Annotated[str, BeforeValidator(_to_text)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Table(BaseModel):
    """A TOML table that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            raise ValueError("must be a table")  # pydantic turns no other error into its own
        for key in values:
            if key not in cls.model_fields:
                near = get_close_matches(key, cls.model_fields, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                known = ", ".join(cls.model_fields)
                raise ValueError(f"unknown key {key!r}; known are {known}.{hint}")
        return values


class NumberColumn(_Table):
    """A number with public bounds, scaled from [min, max] to [−1, 1].

    Attributes:
        kind: ``number``.
        min: The least possible value.
        max: The largest possible value.
        out_of_range: The rule for values outside; the schema's, if not given.
        fill: A public constant that stands for a missing value; without it, the schema's rule.
    """

    kind: Literal["number"]
    min: Number
    max: Number
    out_of_range: Rule | None = None
    fill: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.min < self.max:
            raise ValueError(f"min must be below max, got {self.min} and {self.max}")
        if not isfinite(self.max - self.min):
            raise ValueError("max - min must be finite")
        if self.fill is not None and not self.min <= self.fill <= self.max:
            raise ValueError(f"fill must lie in [{self.min}, {self.max}], got {self.fill}")
        return self


class CategoryColumn(_Table):
    """One of finitely many public values, encoded as one column of 0 and 1 per value.

    Attributes:
        kind: ``category``.
        values: The values that can occur.
        out_of_range: The rule for other values; to clamp one means zeros in every column.
        fill: One of ``values`` that stands for a missing one; without it, the schema's rule.
    """

    kind: Literal["category"]
    values: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]
    out_of_range: Rule | None = None
    fill: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.values)) != len(self.values):
            raise ValueError("values must differ from each other")
        if self.fill is not None and self.fill not in self.values:
            raise ValueError(f"fill must be one of values, got {self.fill!r}")
        return self


Column = Annotated[NumberColumn | CategoryColumn, Field(discriminator="kind")]


class Schema(_Table):
    """The public description of a table.

    The task follows from the label: with ``positive`` it is binary; otherwise the label needs a
    table of its own under ``columns``, and is a class if that is a category, or a real number.

    Attributes:
        label: The column to predict.
        columns: The features, in their order. The label and the party may be described
            here too: a category then lists all labels, or all parties, that may occur.
        positive: The label that becomes +1; all others become −1.
        party: The column that names the party holding a record.
        person: The column that names whose record it is, by any text or number: for a guarantee
            about all records of a person. It is an identifier and never a feature.
        out_of_range: What to do with a value outside its bounds: ``reject`` the file, or ``clamp``.
        missing: What to do with a missing value: ``reject`` the file, or ``drop`` the record.
        missing_values: Texts that mean a missing value, beside the empty one.
        delimiter: What separates the values of a row of CSV.
        test_column: A column with public values that decide which records are for testing.
        test_values: The values that mark test records.
    """

    label: Text
    columns: Annotated[dict[str, Column], Field(min_length=1)]
    positive: Text | None = None
    party: Text | None = None
    person: Text | None = None
    out_of_range: Rule = "reject"
    missing: Literal["reject", "drop"] = "reject"
    missing_values: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    test_column: Text | None = None
    test_values: Annotated[tuple[Text, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        label = self.columns.get(self.label)
        if self.party == self.label:
            raise ValueError("party must be another column than label")
        if not self.features:
            raise ValueError("columns must describe at least one feature")
        if (self.test_column is None) != (not self.test_values):
            raise ValueError("test_column and test_values must be given together")
        if self.test_column == self.label:
            raise ValueError("test_column must be another column than label")
        if self.person is not None and self.person in (self.label, self.party, self.test_column):
            raise ValueError("person must be another column than label, party and test_column")
        if self.person is not None and self.person in self.columns:
            raise ValueError(
                f"[columns.{self.person}] must not be there: person names an identifier, which is "
                "no feature and has no bounds"
            )
        if self.positive is None and label is None:
            raise ValueError(
                f"give positive, or describe the label in [columns.{self.label}]: "
                "a category for classes, a number for regression"
            )
        if self.positive is not None and label is not None:
            values = label.values if isinstance(label, CategoryColumn) else ()
            if self.positive not in values:
                known = f": {', '.join(map(repr, values))}" if values else ", and it has none"
                raise ValueError(
                    f"positive must be one of the values in [columns.{self.label}]{known}; got "
                    f"{self.positive!r}"
                )
        if label is not None and label.fill is not None:
            raise ValueError(f"[columns.{self.label}]: a label cannot have a fill")
        party = self.columns.get(self.party) if self.party is not None else None
        if isinstance(party, NumberColumn) or (party is not None and party.fill is not None):
            raise ValueError(f"[columns.{self.party}]: a party must be a category without fill")
        for name, column in ((self.label, label), (self.party, party)):
            if isinstance(column, CategoryColumn) and column.out_of_range is not None:
                raise ValueError(
                    f"[columns.{name}]: out_of_range has no meaning for a label or a party; "
                    "one that is not in values is always refused"
                )
        return self

    @property
    def features(self) -> dict[str, NumberColumn | CategoryColumn]:
        """The columns that are neither label nor party."""
        return {
            name: column
            for name, column in self.columns.items()
            if name not in (self.label, self.party)
        }

    @property
    def named(self) -> dict[str, str]:
        """The columns that a file must have, each with the key of the schema that names it."""
        others = ("label", "party", "person", "test_column")
        keys = {name: key for key in others if (name := getattr(self, key)) is not None}
        return {name: f"[columns.{name}]" for name in self.features} | keys

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded features: ``age``, and ``job=clerk`` for a category."""
        names: list[str] = []
        for name, column in self.features.items():
            if isinstance(column, CategoryColumn):
                names.extend(f"{name}={value}" for value in column.values)
            else:
                names.append(name)
        return tuple(names)

    @property
    def task(self) -> Task:
        """The learning task."""
        if self.positive is not None:
            return "binary"
        is_class = isinstance(self.columns[self.label], CategoryColumn)
        return "multiclass" if is_class else "regression"

    @property
    def label_range(self) -> tuple[float, float] | None:
        """For a regression: the range of the label, which is scaled to [−1, 1] in records."""
        label = self.columns.get(self.label)
        return (label.min, label.max) if isinstance(label, NumberColumn) else None


def parse_schema(values: dict[str, Any], *, source: str = "schema") -> Schema:
    """Check the content of a schema; the error lists everything that is wrong."""
    try:
        return Schema.model_validate(values)
    except ValidationError as error:
        problems = " ".join(_explain(problem) for problem in error.errors())
    raise DataError(f"{source}: {problems}")


def read_schema(path: str | Path) -> Schema:
    """Read a schema from a TOML file."""
    path = Path(path)
    try:
        values = read_toml(path, "schema")
    except ValueError as error:
        raise DataError(str(error)) from None
    return parse_schema(values, source=path.name)


_NEEDED = {
    "label": 'it names the column that is learned, as in label = "ill"',
    "columns": "each column has a table of its own, as in [columns.age]",
    "values": "a category lists all the values that it may have",
    "min": "a number has public bounds, min and max",
    "max": "a number has public bounds, min and max",
}


# What pydantic calls a rule, in the words of a TOML file.
_RULES = {
    "literal_error": "{expected}",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_attributes_type": "a table",
    "string_too_long": "one character",
    "string_too_short": "one character",
}


def _explain(problem: Any) -> str:
    # The kind of a column is part of pydantic's location, and of no name in the file.
    place = [part for i, part in enumerate(problem["loc"]) if i != 2]
    message: str = problem["msg"].removeprefix("Value error, ")
    given = problem["input"]
    if problem["type"] == "union_tag_not_found":
        message = "kind is missing; it is 'number' or 'category'"
    elif problem["type"] == "union_tag_invalid":
        message = f"kind must be 'number' or 'category', got {given['kind']!r}"
    elif (rule := _RULES.get(problem["type"])) is not None:
        message = f"must be {rule.format(**problem.get('ctx', {}))}, got {given!r}"
    if problem["type"] == "missing":
        message = f"is missing; {_NEEDED.get(str(place[-1]), 'every schema states it')}"
    end = "" if message.endswith(("?", ".")) else "."
    where = ".".join(str(part) for part in place)
    joint = " " if message.startswith("is missing") else ": "
    return (f"{where}{joint}" if where else "") + message + end
