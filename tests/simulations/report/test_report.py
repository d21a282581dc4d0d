"""Reports: the numbers of the results, and of a release nothing but its outcome."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import fedpriv
from fedpriv.simulations.report import files as report_files
from fedpriv.simulations.report.exports import as_csv, as_latex, write_figures, write_tables
from fedpriv.simulations.report.files import comparison_document_in, read_document, write_report
from fedpriv.simulations.report.of_runs import runs_document
from fedpriv.simulations.report.parts import Axis, Document, Section, facts
from fedpriv.simulations.report.results import RunFiles
from fedpriv.simulations.report.scales import scale_of
from fedpriv.simulations.report.sizes import cost_table, equal_weights_factor
from fedpriv.simulations.report.svg import drawn
from fedpriv.simulations.run import release_outcome as outcome
from tests.simulations.report.scenes import SIZES, comparison

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = {
    "name": "study",
    "data": {"name": "synthetic"},
    "strategy": {"name": "gradient-perturbation", "rounds": 6},
}
PAGE_FILES = ("report.html", "report.json")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "simulated"
    fedpriv.run(RUN, out=out)
    return out


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    out = folder / "released"
    fedpriv.run(RUN, out=out, release=True, ledger=folder / "l.ledger", new_ledger=True)
    return out


def section(document: Document, name: str) -> Section:
    (found,) = (each for each in document.sections if each.id == name)
    return found


def numbers(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_a_comparison_is_told_as_its_rows_have_it(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    document = comparison_document_in(made)
    table = section(document, "table").tables[0]
    means = [row[table.columns.index("accuracy %")].value for row in table.rows]
    assert means == [row.interval.mean for row in made.rows]
    first = section(document, "figures").figures[0]
    curves = {curve.name: curve for curve in first.curves}
    assert [p.y for p in curves["gradient"].points] == [made.rows[1].interval.mean,
                                                        made.rows[3].interval.mean]  # fmt: skip
    assert curves["gradient"].points[0].low == made.rows[1].interval.low
    assert curves["non-private"].level
    assert (curves["gradient"].colour, curves["gradient"].dashed) == (0, False)
    assert (curves["local"].colour, curves["local"].dashed) == (0, True)
    assert section(document, "findings").lists[0].items == made.findings
    assert document.status.startswith("SIMULATED")
    exchanges = section(document, "secure-aggregation").tables[0]
    assert [cell.value for cell in exchanges.rows[0]] == ["local", "answer", 3, 0.25, 300, 1200]


def test_points_are_drawn_where_their_values_are(tmp_path: Path) -> None:
    figure = comparison_document_in(comparison(tmp_path)).to_dict()["sections"][0]["figures"][0]
    markup = drawn(figure, path="x")
    heights = [
        value
        for curve in figure["curves"]
        for point in curve["points"]
        for value in (point["y"], point["low"], point["high"])
    ]
    ticks = dict(re.findall(r'y="([\d.]+)" text-anchor="end">([\d.]+) %<', markup))
    assert len(ticks) > 2
    # By two ticks of the axis, independently of the scale: the height of every mark is its value.
    (y0, v0), (y1, v1) = ((float(y) - 4, float(v) / 100) for y, v in list(ticks.items())[::2][:2])
    for curve in figure["curves"]:
        if not curve["level"]:
            part = markup[markup.index(f'class="curve c{curve["colour"]}') :]
            part = markup.split(f'data-curve="{curve["name"]}" data-path')[1]
            line = re.search(r'class="line" d="M([^"]+)"', part)
            assert line
            places = [float(pair.split()[1]) for pair in line.group(1).split("L")]
            values = [v0 + (y - y0) * (v1 - v0) / (y1 - y0) for y in places]
            span = max(heights) - min(heights)
            assert values == pytest.approx([p["y"] for p in curve["points"]], abs=span / 1000)


def test_what_the_smallest_party_costs_is_the_ratio_of_the_sensitivities() -> None:
    """(1/m)·2G/(n₍₁₎λ) by equal weights, (n_j/N)·2G/(n_jλ) by proportional ones."""
    sizes = [8, 40, 52]
    equal = max(1 / len(sizes) / size for size in sizes)
    proportional = max(size / sum(sizes) / size for size in sizes)
    assert equal_weights_factor(sizes) == pytest.approx(equal / proportional, rel=1e-12)
    rows = cost_table(SIZES, counted="records").rows
    assert [row[3].value for row in rows] == [8, 40, 52]
    assert rows[-1][-1].value == 1.0


def test_a_run_leaves_a_page_that_says_what_its_files_say(simulated: Path) -> None:
    found, result = numbers(simulated), json.loads((simulated / "result.json").read_text())
    assert (simulated / "report.html").read_text().startswith("<!doctype html>")
    assert f"{100 * result['accuracy']:.2f} %" in found["headline"]
    sections = {each["id"]: each for each in found["sections"]}
    rounds = json.loads((simulated / "metrics.json").read_text())
    figures = {f["id"]: f for each in found["sections"] for f in each["figures"]}
    spent = figures["budget-by-round"]["curves"][0]["points"]
    assert [point["y"] for point in spent] == [entry["epsilon"] for entry in rounds]
    accuracy = figures["accuracy-by-round"]["curves"][0]["points"]
    assert [point["y"] for point in accuracy] == [entry["accuracy"] for entry in rounds]
    plan = json.loads((simulated / "plan.json").read_text())
    noise = [point["y"] for point in figures["schedule"]["curves"][0]["points"]]
    assert noise == [plan["mechanisms"][0]["stddev"]] * 6
    assert sections["statement"]["texts"][0]["text"] == (simulated / "statement.txt").read_text()
    assert figures["party-sizes"]["curves"][0]["points"][-1]["y"] == result["smallest_party"]
    machine = json.loads((simulated / "machine.json").read_text())
    assert [row[1]["value"] for row in sections["configuration"]["tables"][0]["rows"]][:2] == [
        machine["fedpriv"],
        machine["python"],
    ]
    advantage = json.loads((simulated / "statement.json").read_text())["guarantee"]
    told = " ".join(sections["guarantee"]["words"])
    assert f"{advantage['attack_advantage']:.3f}"[:4] in told
    assert "SIMULATED" in told


def test_a_page_about_a_release_follows_from_its_outcome_alone(
    released: Path, tmp_path: Path
) -> None:
    """The same bytes without the owner's folder, and whatever else lies there."""
    before = [(released / name).read_bytes() for name in PAGE_FILES]
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in outcome.FILES.keys() - set(PAGE_FILES):
        shutil.copy(released / name, copy / name)
    for name in ("audit.json", "machine.json"):
        (copy / name).write_text('{"seconds": 12345.678}')
    write_report(read_document([copy]), copy)
    assert [(copy / name).read_bytes() for name in PAGE_FILES] == before
    assert {path.name for path in released.iterdir()} == {*outcome.FILES, "private"}
    costs = json.loads((released / "private" / "costs.json").read_text())
    assert str(costs["seconds"]) not in before[1].decode()
    assert "party-sizes" not in before[1].decode()
    assert b"per_party" not in before[1]


