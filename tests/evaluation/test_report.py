"""The report: figures as text, the page, LaTeX, Markdown; also of results that try to break it."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.report import EXPERIMENTS, write_report
from eqkin.evaluation.report.formatting import clean_text, format_cells, format_score, make_slugs
from eqkin.evaluation.report.html import formula, page
from eqkin.evaluation.report.latex import escape, write_latex
from eqkin.evaluation.report.verdict import verdict
from eqkin.evaluation.results import PAPER, Curve, ExperimentResult, Plot, Score, Table, TableColumn, TableRow
from tests.evaluation import reports
from tests.evaluation.reports import EVIL

pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'eqkin[eval]'")
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Markup(HTMLParser):
    """Elements and attributes of a page; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Path:
    """A report of realistic and hostile results in all its forms."""
    folder = tmp_path_factory.mktemp("report")
    saved = reports.save([reports.hostile(), *reports.realistic()], folder / "results")
    write_report(saved, folder / "report.html", folder / "latex", folder / "docs" / "RESULTS.md")
    return folder


@pytest.fixture(scope="module")
def markup(everything) -> Markup:
    return Markup((everything / "report.html").read_text("utf-8"))


@pytest.mark.parametrize(
    ("score", "form", "text"),
    [
        (Score(0.507, 0.488, 0.525), "share", ".507 [.488, .525]"),
        (Score(1.0, 0.9996, 1.0), "share", "1.000 [1.000, 1.000]"),
        (Score(-0.02, -0.05, 0.01), "share", "−.020 [−.050, .010]"),
        (Score(-0.0001), "share", ".000"),
        (Score(0.507, 0.488, 0.525), "percent", "50.7 [48.8, 52.5]"),
        (Score(1300), "number", "1,300"),
        (Score(232985.4), "number", "232,985"),
        (Score(165.04, 120.5, 201), "number", "165.0 [120.5, 201.0]"),
        (Score(0.00012), "number", "0.00012"),
        (Score(0), "number", "0"),
        (Score(0.5, None, 0.6), "share", ".500"),
        (Score(0.5, math.nan, 0.6), "share", ".500"),
        (Score(math.nan, 0.1, 0.2), "share", "–"),
        (Score(-math.inf), "number", "–"),
    ],
)
def test_a_score_is_rounded_with_its_interval(score, form, text):
    assert format_score(score, form) == text


def test_the_best_measured_values_are_marked_and_the_paper_s_are_not():
    columns = [
        TableColumn("a", "a"),
        TableColumn("b", "b", "number", "low"),
        TableColumn("c", "c", best=""),
        TableColumn("d", "d"),
    ]
    rows = [
        TableRow("one", {"a": Score(0.5071), "b": Score(2.0), "c": Score(1.0), "d": Score(0.1)}),
        TableRow("two", {"a": Score(0.5069), "b": Score(1.5), "c": Score(2.0), "d": Score(math.nan)}),
        TableRow("three", {"a": Score(0.4), "b": Score(9.0)}),
        TableRow("paper", {"a": Score(0.9), "b": Score(0.1), "d": Score(0.9)}, PAPER),
    ]
    best = [[cell.best for cell in row] for row in format_cells(Table("t", "t", columns, rows))]
    assert best == [[True, False, False, False], [True, True, False, False], [False] * 4, [False] * 4]


def test_numbers_of_a_column_have_the_same_decimals():
    rows = [TableRow("", {"a": Score(value)}) for value in (106.17, 165.0, 0.034)]
    shown = format_cells(Table("t", "t", [TableColumn("a", "a", "number")], rows))
    assert [row[0].text for row in shown] == ["106.2", "165.0", "0.034"]


def test_a_figure_has_the_decimals_of_its_interval():
    scores = [Score(-29.7), Score(-0.072, -0.38, 0.26), Score(0.002, 0.001, 0.004), Score(-29.7)]
    rows = [TableRow("", {"a": score}) for score in scores]
    shown = format_cells(Table("t", "t", [TableColumn("a", "a", "number")], rows))
    assert [str(row[0]) for row in shown] == ["−29.70", "−0.07 [−0.38, 0.26]", "0.0020 [0.0010, 0.0040]", "−29.70"]
    assert [row[0].best for row in shown] == [False, False, True, False]


