"""The command line as a user meets it."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from eqkin.cli import app
from eqkin.errors import BadInput, EqkinError
from tests.cli.running import eqkin
from tests.sources.test_references import make_pdf

runner = CliRunner()


def _commands(command: Any, name: str = "eqkin") -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for child, value in children.items():
        yield from _commands(value, f"{name} {child}")


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_shows_an_example(name: str) -> None:
    text = COMMANDS[name].help or ""
    assert "**Example" in text
    assert f"    {name}" in text
    assert len(text.splitlines()[0]) > 30


def test_help_imports_nothing_that_searches_reads_or_trains() -> None:
    code = (
        "import atexit, sys; from eqkin.cli import main\n"
        "atexit.register(lambda: print('modules:', *sys.modules, file=sys.stderr)); main()"
    )
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert "similar-papers" in shown.stdout
    modules = set(shown.stderr.partition("modules: ")[2].split())
    assert "eqkin.cli.train" in modules
    heavy = {"numpy", "faiss", "sqlite3", "torch", "uvicorn", "pydantic", "pypdf", "py_mini_racer", "multiprocessing"}
    heavy |= {"eqkin.api", "eqkin.executor", "eqkin.search.engine", "eqkin.index.manifest", "eqkin.library.files"}
    assert not modules & heavy


def test_search_without_a_library_says_in_two_lines_what_to_type(tmp_path: Path) -> None:
    ended = eqkin("search", "E = mc^2", "--library", tmp_path / "none")
    missing, hint = ended.err.splitlines()
    assert ended.code == BadInput.exit_code
    assert missing == f"eqkin: {tmp_path / 'none'}: there is no library"
    assert f"`eqkin add FOLDER --library {tmp_path / 'none'}`" in hint
    assert "`eqkin demo`" in hint


def test_add_lists_pdfs_without_a_source_and_damaged_ones(tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    make_pdf(tmp_path / "papers" / "good.pdf", ["A page"])
    (tmp_path / "papers" / "bad.pdf").write_bytes(b"%PDF-1.5")
    result = runner.invoke(app, ["add", str(tmp_path / "papers"), "--library", str(tmp_path / "library")])
    assert result.exit_code == 0
    assert "1 paper added" in result.stdout
    assert "good.pdf" in result.stderr and "bad.pdf" in result.stderr


def test_add_stats_verify_export_work_together(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Note\n\nPythagoras says\n\n$$ a^2 + b^2 = c^2 $$\n")
    library = str(tmp_path / "library")
    added = runner.invoke(app, ["add", str(tmp_path / "note.md"), "--library", library, "--json"])
    assert added.exit_code == 0, added.output
    assert json.loads(added.stdout)["equations"] == {"converted": 1}
    numbers = json.loads(runner.invoke(app, ["stats", "--library", library, "--json"]).stdout)
    assert numbers["papers"] == 1
    assert numbers["equations"] == {
        "found": 1,
        "converted": 1,
        "degraded": 0,
        "repaired": 0,
        "diagrams": 0,
        "rows": 0,
        "inline": 0,
        "failed": {},
        "unparsed": 0,
    }
    assert "1 papers, 1 equations, 1 trees: no problems" in runner.invoke(app, ["verify", "--library", library]).stdout
    line = json.loads(runner.invoke(app, ["export", "--library", library]).stdout)
    assert line["section"] == "Note"
    (tmp_path / "other.md").write_text("# Other\n\n$$ a + b = c $$\n")
    other = runner.invoke(app, ["add", str(tmp_path / "other.md"), "--library", library])
    assert "converted (0 degraded)" in other.stdout
    removed = runner.invoke(app, ["add", "--remove", str(tmp_path / "note.md"), "--library", library])
    assert "1 paper removed" in removed.stdout


def test_verify_of_a_damaged_library_exits_with_one(tmp_path: Path, atlas_library: Path) -> None:
    library = shutil.copytree(atlas_library, tmp_path / "library")
    with closing(sqlite3.connect(library / "library.db")) as connection, connection:
        connection.execute("UPDATE equations SET latex = 'x' WHERE number = 3")
    result = runner.invoke(app, ["verify", "--library", str(library)])
    assert result.exit_code == 1
    assert "does not match its checksum" in result.stdout


def test_convert_reads_lines_and_writes_lines() -> None:
    formulas = "E = mc^2\n$\\frac{a}{b}$\n\\begin{align} a &= b \\end{align}\n"
    result = runner.invoke(app, ["convert"], input=formulas)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("<math") and line.endswith("</math>") for line in lines)
    assert "<mfrac>" in lines[1]


def test_convert_writes_operator_trees_that_are_equal_for_equivalent_notations() -> None:
    lines = runner.invoke(app, ["convert", "--to", "operators"], input="a/b\n\\frac ab\n").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [["frac", "v:a", "v:b"]] * 2


def test_control_characters_of_file_names_are_not_printed(tmp_path: Path) -> None:
    name = "a\x1b]0;owned\x07\x9b31m.tex"
    (tmp_path / name).write_bytes(b"\x00\x01binary")
    for command in (["add", tmp_path / name], ["add", tmp_path], ["add", tmp_path / f"no{name}"]):
        ended = eqkin(*command, "--library", tmp_path / "library")
        printed = ended.out + ended.err
        assert "owned" in printed or command[1] == tmp_path
        assert not set(printed) & {"\x1b", "\x07", "\x9b"}


def test_convert_refuses_a_line_that_is_not_utf_8_and_a_line_without_end() -> None:
    result = runner.invoke(app, ["convert"], input=b"a+\xff\nb\n" + b"x" * 200_000 + b"\nc\n")
    assert result.exit_code == 1
    first, second, third, fourth = result.stdout.splitlines()
    assert (first, third) == ("", "")
    assert "<mi>b</mi>" in second
    assert "<mi>c</mi>" in fourth
    assert result.stderr.splitlines() == [
        "line 1: the formula is not UTF-8",
        "line 3: formula longer than 20000 characters",
    ]


def test_errors_are_one_line_with_a_stable_exit_code(tmp_path: Path) -> None:
    ended = eqkin("add", tmp_path / "nothing", "--library", tmp_path / "library")
    assert ended.code == BadInput.exit_code == 3
    assert ended.err.startswith("eqkin: ") and "Traceback" not in ended.err
    assert not (tmp_path / "library").exists()
    assert eqkin("stats", "--library", tmp_path / "missing").code == 3
    assert eqkin("no-such-command").code == 2
    assert len({error.exit_code for error in EqkinError.__subclasses__()}) == len(EqkinError.__subclasses__())


def test_environment_names_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQKIN_LIBRARY", str(tmp_path / "mine"))
    (tmp_path / "note.md").write_text("$$ a^2 + b^2 = c^2 $$\n")
    added = eqkin("add", tmp_path / "note.md")
    assert added.code == 0 and "1 paper added" in added.out
    assert added.err == ""  # no progress where there is no terminal
    assert eqkin("stats", "--json").json["library"] == str(tmp_path / "mine")


def test_unwritable_output_is_one_line_and_closed_pipe_is_fine(tmp_path: Path, atlas_library: Path) -> None:
    library = atlas_library
    for command in ("export --out /no/such/folder/x.jsonl", f"export --out {tmp_path}", "export --forest /dev/null"):
        ended = eqkin(*command.split(), "--library", library)
        assert ended.code == 7, command
        assert ended.err.count("\n") <= 2
        assert "Traceback" not in ended.err
    assert Path("/dev/null").is_char_device()
    shell = f"{sys.executable} -m eqkin export --library {library} | head -1"
    piped = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, check=False)
    assert piped.returncode == 0, piped.stderr
    assert json.loads(piped.stdout)["status"] == "converted"


def test_export_writes_citations_and_pairs_of_sides(tmp_path: Path) -> None:
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\begin{document}\[ a + b + c + d + e = f + g + h + i + j \]"
        r"\begin{thebibliography}{9}\bibitem{x} arXiv:1706.03762\end{thebibliography}\end{document}"
    )
    library = str(tmp_path / "library")
    assert runner.invoke(app, ["add", str(tmp_path / "paper.tex"), "--library", library, "--no-index"]).exit_code == 0
    (citation,) = map(
        json.loads, runner.invoke(app, ["export", "--citations", "--library", library]).stdout.splitlines()
    )
    assert citation["cites"] == "1706.03762"
    (pair,) = map(json.loads, runner.invoke(app, ["export", "--equalities", "--library", library]).stdout.splitlines())
    assert pair["sign"] == "=" and pair["id"] == f"{citation['paper']}#0"
    assert "<mi>a</mi>" in pair["left"] and "<mi>j</mi>" in pair["right"]


def test_removing_an_unknown_source_is_reported(tmp_path: Path, atlas_library: Path) -> None:
    library = shutil.copytree(atlas_library, tmp_path / "library")
    ended = eqkin("add", "--remove", "arxiv:1706.03762", "--library", library)
    assert ended.code == 3
    assert "has no paper of arxiv:1706.03762" in ended.err
    assert "28 papers removed" in eqkin("add", "--remove", "atlas:", "--library", library).out


def test_convert_prints_deep_trees() -> None:
    result = runner.invoke(app, ["convert", r"\sqrt{" * 60 + "x" + "}" * 60])
    assert result.exit_code == 0
    assert result.stdout.count("<msqrt>") == 60
