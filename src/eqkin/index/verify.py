"""Checking an index: every file against its hash. Nothing in it is lost for good: it can be built again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData, StorageFailed
from eqkin.index.manifest import INDEX_FOLDER, REBUILD_HINT, IndexManifest, find_model_problems
from eqkin.index.terms import TERM_SCHEME, read_trees
from eqkin.index.text import find_changes, find_problems
from eqkin.index.vectors import VectorFiles, has_repeats
from eqkin.library import LibraryFiles
from eqkin.library.queries import list_tree_ids
from eqkin.storage.segments import HASH_CACHE_NAME, SegmentEntry, SegmentSet, has_hash, is_cache_damaged


class _IndexCheck:
    """What is found in the index of one library."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path / INDEX_FOLDER
        self.problems: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        with LibraryFiles.open(self.path, create=False) as library:
            if is_cache_damaged(self.folder):
                self.problems.append(f"{self.folder / HASH_CACHE_NAME}: damaged; `eqkin index` replaces it")
            manifest = IndexManifest.load(self.folder)
            if manifest is not None:
                self.problems += find_model_problems(self.folder, manifest)
                if manifest.generation > library.read_generation():
                    self.problems.append(
                        f"{self.folder}: is of another library, or a later state of this one; {REBUILD_HINT}"
                    )
                self._check_vectors(library, manifest)
                self._check_terms(library, manifest)
                self._check_text(library, manifest)
            known = (manifest or IndexManifest("", 0, 0)).names
            unused = [path.name for path in self.folder.iterdir() if path.name not in known]
            if unused:
                self.notes.append(f"{len(unused)} unused files of an interrupted update; `eqkin index` deletes them")

    def _check_vectors(self, library: LibraryFiles, manifest: IndexManifest) -> None:
        entries: list[SegmentEntry] = [*manifest.files, *([manifest.nearest] if manifest.nearest else [])]
        damaged = SegmentSet(self.folder, entries, REBUILD_HINT).find_problems()
        self.problems += damaged
        if damaged:
            return
        trees = VectorFiles(self.folder, manifest.files, manifest.dimensions).trees
        if has_repeats(trees):
            self.problems.append(f"{self.folder}: an equation has two vectors; {REBUILD_HINT}")
        missing = int(np.isin(list_tree_ids(library), trees, invert=True).sum())
        if missing:
            self.notes.append(f"{missing:,} equations have no vector yet; run `eqkin index`")

    def _check_terms(self, library: LibraryFiles, manifest: IndexManifest) -> None:
        entries = manifest.terms or ()
        damaged = SegmentSet(self.folder, entries, REBUILD_HINT).find_problems()
        self.problems += damaged
        if damaged:
            return
        trees = read_trees(self.folder, [entry for entry in entries if entry.scheme == TERM_SCHEME])
        if has_repeats(trees):
            self.problems.append(f"{self.folder}: the terms of an equation are indexed twice; {REBUILD_HINT}")
        missing = int(np.isin(list_tree_ids(library), trees, invert=True).sum())
        if missing:
            self.notes.append(f"the terms of {missing:,} equations are not indexed yet; run `eqkin index`")

    def _check_text(self, library: LibraryFiles, manifest: IndexManifest) -> None:
        entry = manifest.words
        if entry is None:
            self.notes.append("the text is not indexed yet; run `eqkin index`")
            return
        path = self.folder / entry.file
        if not path.exists() or (entry.sealed and not has_hash(path, entry.sha256, force=True)):
            self.problems.append(f"{path}: missing, or does not match its hash; {REBUILD_HINT}")
            return
        try:
            self.problems += [f"{path}: {problem}; {REBUILD_HINT}" for problem in find_problems(path)]
            if not entry.sealed or find_changes(library, self.folder, entry):
                self.notes.append("the text of some papers is not indexed yet; run `eqkin index`")
        except CorruptData as error:
            self.problems.append(str(error))


def verify_index(path: Path) -> tuple[list[str], list[str]]:
    """Check the index of the library in a folder; return what is damaged, and what is only unfinished.

    The caller holds the index's writer lock.
    """
    check = _IndexCheck(path)
    if check.folder.is_dir():
        try:
            check.run()
        except (CorruptData, StorageFailed) as error:
            check.problems.append(str(error))
        except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
            check.problems.append(f"{check.folder}: damaged ({error!r})")
    return check.problems, check.notes
