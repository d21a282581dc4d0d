"""The page in a real browser: it shows what report.json holds, loads nothing, and runs no guest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.report.files import comparison_document_in, write_report
from fedpriv.simulations.report.of_runs import runs_document
from fedpriv.simulations.report.results import RunFiles
from tests.simulations.report.browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from tests.simulations.report.scenes import ATTRIBUTE, HOSTILE, comparison, signed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A comparison, one with hostile names, and a release that parties with such names signed."""
    import fedpriv

    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for kind, name in (("plain", "gradient"), ("hostile", HOSTILE + ATTRIBUTE)):
        made[kind] = folder / kind
        made[kind].mkdir()
        write_report(comparison_document_in(comparison(made[kind], name=name)), made[kind])
    study = {
        "name": HOSTILE,
        "data": {"name": "synthetic", "public_test": True},
        "strategy": {"name": "gradient-perturbation", "rounds": 4},
    }
    out, ledger = folder / "release", folder / "l.ledger"
    fedpriv.run(study, out=out, release=True, ledger=ledger, new_ledger=True)
    write_report(runs_document([signed(RunFiles.read(out), HOSTILE, ATTRIBUTE)]), out)
    made["release"] = out
    return made


def opened(window: Browser, folder: Path) -> dict[str, Any]:
    """Open a page; its numbers."""
    window.open((folder / "report.html").as_uri())
    numbers: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return numbers


