"""Killed updates, full disks, damaged bytes: an index is the old or the new one, and can always be rebuilt."""

import errno
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import CorruptData, EqkinError, StorageFailed
from eqkin.index.index import Index
from eqkin.index.manifest import LOCK_FILES, IndexManifest
from eqkin.index.text import TextIndex
from eqkin.index.update import update_index
from tests.index.conftest import replace_content, write_note

# For many moments at which something reaches the disk: a child updates the index of a copy and is killed there.
_DOOMED = """
import os, shutil, signal, sys
import tantivy
from pathlib import Path
import numpy as np
from eqkin.errors import BadInput
from eqkin.index.manifest import IndexSettings
from eqkin.index.index import Index
from eqkin.index.text import TextIndex
from eqkin.index.update import update_index
from eqkin.api import Library
from eqkin.api import verify
from eqkin.encoder.encoder import Encoder
from eqkin.index.features import extract_terms_and_norms

SETTINGS = IndexSettings(
    max_small_parts=2, max_part_trees=12, step_trees=4, max_seconds=0.0,
)
encoder = Encoder.load()
countdown = 0

def step():
    global countdown
    countdown -= 1
    if countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def doom():
    fsync, replace, unlink, link = os.fsync, Path.replace, Path.unlink, os.link
    real = tantivy.Index
    def make_index(*args, **kwargs): step(); index = real(*args, **kwargs); step(); return index
    make_index.open = real.open
    tantivy.Index = make_index
    def doomed_link(*paths): step(); link(*paths); step()
    os.link = doomed_link
    def doomed_fsync(descriptor): step(); fsync(descriptor); step()
    def doomed_replace(self, target): step(); replace(self, target); step()
    def doomed_unlink(self, missing_ok=False): step(); unlink(self, missing_ok=missing_ok); step()
    os.fsync, Path.replace, Path.unlink = doomed_fsync, doomed_replace, doomed_unlink

def killed_at(moment, base, folder):
    global countdown
    shutil.copytree(base, folder)
    child = os.fork()
    if not child:
        countdown = moment
        doom()
        with Library.open(folder, create=True) as library:
            update_index(library, encoder, settings=SETTINGS)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0

def content(folder):
    with Library.open(folder, create=True) as library:
        index, words = Index.open(library, encoder.digest), TextIndex.open(library)
        found = [words.search(library, text, 50) for text in ("note", "note1 note7", "equation nobody", "changed")]
        sections = [sorted(section for section, _ in hits) for hits in found]
        operators = index.get_operators(index.keys)
        codes = np.unique(extract_terms_and_norms(operators)[1])[::16]
        one = np.ones(1, np.float32)
        terms = [index.search_terms(codes[at:at + 1], one, 100)[1].tolist() for at in range(len(codes))]
        trees = [operators.to_json(at) for at in range(len(index))]
        return index.get_vectors(index.keys), (index.missing, index.keys.tolist(), sections, trees, terms)

for base, stride in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    with Library.open(shutil.copytree(base, f"{base}-whole")) as whole:
        update_index(whole, encoder, settings=SETTINGS)
    expected, moment = content(f"{base}-whole"), 1
    while killed_at(moment, base, folder := Path(f"{base}-{moment}")):
        where = (base, moment)
        problems = verify(folder).problems
        assert not problems, (where, problems)
        if (folder / "index" / "index.json").exists():
            with Library.open(folder, create=True) as library:
                try:
                    Index.open(library, encoder.digest)
                except BadInput as error:
                    assert "another model" in str(error)
        with Library.open(folder, create=True) as library:
            update_index(library, encoder, settings=SETTINGS)
        verdict = verify(folder)
        notes = [note for note in verdict.notes if "interrupted write" not in note]  # the next `add` deletes them
        assert not verdict.problems + notes, (where, verdict)
        # how trees are batched decides the last bit of their vectors
        vectors, others = content(folder)
        assert np.abs(vectors - expected[0]).max() < 2e-3 and others == expected[1], where
        shutil.rmtree(folder)
        moment += stride
    print(moment)
"""


def _run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_update_killed_at_many_moments_loses_nothing(
    tmp_path: Path, library: Library, notes: Path, encoder: Encoder, other_encoder: Encoder
) -> None:
    library.close()
    for name, used in (("some", encoder), ("other-model", other_encoder)):
        with Library.open(shutil.copytree(library.folder, tmp_path / name)) as copy:
            update_index(copy, used)
            copy.remove(str(notes / "n1.md"))
            copy.add(write_note(notes, 2, 6, "changed"))
            copy.add(write_note(notes, 7))
    done = _run(_DOOMED, library.folder, 29, tmp_path / "some", 31, tmp_path / "other-model", 37)
    assert done.returncode == 0, done.stderr
    moments = [int(moment) for moment in done.stdout.split()]
    assert len(moments) == 3 and min(moments) > 40


