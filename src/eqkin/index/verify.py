"""Checking an index: every file against its hash. Nothing in it is lost for good: it can be made again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData
from eqkin.index import checked, networks, vectors
from eqkin.index.live import live_trees
from eqkin.index.state import FOLDER, LOCK, MEND, NAME, IndexState
from eqkin.index.structure_files import SCHEME
from eqkin.index.structure_update import trees_in
from eqkin.index.words_update import changes, problems
from eqkin.library import Library
from eqkin.library.database import generation


def check_index(library: Library) -> tuple[list[str], list[str]]:
    """What is wrong with a library's index, and what is only unfinished. The caller holds the index's lock."""
    folder = library.folder / FOLDER
    wrong: list[str] = []
    unfinished: list[str] = []
    if checked.damaged(folder):
        wrong.append(f"{folder / checked.NAME}: damaged; `eqkin index` makes it anew")
    state = IndexState.load(folder)
    if state is not None:
        wrong.extend(networks.problems(folder, state))
        _check_vectors(library, folder, state, wrong, unfinished)
        _check_structure(library, folder, state, wrong, unfinished)
        _check_words(library, folder, state, wrong, unfinished)
    kept = {NAME, LOCK, checked.NAME} | (state.names if state else set())
    strays = [path.name for path in folder.iterdir() if path.name not in kept]
    if strays:
        unfinished.append(f"{len(strays)} unused files of an interrupted indexing; `eqkin index` deletes them")
    return wrong, unfinished


def _check_vectors(library: Library, folder: Path, state: IndexState, wrong: list[str], unfinished: list[str]) -> None:
    damaged = [entry.file for entry in state.files if not checked.intact(folder, entry, afresh=True)]
    if state.nearest and not checked.intact(folder, state.nearest, afresh=True):
        damaged.append(state.nearest.file)
    wrong.extend(f"{folder / name}: missing, or does not match its hash; {MEND}" for name in damaged)
    if state.generation > generation(library.connection):
        wrong.append(f"{folder}: is of another library, or a later state of this one; {MEND}")
    if damaged:
        return
    trees = vectors.VectorFiles(folder, state.files, state.dimensions).trees
    if _repeats(trees):
        wrong.append(f"{folder}: an equation has two vectors; {MEND}")
    missing = int(np.isin(live_trees(library), trees, invert=True).sum())
    if missing:
        unfinished.append(f"{missing:,} equations have no vector yet; run `eqkin index`")


def _check_structure(
    library: Library, folder: Path, state: IndexState, wrong: list[str], unfinished: list[str]
) -> None:
    entries = state.terms or ()
    damaged = [entry.file for entry in entries if not checked.intact(folder, entry, afresh=True)]
    wrong.extend(f"{folder / name}: missing, or does not match its hash; {MEND}" for name in damaged)
    if damaged:
        return
    trees = trees_in(folder, [entry for entry in entries if entry.scheme == SCHEME])
    if _repeats(trees):
        wrong.append(f"{folder}: the structure of an equation is there twice; {MEND}")
    missing = int(np.isin(live_trees(library), trees, invert=True).sum())
    if missing:
        unfinished.append(f"the structure of {missing:,} equations was not taken in yet; run `eqkin index`")


def _check_words(library: Library, folder: Path, state: IndexState, wrong: list[str], unfinished: list[str]) -> None:
    entry = state.words
    if entry is None:
        unfinished.append("the words were not taken in yet; run `eqkin index`")
        return
    path = folder / entry.file
    if not path.exists() or (entry.sealed and not checked.matches(path, entry.sha256, afresh=True)):
        wrong.append(f"{path}: missing, or does not match its hash; {MEND}")
        return
    try:
        wrong.extend(f"{path}: {problem}; {MEND}" for problem in problems(path))
        if not entry.sealed or changes(library, folder, entry):
            unfinished.append("the words of some papers were not taken in yet; run `eqkin index`")
    except CorruptData as error:
        wrong.append(str(error))


def _repeats(trees: vectors.Integers) -> bool:
    """Whether a number is there twice; sorting is far faster than the hashing that `np.unique` does."""
    ordered = np.sort(trees)
    return bool((ordered[1:] == ordered[:-1]).any())
