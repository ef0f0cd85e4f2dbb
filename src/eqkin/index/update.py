"""Bringing the index of a library up to date: features of new equations in parts, text; and checking it.

Parts are written once, then `index.json` names them: an update killed at any moment leaves the old or the new state,
and the next one continues from there. The index has its own lock, so that papers can be added during an update.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData, LibraryBusy, StorageFailed
from eqkin.executor import Executor, LocalExecutor, ThreadExecutor
from eqkin.files import WriterLock, sync_folder
from eqkin.index.features import Embedder, FeatureExtractor, Integers, TreeFeatures, TreeTask, fail_task
from eqkin.index.index import Mask, find_members
from eqkin.index.manifest import (
    INDEX_FOLDER,
    INDEX_MANIFEST_NAME,
    REBUILD_HINT,
    SETTINGS,
    IndexManifest,
    IndexSettings,
    PartEntry,
    delete_unused,
    find_model_problems,
    find_unknown_files,
    save_model,
)
from eqkin.index.parts import Part
from eqkin.index.text import TextChanges, is_mostly_dead
from eqkin.library.files import LibraryFiles
from eqkin.library.references import EquationColumns, read_columns

Progress = Callable[[str, int, int], None]


@dataclass
class UpdateReport:
    """Counts of what an update did, and of what the index has now."""

    # New equations, and the seconds that it took to index them.
    indexed: int = 0
    seconds: float = 0.0
    # Equations of the library that can be searched now.
    equations: int = 0
    # Papers whose text was added or removed.
    papers: int = 0
    forgotten: int = 0


def update_index(
    library: LibraryFiles,
    encoder: Embedder,
    progress: Progress | None = None,
    *,
    rebuild: bool = False,
    executor: Executor | None = None,
    threads: ThreadExecutor | None = None,
    settings: IndexSettings = SETTINGS,
) -> UpdateReport:
    """Index new equations and the text of new papers. Safe to interrupt and to run again.

    Files that are damaged, or of another model, are replaced.

    Args:
        library: the library; other processes may add to it at the same time.
        encoder: the model of all vectors.
        progress: called with the stage ("formulas", "words"), how much of it is done, and of how much.
        rebuild: replace everything.
        executor: does the work; by default this process.
        threads: do the work instead of `executor`, for an encoder on a GPU.
        settings: sizes at which the index changes its way of working.

    Raises:
        LibraryBusy: another process is updating this index.
        StorageFailed: the disk is full or read-only; what was stored before is intact.
    """
    folder = library.folder / INDEX_FOLDER
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync_folder(library.folder)
        with WriterLock(folder):
            update = _IndexUpdate(
                library, encoder, progress or (lambda *_: None), executor=threads or executor, settings=settings
            )
            return update.run(rebuild)
    except OSError as error:
        raise StorageFailed(f"{folder}: {error.strerror or error}; what was stored before is intact") from error


def ensure_current(library: LibraryFiles, encoder: Embedder, is_complete: Callable[[], bool] | None = None) -> bool:
    """Update the index if the library or the model has changed since the last update; return whether it had.

    Args:
        library: the library.
        encoder: the model of all vectors.
        is_complete: asked if nothing has changed: whether the index has all equations. An update may have been killed.

    Raises:
        StorageFailed: nothing can be written.
    """
    manifest = None
    # A damaged manifest is replaced.
    with suppress(CorruptData):
        manifest = IndexManifest.load(library.folder / INDEX_FOLDER)
    current = (
        manifest is not None
        and manifest.has_current_terms
        and (manifest.model, manifest.generation) == (encoder.digest, library.read_generation())
    )
    if current and is_complete is not None:
        try:
            current = is_complete()
        except CorruptData:
            current = False
    if not current:
        # If it is busy, another process is updating it.
        with suppress(LibraryBusy):
            update_index(library, encoder)
    return not current


class _IndexUpdate:
    """One update, under the lock."""

    def __init__(
        self,
        library: LibraryFiles,
        encoder: Embedder,
        progress: Progress,
        *,
        executor: Executor | None,
        settings: IndexSettings,
    ) -> None:
        self.library = library
        self.encoder = encoder
        self.progress = progress
        self.executor = executor or LocalExecutor()
        self.settings = settings
        self.folder = library.folder / INDEX_FOLDER
        self.parts: dict[PartEntry, Part] = {}
        # The manifest as it is on disk.
        self.stored: IndexManifest | None = None
        self.report = UpdateReport()

    def run(self, rebuild: bool) -> UpdateReport:
        """Do all steps; `rebuild`: from nothing."""
        self.manifest = self._load_start(rebuild)
        if self.stored is None:
            # A manifest without parts comes first: parts without a manifest would be damage.
            self._commit()
        self._add_equations()
        self._tidy_parts()
        if self.manifest != self.stored:
            self._commit()
        self._update_text(rebuild)
        delete_unused(self.folder, self.manifest)
        sync_folder(self.folder)
        return self.report

    def _load_start(self, rebuild: bool) -> IndexManifest:
        """Return the manifest to start from: of this model and library, with intact parts only."""
        fresh = IndexManifest(
            model=self.encoder.digest,
            dimensions=self.encoder.dimensions,
            generation=self.library.read_generation(),
            network=save_model(self.folder, self.encoder),
        )
        try:
            self.stored = IndexManifest.load(self.folder)
        except CorruptData:
            return fresh
        if self.stored is None:
            return fresh
        fresh = replace(fresh, words=self.stored.words)
        is_usable = (
            self.stored.model == fresh.model
            and self.stored.generation <= fresh.generation
            and self.stored.has_current_terms
        )
        if rebuild or not is_usable:
            return fresh
        for entry in self.stored.parts:
            # The equations of a damaged part are indexed again.
            with suppress(CorruptData):
                self.parts[entry] = Part.open(self.folder, entry)
        return replace(fresh, parts=tuple(self.parts))

    def _commit(self) -> None:
        self.manifest.save(self.folder)
        self.stored = self.manifest

    def _add_part(self, part: Part) -> None:
        """Write a part and name it in the manifest, which the caller commits."""
        entry = part.write(self.folder)
        self.parts[entry] = Part.open(self.folder, entry)
        self.manifest = replace(self.manifest, parts=tuple(self.parts))

    def _add_equations(self) -> None:
        """Write parts of the library's equations that the index lacks, and commit each."""
        started = time.monotonic()
        have = np.sort(np.concatenate([np.zeros(0, np.int64), *(part.keys for part in self.parts.values())]))
        live = self.library.list_tree_keys()
        new = live[~find_members(live, have)]
        extract = FeatureExtractor(self.encoder, one_thread=not isinstance(self.executor, ThreadExecutor))
        waiting: list[TreeFeatures] = []
        written = started
        try:
            for features in self.executor.map(extract, self._iter_tasks(new), on_failure=fail_task):
                count = sum(len(some.keys) for some in waiting)
                is_full = count + len(features.keys) > self.settings.max_part_trees
                if waiting and (is_full or time.monotonic() - written > self.settings.max_seconds):
                    self._write_features(waiting)
                    waiting = []
                    written = time.monotonic()
                waiting.append(features)
                self.report.indexed += len(features.keys)
                self.progress("formulas", self.report.indexed, max(len(new), self.report.indexed))
        finally:
            # An interruption loses nothing that was computed.
            if waiting:
                self._write_features(waiting)
        self.report.seconds = time.monotonic() - started

    def _iter_tasks(self, new: Integers) -> Iterator[TreeTask]:
        """Yield the trees of new equations, some at a time, in ascending order."""
        step = min(self.settings.step_trees, self.settings.max_part_trees)
        for keys, forest, operators in self.library.iter_trees(new, step):
            yield TreeTask(keys, forest, operators)

    def _write_features(self, features: list[TreeFeatures]) -> None:
        keys = np.concatenate([some.keys for some in features])
        with self.library.translate_errors():
            found = read_columns(self.library, keys)
        # An equation may have been removed a moment ago; then its columns do not matter.
        columns = np.zeros((3, len(keys)), np.int64)
        columns[:, np.searchsorted(keys, found.keys)] = found[1:]
        self._add_part(Part.build(features, EquationColumns(keys, *columns)))
        self._commit()

    def _tidy_parts(self) -> None:
        """Merge small parts if there are many, and write parts again that are mostly dead."""
        live = self.library.list_tree_keys()
        alive = {entry: find_members(part.keys, live) for entry, part in self.parts.items()}
        counts = {entry: int(kept.sum()) for entry, kept in alive.items()}
        self.report.equations = sum(counts.values())
        small = [entry for entry, count in counts.items() if 2 * count < self.settings.max_part_trees]
        is_mostly_dead = any(2 * counts[entry] < entry.count for entry in small)
        if len(small) <= self.settings.max_small_parts and not is_mostly_dead:
            return
        run: list[PartEntry] = []
        for entry in small:
            if run and sum(counts[one] for one in run) + counts[entry] > self.settings.max_part_trees:
                self._merge(run, alive)
                run = []
            run.append(entry)
        if run:
            self._merge(run, alive)

    def _merge(self, run: list[PartEntry], alive: dict[PartEntry, Mask]) -> None:
        """Replace some parts by one part with their equations that are alive, if there are any."""
        if len(run) == 1 and alive[run[0]].all():
            return
        parts = [self.parts.pop(entry) for entry in run]
        kept = [alive[entry] for entry in run]
        self.manifest = replace(self.manifest, parts=tuple(self.parts))
        if any(rows.any() for rows in kept):
            self._add_part(Part.merge(parts, kept))

    def _update_text(self, rebuild: bool) -> None:
        """Update the text index."""
        entry = None if rebuild else self.manifest.words
        if entry is not None and (entry.find_problems(self.folder) or is_mostly_dead(self.folder, entry)):
            entry = None
        try:
            changes = TextChanges(self.library, self.folder, entry)
        except CorruptData:
            # The files are of another version of tantivy.
            changes = TextChanges(self.library, self.folder, None)
        if not changes:
            return
        progress = partial(self.progress, "words")
        for written in changes.write(self.library, self.folder, self.settings.max_seconds, progress):
            self.manifest = replace(self.manifest, words=written)
            self._commit()
        self.report.papers = len(changes.new)
        self.report.forgotten = len(changes.gone)


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
    """Check all parts, and that they have all equations."""
    keys = [np.zeros(0, np.int64)]
    for entry in manifest.parts:
        try:
            keys.append(Part.open(folder, entry).keys)
        except CorruptData as error:
            problems.append(str(error))
    if len(keys) <= len(manifest.parts):
        return
    indexed = np.sort(np.concatenate(keys))
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