def at(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values[int(key)] if isinstance(values, list) else values[key]
    return values


@pytest.mark.parametrize("kind", ["plain", "hostile", "release"])
def test_a_page_loads_nothing_and_complains_of_nothing(
    window: Browser, pages: dict[str, Path], kind: str
) -> None:
    opened(window, pages[kind])
    page = (pages[kind] / "report.html").as_uri()
    assert window.requested() == [page]
    assert window.log("browser") == []
    assert window.run("return performance.getEntriesByType('resource').length") == 0
    # Teeth: what the page would load is seen, and its own policy forbids it.
    window.run(
        "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))"
    )
    assert "Content Security Policy" in window.log("browser")[0]["message"]
    window.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert "Content Security Policy" in window.log("browser")[0]["message"]


@pytest.mark.parametrize("kind", ["plain", "hostile", "release"])
def test_every_number_of_the_page_is_that_of_the_json(
    window: Browser, pages: dict[str, Path], kind: str
) -> None:
    numbers = opened(window, pages[kind])
    cells = window.run(
        "return [...document.querySelectorAll('dd[data-path], td[data-path], th[data-path]')]"
        ".map(e => [e.dataset.path, e.textContent, e.dataset.value ?? null])"
    )
    assert len(cells) > 40
    for path, text, value in cells:
        found = at(numbers, path)
        if isinstance(found, dict):
            assert text == found["text"], path
            assert (None if value is None else json.loads(value)) == found["value"], path
        else:  # a point of a figure
            assert text == f"{found:.6g}", path
    curves = window.run(
        "return [...document.querySelectorAll('.curve')].map(e => [e.dataset.path, "
        "e.dataset.curve, e.dataset.texts])"
    )
    assert curves
    for path, name, texts in curves:
        found = at(numbers, path)
        assert (name, json.loads(texts)) == (found["name"], [p["text"] for p in found["points"]])
    shown = window.run("return document.body.innerText")
    for section in numbers["sections"]:
        for sentence in section["words"]:
            assert " ".join(sentence.split()) in " ".join(shown.split())


def test_what_is_named_like_a_script_is_shown_as_text(
    window: Browser, pages: dict[str, Path]
) -> None:
    for kind in ("hostile", "release"):
        opened(window, pages[kind])
        assert window.run("return window.hacked ?? null") is None
        assert window.run("return document.images.length") == 0
        assert window.run("return document.scripts.length") == 1
        assert HOSTILE in window.run("return document.querySelector('h1').textContent")
    text = window.run("return document.querySelector('#signatures').innerText")
    assert HOSTILE in text
    assert ATTRIBUTE in text
    opened(window, pages["hostile"])
    names = window.run(
        "return [...document.querySelectorAll('.legend li')].map(e => e.textContent)"
    )
    assert HOSTILE + ATTRIBUTE in names


def test_a_curve_is_hidden_everywhere_by_one_button(
    window: Browser, pages: dict[str, Path]
) -> None:
    opened(window, pages["hostile"])
    name = HOSTILE + ATTRIBUTE
    state = """
        const of = (selector) => [...document.querySelectorAll(selector)]
            .filter(e => e.dataset.curve === arguments[0]);
        return [of('svg .curve').every(e => getComputedStyle(e).display === 'none'),
                of('#settings tbody tr').every(e => e.hidden),
                [...document.querySelectorAll('#settings tbody tr')].some(e => !e.hidden),
                of('.legend button').map(e => e.getAttribute('aria-pressed'))];
    """
    press = """[...document.querySelectorAll('.legend button')]
        .find(e => e.dataset.curve === arguments[0]).click()"""
    assert window.run(state, name)[:3] == [False, False, True]
    window.run(press, name)
    hidden, gone, others, pressed = window.run(state, name)
    assert (hidden, gone, others) == (True, True, True)
    assert set(pressed) == {"false"}
    window.run(press, name)
    assert window.run(state, name)[:3] == [False, False, True]
    assert window.log("browser") == []


def test_a_scale_is_switched_and_keeps_its_points(window: Browser, pages: dict[str, Path]) -> None:
    opened(window, pages["plain"])
    seen = """
        const figure = document.querySelector('figure');
        const drawing = [...figure.querySelectorAll('.drawing')].filter(e => e.offsetHeight > 0);
        return [drawing.length, drawing[0].dataset.scale,
                figure.querySelector('.switch').textContent,
                [...drawing[0].querySelectorAll('.curve')].map(e => e.dataset.texts)];
    """
    first = window.run(seen)
    window.run("document.querySelector('figure .switch').click()")
    second = window.run(seen)
    assert first[:3] == [1, "logarithmic", "Show linear scale"]
    assert second[:3] == [1, "linear", "Show logarithmic scale"]
    assert first[3] == second[3]


def test_a_table_is_sorted_and_filtered(window: Browser, pages: dict[str, Path]) -> None:
    opened(window, pages["plain"])
    column = """return [...document.querySelectorAll('#settings tbody tr')].filter(r => !r.hidden)
        .map(r => r.cells[arguments[0]].textContent)"""
    press = "document.querySelectorAll('#settings thead button')[arguments[0]].click()"
    window.run(press, 2)
    rising = [float(text.split()[0]) for text in window.run(column, 2)]
    assert rising == sorted(rising)
    assert len(set(rising)) > 3
    window.run(press, 2)
    falling = [float(text.split()[0]) for text in window.run(column, 2)]
    assert falling == rising[::-1]
    window.run(press, 0)
    assert window.run(column, 0) == ["0.5", "0.5", "2", "2", "–"]
    filtered = """
        const input = document.querySelector('.controls input');
        input.value = arguments[0];
        input.dispatchEvent(new Event('input'));
    """
    window.run(filtered, "LOCAL")
    assert window.run(column, 1) == ["local", "local"]
    assert window.run("return document.querySelector('.controls [role=status]').textContent") == (
        "2 of 5 rows"
    )


def test_values_are_told_to_the_pointer_and_to_the_keyboard(
    window: Browser, pages: dict[str, Path]
) -> None:
    numbers = opened(window, pages["plain"])
    told = "const t = document.getElementById('tip'); return t.hidden ? null : t.textContent"
    assert window.run(told) is None
    mark = "const mark = document.querySelector('figure .curve .mark');"
    window.run(f"{mark} mark.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    window.wait_for_a_frame()  # scrolling ends what is told
    spot = window.run(
        f"{mark} const box = mark.getBoundingClientRect(); "
        "return [box.x + box.width / 2, box.y + box.height / 2]"
    )
    window.command("Input.dispatchMouseEvent", type="mouseMoved", x=spot[0], y=spot[1])
    curves = numbers["sections"][0]["figures"][0]["curves"]
    texts = [point["text"] for curve in curves for point in curve["points"]]
    assert window.run(told) in texts
    window.run("document.querySelector('figure svg').focus()")
    heard = []
    for _ in range(3):
        for kind in ("keyDown", "keyUp"):
            window.command("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
        heard.append(window.run(told))
    assert len(set(heard)) == 3
    assert set(heard) <= set(texts)


def test_light_and_dark_follow_the_reader(window: Browser, pages: dict[str, Path]) -> None:
    opened(window, pages["plain"])
    colour = "return getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        window.command("Emulation.setEmulatedMedia", features=features)
        seen[scheme] = window.run(colour)
    assert seen["light"] != seen["dark"]
    for wanted in ("light", "dark"):  # the system is dark: the button wins
        window.run("document.getElementById('theme').click()")
        assert window.run(colour) == seen[wanted]
    window.command("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("kind", ["plain", "hostile", "release"])
def test_nobody_is_kept_out(window: Browser, pages: dict[str, Path], kind: str) -> None:
    opened(window, pages[kind])
    for scheme, width in (("light", 1280), ("dark", 380)):
        window.see(scheme=scheme, width=width)
        assert window.barriers() == []
    # Teeth: a picture without words, and grey on grey.
    window.run("document.querySelector('h1').style.color = '#333'")
    window.run("document.body.append(Object.assign(new Image(), {src: 'data:,'}))")
    assert {found.split(":")[0] for found in window.barriers()} >= {"color-contrast", "image-alt"}
    window.command("Emulation.clearDeviceMetricsOverride")
    window.command("Emulation.setEmulatedMedia", features=[])


def test_the_page_is_whole_without_javascript(window: Browser, pages: dict[str, Path]) -> None:
    window.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        numbers = opened(window, pages["plain"])
        tree = window.command("DOMSnapshot.captureSnapshot", computedStyles=[])
    finally:
        window.command("Emulation.setScriptExecutionDisabled", value=False)
    seen = set(tree["strings"])
    assert "Colours: automatic" not in seen  # what the script would have added
    for row in numbers["sections"][1]["tables"][0]["rows"]:
        assert {cell["text"] for cell in row} <= seen
    sentences = numbers["sections"][2]["lists"][0]["items"]
    assert any("95 % CI" in sentence for sentence in sentences)
    for sentence in sentences:  # and no line of it begins with the sign of a number
        assert sentence.replace(" %", "\u00a0%").replace("± ", "±\u00a0") in seen
    drawn = {curve["name"] for curve in numbers["sections"][0]["figures"][0]["curves"]}
    assert drawn <= seen