@pytest.mark.parametrize(
    ("finding", "words", "rest"),
    [
        ("Holds: it is so.", "holds", "It is so."),
        ("Does not hold; it is not.", "does not hold", "It is not."),
        ("Holds in part, for ten.", "holds in part", "For ten."),
        ("Undecided.", "undecided", ""),
        ("Holds only for ten.", "", "Holds only for ten."),
        ("Households: many.", "", "Households: many."),
    ],
)
def test_a_verdict_is_what_the_first_finding_begins_with(finding, words, rest):
    found = verdict(ExperimentResult("x", "x", "", [finding]))
    assert (found.words, found.finding) == (words, rest)
    assert verdict(ExperimentResult("x", "x", "", [])).words == ""


def test_a_small_run_has_no_verdict():
    found = verdict(ExperimentResult("x", "x (small run)", "", ["Holds: it is so."]))
    assert (found.words, found.kind, found.finding) == ("says nothing", "undecided", "It is so.")


def test_results_survive_being_saved_also_without_numbers(tmp_path):
    scores = {"a": Score(math.nan), "b": Score(0.5, 0.4, 0.6), "c": "text"}
    curve = Curve("c", ["x", 2.0], [1.0, math.nan], [0.5, math.nan], [2.0, 3.0])
    result = ExperimentResult(
        "x", "X", "", [], [Table("t", "T", [], [TableRow("r", scores)])], [Plot("p", "P", "", "", [curve])]
    )
    loaded = ExperimentResult.load(result.save(tmp_path))
    kept = loaded.tables[0].rows[0].cells
    assert math.isnan(kept["a"].value) and kept["b"] == Score(0.5, 0.4, 0.6) and kept["c"] == "text"
    assert math.isnan(loaded.plots[0].curves[0].y[1]) and loaded.plots[0].curves[0].high == [2.0, 3.0]
    (tmp_path / "x.json").write_text((tmp_path / "x.json").read_text().replace("0.5,", '"much",'))
    with pytest.raises(CorruptData, match="run the experiment again"):
        ExperimentResult.load(tmp_path / "x.json")


def test_experiments_stand_in_the_paper_s_order_and_missing_ones_are_named(tmp_path):
    names = ["zeta", "examples", "judged-b", "judged-a", "equalities", "ablation"]
    reports.save([ExperimentResult(name, name.title(), "", []) for name in names], tmp_path / "results")
    written = write_report(tmp_path, tmp_path / "out" / "report.html", markdown=tmp_path / "R.md")
    assert written.experiments == ["ablation", "equalities", "judged-a", "judged-b", "examples", "zeta"]
    assert written.missing == ["labelled", "study", "speed"]
    for path in (tmp_path / "out" / "report.html", tmp_path / "R.md"):
        text = path.read_text("utf-8")
        assert "Not run yet:" in text and "eqkin evaluate labelled" in text and "eqkin evaluate ablation" not in text
    assert written.files == [tmp_path / "out" / "report.html", tmp_path / "R.md"]


def test_an_empty_folder_tells_what_to_run(tmp_path):
    with pytest.raises(BadInput) as caught:
        write_report(tmp_path, tmp_path / "report.html")
    assert all(command in str(caught.value) for command in EXPERIMENTS.values())
    assert not (tmp_path / "report.html").exists()
    (tmp_path / "ablation.json").write_text("{")
    with pytest.raises(CorruptData, match=r"ablation\.json"):
        write_report(tmp_path, tmp_path / "report.html")


def test_files_stay_where_they_belong_whatever_results_are_called(everything):
    folders = {path.parent.relative_to(everything).as_posix() for path in everything.rglob("*") if path.is_file()}
    assert folders == {".", "results", "latex", "docs", "docs/figures"}
    names = {path.name for path in everything.rglob("*.tex")} | {path.name for path in everything.rglob("*.svg")}
    assert all(re.fullmatch(r"[a-z0-9-]+\.(tex|svg)", name) for name in names)
    assert {"ablation.tex", "equalities-batches.svg", "hostile-b-evil.tex", "hostile-b-evil-2.tex"} <= names


