"""Notebooks as pages of the site: their words, and their code without what it printed."""

import json
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser


class NotebookParser(MystParser):
    """A Jupyter notebook, read as the Markdown that it amounts to."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse ``inputstring``, the JSON of a notebook."""
        super().parse("\n\n".join(_blocks(json.loads(inputstring))), document)


def _blocks(notebook: dict[str, Any]) -> Iterator[str]:
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