def test_verify_finds_any_flipped_byte_and_an_update_repairs_it(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    assert not verify(library.folder).problems
    trees = Index.open(library, encoder.digest).keys.tolist()
    chance = random.Random(7)
    kinds = (
        "index.json",
        "part-*.safetensors",
        "words-*/*.idx",
        "words-*/*.store",
        "words-*/meta.json",
    )
    for kind in reversed(kinds):
        (path,) = (library.folder / "index").glob(kind)  # what is made again may have another name
        whole = path.read_bytes()
        for at in chance.sample(range(len(whole)), 4):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << chance.randrange(8)
            replace_content(path, flipped)
            problems = verify(library.folder).problems
            assert problems and all("`eqkin index" in problem for problem in problems), f"{path.name} byte {at}"
        update_index(library, encoder)
        assert not verify(library.folder).problems
        assert Index.open(library, encoder.digest).keys.tolist() == trees
        assert TextIndex.open(library).search(library, "note", 3)


def test_verify_reports_missing_files_and_an_update_replaces_them(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    for path in list((library.folder / "index").rglob("*")):
        unused = ("lock", *LOCK_FILES)
        if path.name not in unused and path.is_file():  # what was made again may have another name
            content = path.read_bytes()
            path.unlink()
            verdict = verify(library.folder)
            assert verdict.problems or verdict.notes
            if path.suffix == ".safetensors":
                with pytest.raises(CorruptData, match="run `eqkin index"):
                    Index.open(library, encoder.digest)
            update_index(library, encoder)
            verdict = verify(library.folder)
            assert not verdict.problems + verdict.notes
            assert Index.open(library, encoder.digest).missing == 0
            assert content


def test_damaged_index_raises_only_our_errors(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    codes = np.arange(9, dtype=np.uint32)
    chance = random.Random(3)
    for path in [p for p in (library.folder / "index").rglob("*") if p.is_file() and p.stat().st_size]:
        content = path.read_bytes()
        for _ in range(15):
            damaged = bytearray(content)
            for at in chance.sample(range(len(content)), min(len(content), 60)):
                damaged[at] = chance.randrange(256)
            replace_content(path, damaged[: chance.choice([len(damaged), 100])])
            try:
                index = Index.open(library, encoder.digest)
                index.search_vectors(encoder.encode(["x"]), 3)
                index.search_terms(codes, np.ones(len(codes), np.float32), 3)
                TextIndex.open(library).search(library, "note equation", 3)
            except EqkinError:
                pass
        replace_content(path, content)
    assert not verify(library.folder).problems


def test_failed_fsync_raises_storage_failed_and_keeps_the_old_state(
    library: Library, encoder: Encoder, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_index(library, encoder)
    before = IndexManifest.load(library.folder / "index")
    library.add(write_note(notes, 9))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("eqkin.files.os.fsync", fail)
        with pytest.raises(StorageFailed, match="Input/output error"):
            update_index(library, encoder)
    assert IndexManifest.load(library.folder / "index") == before
    assert Index.open(library, encoder.digest).missing == 5
    assert update_index(library, encoder).indexed == 5


def test_full_disk_raises_storage_failed_and_keeps_the_old_state(
    library: Library, encoder: Encoder, tmp_path: Path
) -> None:
    update_index(library, encoder)
    library.add(write_note(tmp_path / "big", 100, 900, "word " * 50_000))
    script = "import resource, signal, sys\nfrom eqkin import Encoder, Library\n"
    script += "from eqkin.index.update import update_index\n"
    script += "library, encoder = Library.open(sys.argv[1], create=True), Encoder.load()\n"
    script += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    script += "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
    script += "update_index(library, encoder)\n"
    full = _run(script, library.folder)
    assert full.returncode == 1
    assert "StorageFailed" in full.stderr, full.stderr
    assert not verify(library.folder).problems
    assert len(Index.open(library, encoder.digest)) == 15
    update_index(library, encoder)
    verdict = verify(library.folder)
    assert not verdict.problems + verdict.notes
    assert len(Index.open(library, encoder.digest)) == 915


def test_update_raises_storage_failed_where_no_index_can_be_created(library: Library, encoder: Encoder) -> None:
    (library.folder / "index").write_text("x")
    with pytest.raises(StorageFailed):
        update_index(library, encoder)
    with pytest.raises(EqkinError):
        Index.open(library, encoder.digest)
