"""Checking an index: every file against its hash. Nothing in it is lost for good: it can be built again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData, StorageFailed
from eqkin.index.manifest import (
    INDEX_FOLDER,
    INDEX_MANIFEST_NAME,
    REBUILD_HINT,
    IndexManifest,
    find_model_problems,
    find_unknown_index_files,
)
from eqkin.index.term_segments import SEGMENT_SCHEME, read_trees
from eqkin.index.text import TextChanges
from eqkin.index.vectors import VectorFiles, has_repeats
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import list_tree_ids
from eqkin.storage.segments import HASH_CACHE_NAME, SegmentSet, is_cache_damaged


def verify_index(path: Path) -> tuple[list[str], list[str]]:
    """Check the index of the library in a folder; return what is damaged, and what is only unfinished.

    The caller holds the index's writer lock.
    """
    folder = path / INDEX_FOLDER
    problems: list[str] = []
    notes: list[str] = []
    if not folder.is_dir():
        if folder.exists():
            problems.append(f"{folder}: is not a folder; delete it and run `eqkin index`")
        return problems, notes
    try:
        with LibraryFiles.open(path) as library:
            if is_cache_damaged(folder):
                problems.append(f"{folder / HASH_CACHE_NAME}: damaged; `eqkin index` replaces it")
            manifest = IndexManifest.load(folder)
            if manifest is not None:
                problems += find_model_problems(folder, manifest)
                if manifest.generation > library.read_generation():
                    problems.append(f"{folder}: is of another library, or a later state of this one; {REBUILD_HINT}")
                _check_segments(library, folder, manifest, problems, notes)
                _check_text(library, folder, manifest, problems, notes)
            leftover, foreign = find_unknown_index_files(folder, manifest)
            if manifest is None and any(name.startswith(("terms-", "words-")) for name in leftover):
                problems.append(f"{folder / INDEX_MANIFEST_NAME}: missing; run `eqkin index`")
            elif leftover:
                notes.append(f"{len(leftover)} unused files of an interrupted update; `eqkin index` deletes them")
            notes += [f"{folder / name}: does not belong to the library; eqkin leaves it alone" for name in foreign]
    except (CorruptData, StorageFailed) as error:
        problems.append(str(error))
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        problems.append(f"{folder}: damaged ({error!r})")
    return problems, notes


def _check_segments(
    library: LibraryFiles, folder: Path, manifest: IndexManifest, problems: list[str], notes: list[str]
) -> None:
    """Check the segments of vectors and of terms; every tree must have both once."""
    live, terms = list_tree_ids(library), manifest.terms or ()
    damaged = SegmentSet(folder, manifest.files, REBUILD_HINT).find_problems()
    problems += damaged
    if not damaged:
        trees = VectorFiles(folder, manifest.files, manifest.dimensions).trees
        if has_repeats(trees):
            problems.append(f"{folder}: an equation has two vectors; {REBUILD_HINT}")
        if missing := int(np.isin(live, trees, invert=True).sum()):
            notes.append(f"{missing:,} equations have no vector yet; run `eqkin index`")
    damaged = SegmentSet(folder, terms, REBUILD_HINT).find_problems()
    problems += damaged
    if not damaged:
        trees = read_trees(folder, [entry for entry in terms if entry.scheme == SEGMENT_SCHEME])
        if has_repeats(trees):
            problems.append(f"{folder}: the terms of an equation are indexed twice; {REBUILD_HINT}")
        if missing := int(np.isin(live, trees, invert=True).sum()):
            notes.append(f"the terms of {missing:,} equations are not indexed yet; run `eqkin index`")


def _check_text(
    library: LibraryFiles, folder: Path, manifest: IndexManifest, problems: list[str], notes: list[str]
) -> None:
    entry = manifest.words
    if entry is None:
        notes.append("the text is not indexed yet; run `eqkin index`")
        return
    damaged = entry.find_problems(folder)
    problems += damaged
    if not damaged and TextChanges(library, folder, entry):
        notes.append("the text of some papers is not indexed yet; run `eqkin index`")
