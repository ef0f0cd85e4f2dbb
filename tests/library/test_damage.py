"""Damaged, foreign and leftover files: no answer from damaged data, nothing deleted that eqkin did not write."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eqkin.api import Library, pack, unpack, verify
from eqkin.errors import BadInput, CorruptData, EqkinError, StorageFailed
from eqkin.library.judgements import Judgement, LocalJudgements
from tests.library.conftest import write_article

QUERY = r"E = \frac12 m v^2 + V(x_1)"


@pytest.fixture
def full(library: Library) -> Path:
    """The folder of a library with index and judgements."""
    library.open_engine()
    LocalJudgements(library.folder).add(Judgement("a", True, latex="x", keywords=("energy",)))
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


@pytest.mark.parametrize("pattern", ["library.db", "forest/0*", "judgements.db", "judgements.json", "manifest.json"])
def test_damaged_library_is_found_when_it_is_opened(full: Path, pattern: str) -> None:
    before, chance = _search(full), random.Random(pattern)
    (path,) = full.glob(pattern)
    content = path.read_bytes()
    for damage in _DAMAGES:
        damaged = damage(content, chance)
        if damaged == content:
            continue
        path.write_bytes(damaged)
        with pytest.raises(CorruptData, match=r"restore|eqkin index|add the sources"):
            _search(full)
        assert any(path.name in problem for problem in verify(full).problems)
    path.unlink()
    assert verify(full).problems or path.name == "judgements.json"  # of which the rows are checked one by one
    path.write_bytes(content)
    assert _search(full) == before
    assert not verify(full).problems


def test_search_repairs_a_damaged_index_and_gives_the_same_answer(full: Path) -> None:
    before, chance = _search(full), random.Random(1)
    for pattern in ("vectors-*", "terms-*", "words-*", "index.json", "checked.json"):
        (path,) = (full / "index").glob(pattern)
        path.write_bytes(chance.choice(_DAMAGES)(path.read_bytes(), chance))
        assert verify(full).problems
        try:
            after = _search(full)
        except CorruptData as error:
            assert "eqkin index" in str(error)
        else:
            assert after == before
        with Library.open(full) as library:
            library.open_engine()
        shutil.rmtree(full / "index")
        assert _search(full) == before
    shutil.rmtree(full / "index")
    (full / "index").write_text("not a folder")
    assert [problem for problem in verify(full).problems if "delete it and run `eqkin index`" in problem]


def test_writer_refuses_to_seal_a_damaged_database(full: Path, papers: Path) -> None:
    path = full / "library.db"
    library = Library.open(full)
    path.write_bytes(path.read_bytes() + b"x")
    write_article(papers, 9)
    with pytest.raises(CorruptData, match="does not match its hash"):
        library.add(papers)


def test_unchanged_library_is_not_read_again_when_it_is_opened(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(full / "library.db", (1, 1))
    old = {path: path.stat().st_mtime_ns for path in full.rglob("*")}
    _search(full)

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("eqkin.storage.segments._SETTLE_NANOSECONDS", 0)
    _search(full)
    monkeypatch.setattr("eqkin.storage.segments.hash_file", refuse)
    assert _search(full)
    assert old[full / "library.db"] == (full / "library.db").stat().st_mtime_ns


@pytest.mark.parametrize("content", ["forest/data.csv", "forest/0000000000-0a.safetensors", "lock", "notes.tex"])
def test_folder_with_other_files_is_refused_as_a_new_library(tmp_path: Path, content: str) -> None:
    path = tmp_path / "project" / content
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(BadInput, match=f"not a library .it has {content}"):
        Library.open(tmp_path / "project", create=True)
    assert path.read_text() == "mine"
    assert [p.name for p in (tmp_path / "project").iterdir()] == [content.split("/")[0]]


def test_files_of_others_are_named_by_verify_and_never_deleted_or_packed(
    full: Path, papers: Path, tmp_path: Path
) -> None:
    others = [full / name for name in ("notes.txt", ".draft.tmp", "forest/data.csv", "index/mine.safetensors")]
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
    assert [path.read_text() for path in others] == ["mine"] * 4
    assert (full / "index" / "model-mine").is_dir()
    pack(full, tmp_path / "packed.eqkin")
    unpack(tmp_path / "packed.eqkin", tmp_path / "copy")
    assert not verify(tmp_path / "copy").problems + verify(tmp_path / "copy").notes
    assert _search(tmp_path / "copy") == _search(full)


def test_temporary_files_of_killed_processes_are_counted_and_deleted(full: Path, papers: Path) -> None:
    names = (
        ".manifest.json.71.tmp",
        "forest/.0000000099-0123456789abcdef.safetensors.71.tmp",
        "index/.index.json.7.tmp",
    )
    names += ("index/.words-0123456789abcdef.db.71.tmp-journal", "index/vectors-0123456789abcdef.safetensors")
    names += (".judgements.json.71.tmp",)
    for name in names:
        (full / name).write_text("x")
    notes = verify(full).notes
    assert any(note.startswith("3 unused files of an interrupted write") for note in notes)
    assert any(note.startswith("3 unused files of an interrupted update") for note in notes)
    LocalJudgements(full).add(Judgement("a", False, latex="x"))
    write_article(papers, 9)
    with Library.open(full) as library:
        library.add(papers)
        library.open_engine()
    assert not [name for name in names if (full / name).exists()]
    assert not verify(full).notes


@pytest.mark.parametrize("name", ["forest", "index", "lock", "judgements.db", "library.db"])
def test_symbolic_links_are_not_followed(full: Path, tmp_path: Path, papers: Path, name: str) -> None:
    victim = tmp_path / "victim"
    if (full / name).is_dir():
        shutil.rmtree(full / name)
        victim.mkdir()
        (victim / "0000000000-0123456789abcdef.safetensors").write_text("mine")
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
    from eqkin.storage.files import WriterLock

    (tmp_path / "victim").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageFailed, match="cannot be opened"):
        WriterLock(tmp_path).__enter__()
    assert (tmp_path / "victim").read_text() == "mine"
