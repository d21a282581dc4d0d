"""A progress bar for long work: on a terminal only, and gone when the work is done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Show(Protocol):
    """Shows how far the work has come, and a few words about it."""

    def __call__(self, done: int, words: str, *, total: int | None = None) -> None:
        """Show the progress; ``total`` replaces the number that it is out of."""


@contextmanager
def progress(
    what: str, *, total: int | None = None, words: str = "", quiet: bool = False
) -> Iterator[Show]:
    """Show a progress bar that counts ``what`` until the block ends."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        line = bar.add_task(what, total=total, words=words)

        def show(done: int, words: str, *, total: int | None = None) -> None:
            if total is not None:
                bar.update(line, total=total)
            bar.update(line, completed=done, words=words)

        yield show