def test_the_page_allows_its_own_style_and_script_and_nothing_else(everything):
    text = (everything / "report.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1].replace("&#x27;", "'")
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for kind in ("style", "script"):
        (content,) = re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_nothing_hostile_is_markup(markup):
    elements = [name for name, _ in markup.elements]
    assert elements.count("script") == elements.count("style") == 1
    assert not {"img", "iframe", "object", "link", "form", "b onclick"} & set(elements)
    for _, attributes in markup.elements:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset", "action")
        ]
        address = attributes.get("href") or attributes.get("xlink:href") or "#"
        assert address.startswith("#")
    assert sum("<script>alert(1)</script>" in words for words in markup.words) > 10


def test_every_link_leads_somewhere_and_no_id_is_used_twice(markup):
    names = [attributes["id"] for _, attributes in markup.elements if "id" in attributes]
    assert len(names) == len(set(names))
    targets = {attributes["href"][1:] for _, attributes in markup.elements if "href" in attributes}
    targets |= {attributes["aria-labelledby"] for _, attributes in markup.elements if "aria-labelledby" in attributes}
    paths = [attributes["clip-path"] for _, attributes in markup.elements if "clip-path" in attributes]
    targets |= {path.removeprefix("url(#").removesuffix(")") for path in paths}
    assert paths and targets <= set(names)


def test_tables_have_captions_and_headings_that_say_what_they_head(markup):
    elements = [name for name, _ in markup.elements]
    sortable = [place for place, (name, a) in enumerate(markup.elements) if name == "table" and "class" in a]
    assert len(sortable) == 5 and all(elements[place + 1] == "caption" for place in sortable)
    assert all(attributes.get("scope") in ("col", "row") for name, attributes in markup.elements if name == "th")


def test_the_page_says_claim_finding_verdict_figures_differences_and_facts():
    text = page([reports.ablation()], {})
    shown = re.sub(r"<[^>]+>", "", text)
    assert re.search(r'<span class="pill partly">holds in part</span>', text)
    assert (
        "Without the histogram loss the score falls" in shown and "a bitmap CNN learned from the same papers" in shown
    )
    assert '<b class="best">84.2</b>' in text and "[83.0, 85.4]" in shown
    assert re.search(r'<tr class="elsewhere"><th[^>]*>Full model <span class="origin">paper</span>', text)
    assert "rather than arXiv&#x27;s cs.LG" in shown and "eqkin evaluate ablation --corpus" in shown
    assert text == page([reports.ablation()], {})


def test_long_tables_are_folded():
    rows = [TableRow(str(number), {}) for number in range(31)]
    long = ExperimentResult("x", "X", "", [], [Table("t", "Many", [], rows)])
    short = ExperimentResult("x", "X", "", [], [Table("t", "Few", [], rows[:30])])
    assert "Many: 31 rows</summary>" in page([long], {}) and 'class="long"' not in page([short], {})


def test_mathml_is_cleaned_again_and_what_cannot_be_read_is_shown_as_latex():
    bad = "<math><mi onclick='x()' href='//evil' mathcolor='red'>x</mi><script>y()</script><a href='//e'>z</a></math>"
    shown = formula(bad, "x")
    assert not re.search(r"onclick|href|<script|<a\b|evil", shown)
    assert '<mi mathcolor="red">x</mi>' in shown
    assert "<code>\\frac &lt;</code>" in formula("<math><mi>", "\\frac <")
    assert "<code>x</code>" in formula("<!DOCTYPE math [<!ENTITY e 'e'>]><math><mi>&e;</mi></math>", "x")


