"""The site is built from all pages without a warning, and asks nobody else for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.simulations.report.browser import CHROMIUM, DRIVER, MISSING, browser

pytest.importorskip("furo", reason="the site is built with the extra 'docs'")
pytest.importorskip("myst_parser", reason="the site is built with the extra 'docs'")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def built(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    options = ["-q", "-W", "--keep-going", "-c", str(DOCS / "site")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(source), str(target)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser fetches for a page without being asked: everything but where links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"src", "srcset", "data", "poster"} or (tag, name) == ("link", "href"):
                self.places.append(value or "")


def test_every_page_and_notebook_is_in_the_site(site: Path) -> None:
    pages = {path.stem for path in [*DOCS.glob("*.md"), *DOCS.glob("*.ipynb")]}
    assert {path.stem for path in site.glob("*.html")} == pages | {"genindex", "search"}


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    seen = 0
    for page in site.glob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert not [place for place in loaded.places if re.match(r"(\w+:)?//", place)], page.name
        seen += len(loaded.places)
    assert seen > 100
    for sheet in site.rglob("*.css"):
        fetched = re.findall(r"(?:@import|url\()\s*['\"]?(?:\w+:)?//", sheet.read_text("utf-8"))
        assert not fetched, sheet.name


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_the_site_keeps_nobody_out(site: Path, tmp_path: Path) -> None:
    """A page of text, one of tables, a notebook, and the index of names."""
    with browser(tmp_path) as window:
        for name, scheme, width in (
            ("index", "light", 1280),
            ("strategies", "dark", 1280),
            ("quickstart", "light", 380),
            ("genindex", "dark", 380),
        ):
            window.open((site / f"{name}.html").as_uri())
            window.see(scheme=scheme, width=width)
            assert window.barriers() == [], name
            assert window.log("browser") == [], name


def test_the_names_of_the_front_door_are_in_the_reference(site: Path) -> None:
    import fedpriv

    page = (site / "api.html").read_text(encoding="utf-8")
    missing = [n for n in fedpriv.__all__ if n[0] != "_" and f'id="fedpriv.{n}"' not in page]
    assert not missing


def test_a_link_to_nowhere_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "index.md").write_text("# A page\n\n[no page](none.md), [no part](#none)\n")
    done = built(source, tmp_path / "site")
    assert done.returncode != 0
    assert "none.md" in done.stderr
    assert "'none'" in done.stderr
