"""Data: built-in data sets, a user's own tables, public feature bounds, and partitions.

The usual sequence is `load` or `read_table`, then `hold_out`, `bound`, and `partition`.
"""

from fedpriv.data.bounds import Bounds, enforce
from fedpriv.data.builtin.registry import DEFAULT, Entry, entries, load, names
from fedpriv.data.builtin.synthetic import SyntheticProblem, synthetic
from fedpriv.data.dataset import Dataset, Records, Task
from fedpriv.data.describe import Description, describe
from fedpriv.data.errors import DataError
from fedpriv.data.fingerprint import built_in_identity, table_identity
from fedpriv.data.partition import PartitionedDataset, partition
from fedpriv.data.persons import Persons
from fedpriv.data.preprocessing import Preprocessing, bound
from fedpriv.data.split import hold_out, pooled
from fedpriv.data.tables.files import Files, KeptFiles, keep
from fedpriv.data.tables.load_report import LoadReport
from fedpriv.data.tables.release_rules import refusing_features, require_releasable
from fedpriv.data.tables.schema import Schema, parse_schema, read_schema
from fedpriv.data.tables.table import read_table

__all__ = [
    "DEFAULT",
    "Bounds",
    "DataError",
    "Dataset",
    "Description",
    "Entry",
    "Files",
    "KeptFiles",
    "LoadReport",
    "PartitionedDataset",
    "Persons",
    "Preprocessing",
    "Records",
    "Schema",
    "SyntheticProblem",
    "Task",
    "bound",
    "built_in_identity",
    "describe",
    "enforce",
    "entries",
    "hold_out",
    "keep",
    "load",
    "names",
    "parse_schema",
    "partition",
    "pooled",
    "read_schema",
    "read_table",
    "refusing_features",
    "require_releasable",
    "synthetic",
    "table_identity",
]
