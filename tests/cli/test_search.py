"""`eqkin search`, `eqkin similar-papers` and `eqkin rank` as a user meets them."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eqkin.api import Library
from eqkin.cli import app
from eqkin.errors import BadInput

runner = CliRunner()
BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, atlas_library: Path) -> str:
    """The atlas and a paper with a dangerous title."""
    place = tmp_path_factory.mktemp("cli")
    record = {"doc_id": "danger", "title": "=SUM(A1)", "authors": ["=Eve Evil"], "year": 1999}
    record["latex"] = r"\[ -\Omega_9 \]"
    (place / "papers.jsonl").write_text(json.dumps(record))
    with Library.open(shutil.copytree(atlas_library, place / "library")) as opened:
        opened.add(place / "papers.jsonl")
        opened.open_engine()
        return str(opened.folder)


def _run(*arguments: str, stdin: str | None = None):
    return runner.invoke(app, list(arguments), input=stdin)


def test_search_prints_formula_score_paper_and_section(library):
    result = _run("search", BAYES, "-l", library, "-k", "3")
    assert result.exit_code == 0
    assert "P(A ∣ B) = (P(B ∣ A)P(A))/(P(B))" in result.stdout
    assert "Probability · Events and conditioning · atlas:probability#4" in result.stdout
    assert r"P(A \mid B) = \frac{P(B \mid A)\,P(A)}{P(B)}" in _run("search", BAYES, "-l", library, "--latex").stdout


def test_search_prints_hits_in_bands_and_folds_weak_ones(library):
    shown = _run("search", BAYES, "-l", library, "-k", "60").stdout.splitlines()
    titles = [line for line in shown if line and not line.startswith(" ") and not line[:1].isdecimal()]
    assert titles == ["The same in other letters", "Contains it", "Similar", "nothing closer in this library"]
    weak = int(shown[-1].partition(" ")[0])
    assert shown[-1] == f"{weak} weaker hits: --weak shows them"
    every = _run("search", BAYES, "-l", library, "-k", "60", "--weak").stdout.splitlines()
    assert len(every) == len(shown) - 1 + 2 * weak
    numbers = [int(line.split()[0]) for line in every if line[2:4] == "  " and line[:2].strip().isdecimal()]
    assert numbers == list(range(1, 61))


def test_search_continues_a_list_at_an_offset(library):
    whole = _run("search", BAYES, "-l", library, "-k", "6", "--csv").stdout.splitlines()
    rest = _run("search", BAYES, "-l", library, "-k", "3", "--offset", "3", "--csv").stdout.splitlines()
    assert rest[1:] == whole[4:] and rest[1].startswith("4,")


def test_search_writes_a_trec_run(library):
    lines = _run("search", "-", "-l", library, "-k", "5", "--trec", stdin=f"q7\t{BAYES}\nx^2\n").stdout.splitlines()
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == ["q7"] * 5 + ["2"] * 5
    assert [row[3] for row in rows] == list("12345") * 2 and {row[5] for row in rows} == {"eqkin"}
    scores = [float(row[4]) for row in rows[:5]]
    assert scores == sorted(scores, reverse=True)


def test_search_writes_bibtex(library):
    shown = _run("search", r"-\Omega_9", "-l", library, "--year", "1999", "--bibtex").stdout
    assert shown.startswith("@misc{evil1999sum,\n  title = {{=SUM(A1)}},\n  author = {=Eve Evil},\n  year = {1999},")


@pytest.mark.parametrize("formula", ["-x", "-kx", r"-\frac{k}{l}", "-t^2/2", "-5", r"-\hbar^2"])
def test_formulas_may_begin_with_a_minus(library, formula):
    found = json.loads(_run("search", formula, "-l", library, "-k", "1", "--json").stdout)
    assert found["query"]["latex"].startswith("-") and found["query"]["kind"] in ("latex", "ascii")
    assert _run("convert", formula).stdout.startswith("<math")
    assert len(json.loads(_run("search", "x", "-k2", "-l", library, "--json").stdout)["hits"]) == 2


def test_open_prints_the_address_of_the_source(library):
    assert _run("open", "atlas:probability#4", "--print", "-l", library).stdout == "atlas/probability.tex\n"
    assert "cannot be opened" in str(_run("open", "atlas:probability#4", "-l", library).exception)


def test_empty_result_suggests_fields(library):
    result = _run("search", "x^2", "-l", library, "--field", "nosuch")
    assert result.exit_code == 1
    assert result.stdout.startswith("nothing found for x^2")
    assert "no paper has the subject area 'nosuch'; there are " in result.stderr
    output = _run("search", "x^2", "-l", library, "--field", "relativty").stderr
    assert "there are relativity and others" in output


def test_csv_escapes_spreadsheet_formulas(library):
    result = _run("search", "-l", library, "-k", "1", "--csv", "--year", "1999", r"-\Omega_9")
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    assert row["title"] == "'=SUM(A1)"
    assert row["authors"] == "'=Eve Evil"
    assert row["latex"].startswith("'-")
    assert float(row["score"]) == pytest.approx(1, abs=1e-3)


def test_search_strips_control_characters_of_titles(tmp_path):
    record = {"doc_id": "esc", "title": "\x1b]0;owned\x07 \u202etitle", "latex": r"\section{\x1b[2J} \[ a=b \]"}
    (tmp_path / "papers.jsonl").write_text(json.dumps(record).replace("\\\\x1b", "\\u001b"))
    with Library.open(tmp_path / "library", create=True) as opened:
        opened.add(tmp_path / "papers.jsonl")
        opened.open_engine()
    for options in ([], ["--latex"], ["--explain"]):
        shown = _run("search", "-l", str(tmp_path / "library"), "a=b", *options).stdout
        assert "title" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["search", "x^2"], 0),
        (["search", "--text", "zzzyx"], 1),
        (["search", "x", "--field", "nowhere"], 1),
        (["search"], 2),
        (["search", "x", "-k", "0"], 2),
        (["search", "x", "--year", "soon"], 2),
        (["search", "x", "--csv", "--json"], 2),
        (["search", "x", "--trec", "--bibtex"], 2),
        (["search", "x", "--offset", "-1"], 2),
        (["similar-papers", "atlas:quantum"], 0),
    ],
)
def test_search_exit_codes(library, arguments, code):
    assert _run(*arguments, "-l", library).exit_code == code


def test_search_reports_position_of_unreadable_formula(library):
    command = [sys.executable, "-m", "eqkin", "search", r"x + \begin{nope}", "-l", library]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 3
    assert ended.stderr.startswith("eqkin: the formula cannot be read: there is no environment nope at character")


def test_search_filters_by_range_of_years(library):
    for years, code in (("1999", 0), ("1990-2000", 0), ("-2000", 0), ("1999-", 0), ("2000-", 1), ("-1998", 1)):
        assert _run("search", r"\Omega", "-l", library, "--year", years).exit_code == code, years


def test_search_continues_after_an_unreadable_line(library):
    result = _run("search", "-", "-l", library, "--json", "-k", "1", stdin="x^2\n\n\\begin{nope}\ny=z\n")
    assert [json.loads(line)["latex"] for line in result.stdout.splitlines()] == ["x^2", "y=z"]
    assert result.exit_code == 3
    assert "nope" in result.stderr


def test_search_reads_a_formula_from_a_file(library, tmp_path):
    (tmp_path / "f.tex").write_text(f"\\[ {BAYES} \\]")
    assert "P(A ∣ B)" in _run("search", str(tmp_path / "f.tex"), "-l", library, "-k", "2").stdout
    assert _run("search", str(tmp_path / "f.tex"), "-l", library).stdout == _run("search", BAYES, "-l", library).stdout


def test_similar_papers_of_a_draft(library, tmp_path):
    (tmp_path / "d.md").write_text(f"# Draft\n\n$$ {BAYES} $$\n")
    shown = _run("similar-papers", str(tmp_path / "d.md"), "-l", library, "-k", "2")
    assert "Probability · atlas:probability" in shown.stdout
    listed = json.loads(_run("similar-papers", "atlas:quantum#3", "-l", library, "-k", "2", "--json").stdout)
    assert "nor the id of an equation, nor a file" in str(_run("similar-papers", "nope", "-l", library).exception)
    assert len(listed) == 2 and listed[0]["pairs"]


def _ranked(tmp_path: Path, topics: str, formulas: str):
    (tmp_path / "t.tsv").write_text(topics)
    (tmp_path / "f.tsv").write_text(formulas)
    arguments = [f"--{name}={tmp_path / name[0]}.tsv" for name in ("topics", "formulas")]
    result = _run("rank", *arguments, "--out", str(tmp_path / "run"))
    assert result.exit_code == 0
    return result, [line.split() for line in (tmp_path / "run").read_text().splitlines()]


def test_rank_writes_a_run_with_all_formulas(tmp_path: Path):
    result, rows = _ranked(tmp_path, "q1\tx^2\n", "f1\ty^2\nf2\t\\begin{nope}\nf3\tx^2\n")
    assert "f2" in result.stderr
    assert [row[2] for row in rows] == ["f3", "f1", "f2"]
    assert rows[0][0] == "q1" and rows[0][5] == "eqkin"
    assert (float(rows[0][4]), float(rows[2][4])) == (1, -1)


def test_rank_matches_wildcards_in_topics(tmp_path: Path):
    _, rows = _ranked(
        tmp_path, "q1\t\\frac{?a}{?a+?b}\n", "f1\t\\frac{a}{b+c}\nf2\tz=\\frac{x}{x+y}\nf3\t\\frac{u}{u+v}\n"
    )
    assert [row[2] for row in rows] == ["f3", "f2", "f1"]
    assert float(rows[0][4]) > 2 / 3 > float(rows[1][4]) > 1 / 3 > float(rows[2][4])


def test_search_says_how_a_query_was_read(library):
    named = _run("search", "bayes theorem", "-l", library, "-k", "1")
    assert 'read as the name "Bayes\' theorem"' in named.stderr and "Bayes' theorem" in named.stdout
    assert "Added a missing ) at the end." in _run("search", "sqrt(x", "-l", library, "-k", "1").stderr
    words = json.loads(_run("search", "bayes theorem", "--as", "words", "-l", library, "--json").stdout)
    assert words["query"]["kind"] == "words" and words["mathml"] == ""


def test_show_and_like_take_an_id_or_a_label(library):
    described = json.loads(_run("show", "atlas:probability#bayes", "-l", library, "--json").stdout)
    assert (described["equation"]["id"], described["same"]) == ("atlas:probability#4", 0)
    assert isinstance(_run("show", "atlas:probability#nope", "-l", library).exception, BadInput)
    shown = _run("show", "atlas:probability#bayes", "-l", library).stdout
    assert "P(A ∣ B) = (P(B ∣ A)P(A))/(P(B))" in shown and "Bayes' theorem inverts" in shown
    found = json.loads(_run("search", "--like", "atlas:probability#bayes", "-l", library, "--json").stdout)
    names = [hit["equation"]["id"] for hit in found["hits"]]
    assert len(names) == 10 and "atlas:probability#4" not in names


def test_search_shows_prose_and_counts_on_request(library):
    shown = _run("search", r"P(A|B) = \frac{P(B|A) P(A)}{P(B)}", "-l", library, "-k", "1", "--prose", "--counts").stdout
    assert "1 equation of this form: probability 1" in shown and "The Borel-Cantelli lemma" in shown
