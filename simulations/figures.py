"""Figures that a notebook shows, whatever matplotlib backend it has, and none of pyplot's state."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from fedpriv.data.errors import import_optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(*, width: float, height: float) -> Figure:
    """An empty matplotlib figure, of so many inches; the extra `report` brings matplotlib."""
    import_optional("matplotlib", extra="report")
    from matplotlib.figure import Figure

    class Shown(Figure):
        """A figure that draws itself where a cell ends with it."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    return Shown(figsize=(width, height), layout="constrained")
