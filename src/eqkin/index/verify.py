"""Checking an index: every file against its hash. Nothing in it is lost for good: it can be built again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData, StorageFailed
from eqkin.index.index import find_members
from eqkin.index.manifest import (
    INDEX_FOLDER,
    INDEX_MANIFEST_NAME,
    REBUILD_HINT,
    IndexManifest,
    find_model_problems,
    find_unknown_files,
)
from eqkin.index.parts import Part
from eqkin.index.text import TextChanges
from eqkin.library.files import LibraryFiles


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
            manifest = IndexManifest.load(folder)
            if manifest is not None:
                problems += find_model_problems(folder, manifest)
                if manifest.generation > library.read_generation():
                    problems.append(f"{folder}: is of another library, or a later state of this one; {REBUILD_HINT}")
                _check_parts(library, folder, manifest, problems, notes)
                _check_text(library, folder, manifest, problems, notes)
            leftover, foreign = find_unknown_files(folder, manifest)
            if manifest is None and any(name.startswith(("part-", "words-")) for name in leftover):
                problems.append(f"{folder / INDEX_MANIFEST_NAME}: missing; run `eqkin index`")
            elif leftover:
                notes.append(f"{len(leftover)} unused files of an interrupted update; `eqkin index` deletes them")
            notes += [f"{folder / name}: does not belong to the library; eqkin leaves it alone" for name in foreign]
    except (CorruptData, StorageFailed) as error:
        problems.append(str(error))
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        problems.append(f"{folder}: damaged ({error!r})")
    return problems, notes


def _check_parts(
    library: LibraryFiles, folder: Path, manifest: IndexManifest, problems: list[str], notes: list[str]
) -> None:
    """Check all parts; every equation must be in one of them once."""
    keys = [np.zeros(0, np.int64)]
    for entry in manifest.parts:
        try:
            keys.append(Part.open(folder, entry).keys)
        except CorruptData as error:
            problems.append(str(error))
    if len(keys) <= len(manifest.parts):
        return
    indexed = np.sort(np.concatenate(keys))
    if (indexed[1:] == indexed[:-1]).any():
        problems.append(f"{folder}: an equation is indexed twice; {REBUILD_HINT}")
    missing = int(np.count_nonzero(~find_members(library.list_tree_keys(), indexed)))
    if missing or not manifest.has_current_terms:
        notes.append(f"{missing:,} equations are not indexed yet; run `eqkin index`")


def _check_text(
    library: LibraryFiles, folder: Path, manifest: IndexManifest, problems: list[str], notes: list[str]
) -> None:
    """Check the files of the text index, and that it has all papers."""
    if manifest.words is None:
        notes.append("the text is not indexed yet; run `eqkin index`")
        return
    damaged = manifest.words.find_problems(folder)
    problems += damaged
    if not damaged and TextChanges(library, folder, manifest.words):
        notes.append("the text of some papers is not indexed yet; run `eqkin index`")
