"""The page of a report: one HTML file, from the document that `report.json` holds and nothing else.

Nothing is fetched: style and script stand in the page, there are no fonts and no pictures but the
figures in it, and a content security policy forbids a browser to load or send anything. Everything
from a result is text: the template escapes it, and so does `svg`.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.data.errors import import_optional
from fedpriv.simulations.report.svg import drawn, swatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

PAGE = Path(__file__).parent / "page"
"""The folder of the template, the style sheet and the script."""


def page(document: Mapping[str, Any]) -> str:
    """The page of a document, as JSON has it; the extra `report` brings Jinja."""
    import_optional("jinja2", extra="report")
    from markupsafe import Markup

    style, script = (_read(name) for name in ("page.css", "page.js"))

    def figure(values: Mapping[str, Any], path: str) -> list[tuple[str, bool, Markup]]:
        """Each way to draw it: its name, whether it is seen at first, and the picture."""
        axis = next((values[name] for name in ("x", "y") if values[name]["switch"]), None)
        if axis is None:
            return [("", True, Markup(drawn(values, path=path)))]  # noqa: S704
        return [
            (
                name,
                axis["logarithmic"] is chosen,
                Markup(drawn(values, path=path, logarithmic=chosen)),  # noqa: S704
            )
            for name, chosen in (("logarithmic", True), ("linear", False))
        ]

    return _template().render(
        document=document,
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy=(
            f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        figure=figure,
        tick=_tick,
        number=_number,
        swatch=lambda curve: Markup(swatch(curve)),  # noqa: S704
    )


def _tick(axis: Mapping[str, Any], place: float) -> str:
    """What an axis calls a place: its named tick, or the number."""
    return next((text for text, at in axis["ticks"] if at == place), _number(place))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


@cache
def _read(name: str) -> str:
    return "\n" + (PAGE / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    return environment.get_template("page.html")


def _unbroken(sentence: str) -> str:
    """A sentence in which no line begins with the sign of a number: 95 % stays together."""
    return sentence.replace(" %", "\u00a0%").replace("± ", "±\u00a0")


def _digest(text: str) -> str:
    """How a content security policy names an inline style or script."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