def rows_of(latex: str) -> list[list[str]]:
    """A tabular's rows and cells as LaTeX sees them; fails on what it would stumble over."""
    inside = re.search(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}\n(.*)\\end\{tabular\}\n$", latex, re.DOTALL)
    assert inside, latex
    rows, cell, depth, math_mode = [[]], "", 0, False
    for token in re.findall(r"\\[a-zA-Z]+|\\.|[{}&$%#_^~]|[^\\{}&$%#_^~]", inside[2], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0 and token not in ("%", "#", "_", "^", "~")
        math_mode ^= token == "$"
        if token in ("&", r"\\"):
            assert depth == 0 and not math_mode
            rows[-1].append(cell.strip())
            cell = ""
            rows += [[]] if token == r"\\" else []
        elif token not in (r"\toprule", r"\midrule", r"\bottomrule"):
            cell += token
        else:
            assert not cell.strip(), "a rule inside a row"
    assert depth == 0 and not math_mode and rows.pop() == [] and not cell.strip()
    assert not [row for row in rows if len(row) != len(inside[1])], "cells and columns differ"
    assert not [row for row in rows if row[0].startswith(("[", "*"))], "taken for an argument of the line before"
    return rows


def test_latex_tables_are_whole(everything):
    paths = sorted((everything / "latex").iterdir())
    assert len(paths) == 5
    tables = {path.stem: rows_of(path.read_text("utf-8")) for path in paths}
    assert tables["equalities"][1] == [
        "eqkin, finetuned",
        r"\textbf{.561} {\scriptsize [.551, .571]}",
        r"\textbf{.842} {\scriptsize [.834, .850]}",
        r"\textbf{.901} {\scriptsize [.895, .907]}",
    ]
    assert tables["equalities"][-1] == [r"\textit{Graph-CNN} (paper)", ".507", ".833", ".884"]
    assert len(tables["hostile-b-evil"]) == 5


def test_latex_prints_every_character_as_it_is():
    assert escape("50% & _a^b_ #1 {x} \\y ~ $z$") == (
        r"50\% \& \_a\textasciicircum{}b\_ \#1 \{x\} \textbackslash{}y \textasciitilde{} \$z\$"
    )
    assert escape("--set a\n[b] <c> −1") == r"-{}-set a {[}b{]} \textless{}c\textgreater{} $-$1"
    strange = write_latex(Table("t", "t", [TableColumn("a", "a", "text")], [TableRow("≡ é …", {"a": "x → ∞"})]))
    assert "% Needs lualatex or xelatex, with a font that has these: ∞ ≡\n" in strange
    hostile = write_latex(Table("t", "one\ntwo \\input{x}", [TableColumn("a", "a")], [], "three\r\nfour"))
    assert all(line.startswith(("%", "\\", "&")) for line in hostile.splitlines())


def test_markdown_tables_are_whole_and_their_pictures_are_there(everything):
    text = (everything / "docs" / "RESULTS.md").read_text("utf-8")
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "| eqkin, finetuned | **.561** [.551, .571] |" in text and "| *Graph-CNN* (paper) | .507 |" in text
    pictures = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert len(pictures) == 12 and all((everything / "docs" / picture).stat().st_size for picture in pictures)
    outside_code = re.sub(r"(`+).*?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"<script|<img|(?<!\\)\]\(javascript", outside_code)


def test_texts_lose_what_only_terminals_understand():
    assert clean_text(" a\n\tb\x00\x1b[31m\u202e c ") == "a b[31m c"
    assert make_slugs(["A b", "a-b", "../..", "main"], taken=["main"]) == ["a-b", "a-b-2", "x", "main-2"]


def test_files_of_plots_are_the_same_every_time_and_whole(everything, tmp_path):
    again = reports.save([reports.hostile(), *reports.realistic()], tmp_path / "results")
    write_report(again, tmp_path / "report.html", None, tmp_path / "docs" / "RESULTS.md")
    for path in (tmp_path / "docs" / "figures").iterdir():
        assert path.read_bytes() == (everything / "docs" / "figures" / path.name).read_bytes()
        if path.suffix == ".svg":
            ElementTree.parse(path)
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "report.html").read_bytes() == (everything / "report.html").read_bytes()


def test_plots_show_titles_as_they_are(markup):
    words = "".join(markup.words)
    assert "_<script>alert(1)</script>" in words and "R@100" in words and "4,096" in words
    assert EVIL[:40] in words
