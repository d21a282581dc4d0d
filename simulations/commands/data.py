"""`fedpriv data`: stores of prepared records, for data that outgrow the memory or one machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson, Settings
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from fedpriv.data.store.manifest import Manifest
    from fedpriv.simulations.experiment.file import Experiment

_TABLES = (".csv", ".parquet")


def register(app: typer.Typer) -> None:
    """Add the commands of this file to ``app``."""
    group = typer.Typer(
        help="Prepare records once, in a folder that runs map from disk.",
        no_args_is_help=True,
        rich_markup_mode="rich",
    )
    group.command(cls=WithSettings)(shard)
    group.command()(check)
    app.add_typer(group, name="data")


def shard(
    source: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT|TABLE",
            help="An experiment, whose data section says how; or a CSV or Parquet file.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to create.")],
    settings: Settings = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="The schema of a TABLE; by default, the file of the same name with .toml."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Split, bound and partition records, and write them to a store.

    A table is read a few thousand rows at a time, so it need not fit into memory. Experiments then
    name the folder as data.path. It contains all records in the clear, and nobody else can read it.

    [bold]Example[/]:

        fedpriv data shard visits.csv visits.store --set data.partition=hashed --set data.parties=50

        fedpriv run mine.toml --set data.path=visits.store --engine sharded
    """
    from fedpriv.simulations.experiment.records.sharding import shard as write

    with refusals():
        manifest = write(_experiment(source, settings or [], schema), out)
    _tell(out, manifest, as_json=as_json)


def check(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="A folder created by `data shard`.")
    ],
    as_json: AsJson = False,
) -> None:
    """Read a store from end to end, and compare every file with its hash.

    [bold]Example[/]: after it was copied to another machine:

        fedpriv data check visits.store
    """
    from fedpriv.data.store.reader import verify_store

    with refusals():
        manifest = verify_store(store)
    _tell(store, manifest, as_json=as_json)


def _experiment(source: str, settings: list[str], schema: Path | None) -> Experiment:
    from fedpriv.simulations.experiment.file import read_experiment

    table = Path(source)
    if table.suffix not in _TABLES:
        if schema is not None:
            raise ValueError(f"--schema is for a TABLE, got the experiment {source!r}.")
        return read_experiment(source, settings)
    data = {"path": str(table), "schema": str(schema or table.with_suffix(".toml"))}
    values = {"data": data, "strategy": {"name": "gradient-perturbation"}}
    return read_experiment(values, settings)


def _tell(folder: Path, manifest: Manifest, *, as_json: bool) -> None:
    arrays = manifest.arrays
    facts: dict[str, Any] = {
        "store": str(folder),
        "parties": manifest.parties,
        "train": arrays["train_X"].shape[0],
        "test": arrays["test_X"].shape[0],
        "features": arrays["train_X"].shape[1],
        "partition": manifest.partition,
    }
    if as_json:
        print_json(facts)
        return
    typer.echo(
        f"{folder}: {facts['train']} training and {facts['test']} test records × "
        f"{facts['features']} features of {facts['parties']} parties ({facts['partition']}).\n"
        "It holds them in the clear: keep it as you keep the table."
    )
