"""Settings of the documentation site: Sphinx, MyST for Markdown and notebooks, the theme Furo.

`make docs` builds it, without a network: fonts are the reader's own, and nothing is loaded from
elsewhere. A broken link, or a page that no table of contents leads to, is an error.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from notebooks import NotebookParser
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

import fedpriv

project = "fedpriv"
author = "the authors of fedpriv"
version = release = fedpriv.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["site"]

html_theme = "furo"
html_title = f"fedpriv {version}"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses for files
html_static_path = ["static"]
html_css_files = ["wide.css"]

myst_heading_anchors = 4

default_role = "code"  # a word in backquotes is code in docstrings, as in Markdown
autodoc_typehints = (
    "none"  # signatures have them; types of other libraries would be links to nowhere
)
autodoc_member_order = "bysource"
python_display_short_literal_types = True


_SECTIONS: Any = Config(napoleon_attr_annotations=False)


def _sections(
    app: Sphinx, what: Any, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Args, Returns and so on of a docstring; that of a property has none, and may have colons."""
    if what not in {"attribute", "property"}:
        text = "\n".join(lines)
        lines[:] = GoogleDocstring(text, _SECTIONS, app, what, name, obj, options).lines()


def _levels(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: object
) -> None:
    """A heading in the sidebar says its level, which screen readers ask for."""
    tree = context.get("furo_navigation_tree")
    if isinstance(tree, str):
        context["furo_navigation_tree"] = tree.replace(
            'role="heading"', 'role="heading" aria-level="2"'
        )


def setup(app: Sphinx) -> None:
    """Notebooks are pages, tables of numbers stay as they are, docstrings have sections."""
    app.connect("html-page-context", _levels, priority=900)  # after the theme has made the tree
    app.connect("autodoc-process-docstring", _sections)
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.add_lexer("csv", TextLexer)