def test_the_check_on_releases_has_teeth(simulated: Path, tmp_path: Path) -> None:
    """Of a simulation, what lies beside it is on the page."""
    copy = tmp_path / "copy"
    shutil.copytree(simulated, copy)
    (copy / "audit.json").write_text('{"seconds": 12345.678}')
    write_report(read_document([copy]), copy)
    assert "12345.678" in (copy / "report.json").read_text()
    assert '"12345.678"' not in (simulated / "report.json").read_text()


def test_a_release_whose_files_hold_more_than_its_outcome_is_refused(
    released: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(released, copy)
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(result | {"seconds": 3.0}))
    with pytest.raises(RuntimeError, match="seconds must be stated in"):
        read_document([copy])


def test_a_section_without_an_origin_is_in_no_release(released: Path, tmp_path: Path) -> None:
    document = read_document([released])
    assert {each.id for each in document.sections if not each.empty} <= outcome.REPORT.keys()
    more = Section(id="timing", title="Timing", words=("12 s",))
    unstated = Document(**{
        **{name: getattr(document, name) for name in Document.__slots__},
        "sections": (*document.sections, more),
    })  # fmt: skip
    with pytest.raises(RuntimeError, match="timing must be stated in"):
        write_report(unstated, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_simulations_and_releases_have_no_common_page(
    fedpriv: Callable[..., Any], simulated: Path, released: Path, tmp_path: Path
) -> None:
    done = fedpriv("report", simulated, released, "--out", tmp_path / "page")
    assert done.code == 2
    assert "must be all simulations or all releases" in done.message
    assert not (tmp_path / "page").exists()


def test_several_runs_share_a_page_under_names_that_differ(
    fedpriv: Callable[..., Any], simulated: Path, tmp_path: Path
) -> None:
    assert fedpriv("report", simulated, simulated).code == 2
    page = tmp_path / "page"
    done = fedpriv("report", simulated, simulated, "--out", page, "--json")
    assert done.json()["files"] == [str(page / name) for name in PAGE_FILES]
    found = numbers(page)
    figure = found["sections"][0]["figures"][0]
    names = ["1. gradient-perturbation", "2. gradient-perturbation"]
    assert [curve["name"] for curve in figure["curves"]] == names
    assert len({(curve["colour"], curve["mark"]) for curve in figure["curves"]}) == 2


def test_releases_on_one_page_are_said_to_add_up(released: Path) -> None:
    run = RunFiles.read(released)
    told = section(runs_document([run, run]), "guarantee").words
    assert any("add up" in sentence for sentence in told)
    assert not any("add up" in word for word in section(runs_document([run]), "guarantee").words)


def test_the_ledger_of_a_release_is_told_with_its_head(released: Path) -> None:
    ledger = json.loads((released / "statement.json").read_text())["ledger"]
    text = (released / "report.html").read_text()
    assert ledger["head"] in text
    assert any(
        row[1].value == ledger["head"]
        for row in section(read_document([released]), "ledger").tables[0].rows
    )


def test_figures_and_tables_for_papers_hold_the_same_numbers(
    fedpriv: Callable[..., Any], simulated: Path, released: Path, tmp_path: Path
) -> None:
    done = fedpriv("report", simulated, "--out", tmp_path, "--tables", "--json")
    assert str(tmp_path / "tables" / "settings.tex") in done.json()["files"]
    figure = next(f for each in numbers(tmp_path)["sections"] for f in each["figures"])
    only = {"sections": [{"figures": [figure]}]}
    picture, page = write_figures(only, tmp_path / "figures")
    assert picture.name == "accuracy-by-round.svg"
    assert page.read_bytes().startswith(b"%PDF")
    before = picture.read_bytes()
    write_figures(only, tmp_path / "figures")
    assert picture.read_bytes() == before
    refused = fedpriv("report", released, "--tables")
    assert refused.code == 2
    assert "not part of its outcome" in refused.message
    assert not (released / "tables").exists()


def test_a_table_as_csv_and_latex(tmp_path: Path) -> None:
    values = comparison_document_in(comparison(tmp_path, name="a_b & 5 %")).to_dict()
    write_tables(values, tmp_path)
    table = values["sections"][1]["tables"][0]
    rows = list(csv.reader(io.StringIO(as_csv(table))))
    assert rows[0] == list(table["columns"])
    assert [float(row[2]) for row in rows[1:]] == [row[2]["value"] for row in table["rows"]]
    text = as_latex(table)
    assert r"a\_b \& 5 \%" in text
    assert r"$\pm$" in text
    assert text.count(r"\\") == len(table["rows"]) + 1
    assert text.startswith("% ")
    assert r"\begin{tabular}{rlrrrrrr" in text


@pytest.mark.parametrize("what", ["nothing", "a file"])
def test_what_is_no_result_is_refused(
    fedpriv: Callable[..., Any], tmp_path: Path, what: str
) -> None:
    place = tmp_path / what
    if what == "a file":
        place.write_text("")
    done = fedpriv("report", place)
    assert done.code == 2
    assert "not the directory of a finished run" in done.message


def test_a_comparison_that_is_not_finished_is_refused(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    from fedpriv.simulations.compare.comparison import start_comparison
    from fedpriv.simulations.experiment.file import parse_experiment
    from tests.simulations.report.scenes import STUDY

    out = tmp_path / "study"
    start_comparison(parse_experiment(STUDY), out=out)
    (out / "cells").mkdir()
    done = fedpriv("report", out)
    assert done.code == 2
    assert "still to be computed" in done.message


def test_a_fault_of_the_page_does_not_undo_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_keywords: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(report_files, "write_report", broken)
    with pytest.warns(UserWarning, match="The results are complete"):
        result = fedpriv.run(RUN, out=tmp_path / "out")
    assert result.summary["rounds"] == 6
    assert (tmp_path / "out" / "result.json").exists()


def test_an_audit_that_lies_there_is_told_entry_by_entry(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text('{"epsilon": {"lower": 0.25}, "sound": true}')
    document = comparison_document_in(comparison(tmp_path))
    cells = {row[0].text: row[1] for row in section(document, "audit").tables[0].rows}
    assert cells["epsilon.lower"].value == 0.25
    assert cells["sound"].text == "true"


def test_a_table_must_be_rectangular() -> None:
    from fedpriv.simulations.report.parts import Cell, Table

    with pytest.raises(ValueError, match="must be rectangular"):
        Table(id="x", title="", columns=("a", "b"), numeric=(True, True), rows=((Cell(text="1"),),))
    assert facts("x", "", {"a": Cell(text="1")}).columns == ("name", "value")


@pytest.mark.parametrize("most", [2, 3, 5, 15, 17, 131])
def test_nothing_is_marked_between_two_parties(most: int) -> None:
    axis = Axis(title="party, by size", whole=True)
    ticks = scale_of(axis, [1.0, most], start=0.0, end=1.0, logarithmic=False).ticks()
    assert len(ticks) > 1
    assert all(place == round(place) for place in ticks)


def test_a_scale_has_room_for_one_value_and_for_zero() -> None:
    for values in ([5.0], [0.0], [-1.0, 1.0]):
        scale = scale_of(Axis(title="x"), values, start=0.0, end=100.0, logarithmic=False)
        assert all(0 < scale(value) < 100 for value in values)
        assert scale.ticks()
    scale = scale_of(Axis(title="x"), [1e-9, 1e3], start=0.0, end=100.0, logarithmic=True)
    assert 3 <= len(scale.ticks()) <= 8
