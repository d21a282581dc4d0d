"""TensorBoard as a tracker: rounds as scalars, settings as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.data.errors import import_optional

if TYPE_CHECKING:
    from collections.abc import Mapping


class TensorBoard:
    """Writes event files for TensorBoard into a folder of the run's name.

    Args:
        folder: Where; `tensorboard --logdir` shows it.
    """

    def __init__(self, folder: str | Path = "runs") -> None:
        import_optional("tensorboard", extra="tracking")
        self._folder = Path(folder)

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        """Open the files, and write the settings into them."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder / name))
        lines = "".join(f"    {key} = {value}\n" for key, value in settings.items())
        self._writer.add_text("settings", lines)

    def follow(self, number: int, values: Mapping[str, float]) -> None:
        """A point on the curve of each value."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def end(self, values: Mapping[str, float]) -> None:
        """The result, beside the curves."""
        for name, value in values.items():
            self._writer.add_scalar(f"result/{name}", value)

    def close(self) -> None:
        """Write what is left, and close the files."""
        self._writer.close()
