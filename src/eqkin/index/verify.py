"""Checking an index: every file against its hash. Nothing in it is lost for good: it can be made again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData, StorageFailed
from eqkin.index import checked, networks, vectors
from eqkin.index.state import INDEX_FOLDER, INDEX_MANIFEST_NAME, LOCK_NAME, REBUILD_HINT, IndexManifest
from eqkin.index.structure_files import TERM_SCHEME
from eqkin.index.structure_update import read_trees
from eqkin.index.words_update import find_changes, find_problems
from eqkin.library import LibraryFiles
from eqkin.library.database import read_generation
from eqkin.library.queries import list_tree_ids


def verify_index(path: Path) -> tuple[list[str], list[str]]:
    """Check the index of the library in a folder; return what is damaged, and what is only unfinished.

    The caller holds the index's writer lock.
    """
    folder = path / INDEX_FOLDER
    wrong: list[str] = []
    unfinished: list[str] = []
    if not folder.is_dir():
        return wrong, unfinished
    try:
        with LibraryFiles.open(path, create=False) as library:
            if checked.is_damaged(folder):
                wrong.append(f"{folder / checked.HASH_CACHE_NAME}: damaged; `eqkin index` makes it anew")
            state = IndexManifest.load(folder)
            if state is not None:
                wrong.extend(networks.find_model_problems(folder, state))
                _check_vectors(library, folder, state, wrong, unfinished)
                _check_terms(library, folder, state, wrong, unfinished)
                _check_text(library, folder, state, wrong, unfinished)
            kept = {INDEX_MANIFEST_NAME, LOCK_NAME, checked.HASH_CACHE_NAME} | (state.names if state else set())
            strays = [path.name for path in folder.iterdir() if path.name not in kept]
            if strays:
                unfinished.append(f"{len(strays)} unused files of an interrupted indexing; `eqkin index` deletes them")
    except (CorruptData, StorageFailed) as error:
        wrong.append(str(error))
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        wrong.append(f"{folder}: damaged ({error!r})")
    return wrong, unfinished


def _check_vectors(
    library: LibraryFiles, folder: Path, state: IndexManifest, wrong: list[str], unfinished: list[str]
) -> None:
    damaged = [entry.file for entry in state.files if not checked.is_intact(folder, entry, afresh=True)]
    if state.nearest and not checked.is_intact(folder, state.nearest, afresh=True):
        damaged.append(state.nearest.file)
    wrong.extend(f"{folder / name}: missing, or does not match its hash; {REBUILD_HINT}" for name in damaged)
    if state.generation > read_generation(library.connection):
        wrong.append(f"{folder}: is of another library, or a later state of this one; {REBUILD_HINT}")
    if damaged:
        return
    trees = vectors.VectorFiles(folder, state.files, state.dimensions).trees
    if _has_repeats(trees):
        wrong.append(f"{folder}: an equation has two vectors; {REBUILD_HINT}")
    missing = int(np.isin(list_tree_ids(library), trees, invert=True).sum())
    if missing:
        unfinished.append(f"{missing:,} equations have no vector yet; run `eqkin index`")


def _check_terms(
    library: LibraryFiles, folder: Path, state: IndexManifest, wrong: list[str], unfinished: list[str]
) -> None:
    entries = state.terms or ()
    damaged = [entry.file for entry in entries if not checked.is_intact(folder, entry, afresh=True)]
    wrong.extend(f"{folder / name}: missing, or does not match its hash; {REBUILD_HINT}" for name in damaged)
    if damaged:
        return
    trees = read_trees(folder, [entry for entry in entries if entry.scheme == TERM_SCHEME])
    if _has_repeats(trees):
        wrong.append(f"{folder}: the structure of an equation is there twice; {REBUILD_HINT}")
    missing = int(np.isin(list_tree_ids(library), trees, invert=True).sum())
    if missing:
        unfinished.append(f"the structure of {missing:,} equations was not taken in yet; run `eqkin index`")


def _check_text(
    library: LibraryFiles, folder: Path, state: IndexManifest, wrong: list[str], unfinished: list[str]
) -> None:
    entry = state.words
    if entry is None:
        unfinished.append("the words were not taken in yet; run `eqkin index`")
        return
    path = folder / entry.file
    if not path.exists() or (entry.sealed and not checked.has_hash(path, entry.sha256, afresh=True)):
        wrong.append(f"{path}: missing, or does not match its hash; {REBUILD_HINT}")
        return
    try:
        wrong.extend(f"{path}: {problem}; {REBUILD_HINT}" for problem in find_problems(path))
        if not entry.sealed or find_changes(library, folder, entry):
            unfinished.append("the words of some papers were not taken in yet; run `eqkin index`")
    except CorruptData as error:
        wrong.append(str(error))


def _has_repeats(trees: vectors.Integers) -> bool:
    """Whether a number is there twice; sorting is far faster than the hashing that `np.unique` does."""
    ordered = np.sort(trees)
    return bool((ordered[1:] == ordered[:-1]).any())
