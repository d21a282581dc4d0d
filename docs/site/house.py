"""The tree on the architecture page: every package, with the first line of its own docstring.

    python docs/site/house.py            # writes it into docs/architecture.md

A line that reads badly there reads badly in the code, and is mended in the code.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TOP = ("fedpriv", "strategies", "simulations")


def packages() -> list[Path]:
    """All packages of the product, each before those in it; links within it are not followed."""
    folders = [
        path.parent.relative_to(ROOT)
        for top in TOP
        for path in (ROOT / top).rglob("__init__.py")
        if not any(parent.is_symlink() for parent in path.parents)
    ]
    return sorted(folders, key=lambda folder: (TOP.index(folder.parts[0]), folder.parts))


def first_paragraph(folder: Path) -> str:
    """The first paragraph of a package's docstring, as one line."""
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def tree() -> str:
    """The packages as a table, indented as they lie in each other."""
    lines = ["| folder | what lives there |", "|---|---|"]
    for folder in packages():
        depth = len(folder.parts) - 1
        name = "&emsp;" * depth + f"`{folder.name if depth else folder}/`"
        lines.append(f"| {name} | {first_paragraph(folder)} |")
    return "\n".join(lines)


def with_tree(page: str) -> str:
    """The page, with the tree of today between its two marks."""
    marked = re.compile(r"(<!-- tree -->\n).*?(<!-- end of tree -->)", re.DOTALL)
    if len(marked.findall(page)) != 1:
        raise ValueError("the page must hold one pair of marks, <!-- tree --> and its end.")
    return marked.sub(lambda found: f"{found[1]}\n{tree()}\n\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(with_tree(PAGE.read_text()))
