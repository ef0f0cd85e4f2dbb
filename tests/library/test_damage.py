"""Damaged, foreign and leftover files: no answer from damaged data, nothing deleted that eqkin did not write."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from eqkin.api import Library, pack, unpack, verify
from eqkin.errors import BadInput, CorruptData, EqkinError, StorageFailed
from eqkin.library.database import SET_STATE, add_functions
from eqkin.library.judgements import Judgement, LocalJudgements
from eqkin.library.queries import Filters, compute_statistics, count_equations, list_citations, select_trees
from eqkin.library.records import count_facets, export_equations, get_paper_page, get_refs
from tests.library.conftest import write_article

QUERY = r"E = \frac12 m v^2 + V(x_1)"


@pytest.fixture
def full(library: Library) -> Path:
    """The folder of a library with index and judgements."""
    library.open_engine()
    LocalJudgements(library.folder).add(Judgement(equation="a", relevant=True, latex="x", keywords=("energy",)))
    library.close()
    return library.folder


def _search(folder: Path) -> list[tuple[str, float]]:
    with Library.open(folder) as library:
        LocalJudgements(folder).list_all()
        hits = library.search(QUERY, k=5).hits + library.search(text="energy", k=5).hits
        return [(hit.equation.id, round(hit.score, 6)) for hit in hits]


def _flip(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def _zero(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes(min(4096, len(content) - at)) + content[at + 4096 :]


_DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _zero,
    lambda content, chance: content[: chance.randrange(len(content))],
    lambda content, chance: content + bytes([chance.randrange(256)]) * 100,
)


def _read_everything(folder: Path) -> list[object]:
    """Return all that a library answers with, but for its index."""
    with Library.open(folder) as library:
        papers = library.list_papers()
        pages = [get_paper_page(library, paper["key"], only_displays=False) for paper in papers]
        statistics = {name: value for name, value in compute_statistics(library).items() if name != "bytes"}
        keys = library.list_tree_keys()
        operators = library.get_operators(keys)
        chosen = select_trees(library, Filters(papers=(papers[0]["key"], papers[2]["key"])))
        assert chosen is not None
        return [
            *(papers, pages, statistics, list(export_equations(library, failed=True)), list_citations(library)),
            *(keys.tolist(), [operators.to_json(at) for at in range(len(operators))], get_refs(library, keys)),
            *(chosen.tolist(), count_equations(library), count_facets(library), LocalJudgements(folder).list_all()),
        ]


@pytest.mark.parametrize("seed", range(4))
def test_no_answer_comes_from_a_damaged_database_in_silence(full: Path, seed: int) -> None:
    """Each damage is found by readers and `verify`, or is where nothing is stored."""
    before, chance = _read_everything(full), random.Random(seed)
    intact = verify(full)
    path = full / "library.db"
    content = path.read_bytes()
    found = 0
    for _ in range(60):
        path.write_bytes(chance.choice(_DAMAGES[:3] if seed else _DAMAGES[:1])(content, chance))
        problems = verify(full).problems
        try:
            assert _read_everything(full) == before
            harmless = True
        except EqkinError as error:
            assert error.exit_code in (3, 5), error
            harmless = False
        assert problems or harmless
        found += bool(problems)
        path.write_bytes(content)
    assert found > 3
    assert verify(full) == intact


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE papers SET year = 1999",
        "UPDATE papers SET macros = x'28b52ffd'",
        "UPDATE sections SET title = 'other'",
        "UPDATE sections SET prose = x'28b52ffd'",
        f"UPDATE sections SET prose = x'{zstandard.ZstdCompressor(write_checksum=False).compress(b'other').hex()}'",
        "UPDATE equations SET latex = 'x' WHERE number = 0",
        "UPDATE equations SET inline = 1",
        "UPDATE trees SET keys = keys || x'00000000'",
        "UPDATE trees SET operators = presentation",
        "UPDATE trees SET presentation = operators",
        "DELETE FROM equations WHERE number = 1",
        "DELETE FROM sections WHERE number = 1",
        "UPDATE judgements SET relevant = 0",
        "UPDATE state SET value = '7' WHERE key = 'papers'",
        "UPDATE state SET value = '7' WHERE key = 'trees'",
        "DROP TRIGGER delete_paper",
    ],
)
def test_changed_and_lost_rows_are_found(full: Path, change: str) -> None:
    with closing(sqlite3.connect(full / "library.db")) as connection, connection:
        connection.execute(change)
    assert verify(full).problems
    if "TRIGGER" not in change:
        with pytest.raises(CorruptData):
            _read_everything(full)


def test_verify_finds_intact_trees_of_another_paper(full: Path) -> None:
    with closing(sqlite3.connect(full / "library.db")) as connection, connection:
        connection.execute("UPDATE trees SET presentation = (SELECT presentation FROM trees ORDER BY first LIMIT 1)")
    problems = "\n".join(verify(full).problems)
    assert "a2.tex" in problems and "a3.tex" in problems and "a1.tex" not in problems


def test_writer_refuses_to_replace_a_damaged_paper(full: Path, papers: Path) -> None:
    with closing(sqlite3.connect(full / "library.db")) as connection, connection:
        connection.execute("UPDATE papers SET first_equation = 1, digest = '' WHERE key LIKE '%a2.tex'")
    write_article(papers, 2, "another")
    with Library.open(full) as library, pytest.raises(CorruptData):
        library.add(papers)
    with closing(sqlite3.connect(full / "library.db")) as connection:
        assert connection.execute("SELECT count(DISTINCT paper) FROM equations").fetchone() == (3,)


@pytest.mark.parametrize(("version", "advice"), [("99", "install a newer eqkin"), ("0", "add the sources")])
def test_another_format_is_refused_with_advice(full: Path, version: str, advice: str) -> None:
    with closing(sqlite3.connect(full / "library.db")) as connection, connection:
        add_functions(connection)
        connection.execute(SET_STATE, {"key": "format", "value": version})
    with pytest.raises(CorruptData, match=f"format {version}.*{advice}"):
        Library.open(full)


def test_search_repairs_a_damaged_index_and_gives_the_same_answer(full: Path) -> None:
    before, chance = _search(full), random.Random(1)
    files = [path for path in sorted((full / "index").rglob("*")) if path.is_file() and path.stat().st_size]
    shutil.copytree(full / "index", full.parent / "intact")
    for path in files:
        path.write_bytes(chance.choice(_DAMAGES)(path.read_bytes(), chance))
        try:
            after = _search(full)
        except CorruptData as error:
            assert "eqkin index" in str(error)
        else:
            assert after == before
        shutil.rmtree(full / "index")
        shutil.copytree(full.parent / "intact", full / "index")
    shutil.rmtree(full / "index")
    assert _search(full) == before
    shutil.rmtree(full / "index")
    (full / "index").write_text("not a folder")
    assert [problem for problem in verify(full).problems if "delete it and run `eqkin index`" in problem]


@pytest.mark.parametrize("content", ["data/data.csv", "index/vectors.safetensors", "lock", "notes.tex"])
def test_folder_with_other_files_is_refused_as_a_new_library(tmp_path: Path, content: str) -> None:
    path = tmp_path / "project" / content
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises((BadInput, CorruptData)):
        Library.open(tmp_path / "project", create=True)
    assert path.read_text() == "mine"
    assert [p.name for p in (tmp_path / "project").iterdir()] == [content.split("/")[0]]


def test_files_of_others_are_named_by_verify_and_never_deleted_or_packed(
    full: Path, papers: Path, tmp_path: Path
) -> None:
    others = [full / name for name in ("notes.txt", ".draft.tmp", "index/mine.safetensors")]
    for path in others:
        path.write_text("mine")
    (full / "index" / "model-mine").mkdir()
    notes = verify(full).notes
    for path in others:
        assert f"{path}: does not belong to the library; eqkin leaves it alone" in notes
    write_article(papers, 9)
    with Library.open(full) as library:
        library.add(papers)
        library.open_engine()
    assert [path.read_text() for path in others] == ["mine"] * 3
    assert (full / "index" / "model-mine").is_dir()
    pack(full, tmp_path / "packed.eqkin")
    unpack(tmp_path / "packed.eqkin", tmp_path / "copy")
    assert not verify(tmp_path / "copy").problems + verify(tmp_path / "copy").notes
    assert _search(tmp_path / "copy") == _search(full)


def test_temporary_files_of_killed_processes_are_counted_and_deleted(full: Path, papers: Path) -> None:
    names = (".library.db.71.tmp", ".library.db.71.tmp-journal", "index/.index.json.7.tmp")
    for name in names:
        (full / name).write_text("x")
    notes = verify(full).notes
    assert any(note.startswith("2 unused files of an interrupted write") for note in notes)
    write_article(papers, 9)
    with Library.open(full) as library:
        library.add(papers)
        library.open_engine()
    assert not [name for name in names if (full / name).exists()]
    assert not verify(full).notes


@pytest.mark.parametrize("name", ["index", "lock", "library.db"])
def test_symbolic_links_are_not_followed(full: Path, tmp_path: Path, papers: Path, name: str) -> None:
    victim = tmp_path / "victim"
    if (full / name).is_dir():
        shutil.rmtree(full / name)
        victim.mkdir()
        (victim / "vectors-0123456789abcdef.safetensors").write_text("mine")
    else:
        (full / name).unlink(missing_ok=True)
        victim.write_text("mine")
    (full / name).symlink_to(victim)
    write_article(papers, 9)
    with pytest.raises(EqkinError, match="symbolic link"):
        Library.open(full).add(papers)
    assert verify(full).problems
    (kept,) = victim.iterdir() if victim.is_dir() else (victim,)
    assert kept.read_text() == "mine"


def test_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    from eqkin.files import WriterLock

    (tmp_path / "victim").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageFailed, match="cannot be opened"):
        WriterLock(tmp_path).__enter__()
    assert (tmp_path / "victim").read_text() == "mine"
