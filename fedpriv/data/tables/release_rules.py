"""Release rules for schemas: facts about the whole file must not decide about a release.

A record is a row that the schema admits; that depends on the row and the schema alone. A file with
any other row is outside the guarantee, under any rule. This module refuses something else: rules by
which *all rows together* decide whether there is an answer, or which records are in it. Of two
neighbouring files of admitted records, one would then get an answer and the other not, and no noise
hides that.

- A label that is not described. Whether exactly two labels occur is then read off the file:
  without its only positive record it would be refused.
- ``missing = "drop"``. The number of remaining records is then read off the file, and is compared
  with a public number, or published as one.
- A party column whose parties are not listed: the set of parties is then read off the file. At a
  deployed party, any party column: all records there are that party's.
- A feature as the column that sets test records apart. Its values would then be public, since the
  number of training records that they leave counts as public, and also protected, like every other
  feature.

A schema that passes may still refuse a file because of a single row. `refusing_features` lists the
features where that can happen; to rule it out, clamp and fill every feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from fedpriv.data.tables.schema import Schema


def require_releasable(schema: Schema, *, deployed: bool) -> None:
    """Refuse a schema under which facts about the whole file decide about a release.

    Reads no record: the same schema passes, or does not, whatever the file holds.

    Args:
        schema: What is publicly known of the table.
        deployed: Whether the table is that of one deployed party; else it may have a party column
            whose parties are listed.

    Raises:
        DataError: Names every rule that is broken, and the remedy.
    """
    problems = []
    if schema.label not in schema.columns:
        problems.append(
            f"label {schema.label!r} must be described in [columns.{schema.label}], with kind = "
            "'category' and all its values: whether a file has two labels, and positive among "
            "them, depends on single records."
        )
    if schema.missing == "drop":
        problems.append(
            "missing must not be 'drop': the number of records that are left depends on their "
            "values. Give every feature that may be missing a fill, and set missing = 'reject'."
        )
    if schema.test_column in schema.features:
        problems.append(
            f"test_column {schema.test_column!r} must not be a feature: the noise protects what a "
            "feature says of a record, and which records are tested on is public. Take [columns."
            f"{schema.test_column}] out, or copy what is public of it into a column of its own."
        )
    if schema.party is not None and deployed:
        problems.append(
            f"party must not be given for the file of one deployed party, got {schema.party!r}: "
            "all its records are that party's. Take it out of the schema, and [columns."
            f"{schema.party}] with it."
        )
    elif schema.party is not None and schema.party not in schema.columns:
        problems.append(
            f"party {schema.party!r} must be described in [columns.{schema.party}], with kind = "
            "'category' and the names of all parties: who is one must not depend on records."
        )
    if problems:
        raise DataError("schema: " + " ".join(problems))


def refusing_features(schema: Schema) -> tuple[str, ...]:
    """The features of which one value, out of range or missing, makes a file unusable."""
    return tuple(
        name
        for name, column in schema.features.items()
        if column.fill is None or (column.out_of_range or schema.out_of_range) != "clamp"
    )
