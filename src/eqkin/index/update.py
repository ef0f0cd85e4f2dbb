"""Bringing the index of a library up to date: vectors and structure of new equations, text.

Segments are written once, then `index.json` names them: an update killed at any moment leaves the old or the new state,
and the next one continues from there. The index has its own lock, so that papers can be added during an update.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from eqkin.errors import CorruptData, LibraryBusy, StorageFailed
from eqkin.executor import Executor, LocalExecutor, ThreadExecutor
from eqkin.formulas import Forest
from eqkin.index import text
from eqkin.index.embedding import Embedder, EmbedFunction, TreeTask, fail_task
from eqkin.index.manifest import (
    INDEX_FOLDER,
    INDEX_VERSION,
    OWN_INDEX_FILES,
    REBUILD_HINT,
    SETTINGS,
    IndexManifest,
    IndexSettings,
    delete_old_models,
    delete_old_words,
    save_model,
)
from eqkin.index.term_segments import SEGMENT_SCHEME, Structure, TermBuffer, TermCodec, extract_structure, read_trees
from eqkin.index.vectors import Integers, VectorBuffer, VectorCodec, VectorFiles
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import list_tree_ids
from eqkin.library.references import read_columns
from eqkin.storage.files import WriterLock, delete_unused_files, sync_folder
from eqkin.storage.segments import SegmentEntry, SegmentSet, cache_hashes

Progress = Callable[[str, int, int], None]
Item = TypeVar("Item", contravariant=True)


class SegmentBuffer(Protocol[Item]):
    """The content of the next segment."""

    @property
    def count(self) -> int:
        """The number of trees in it."""

    @property
    def is_full(self) -> bool:
        """True if it is time to write it."""

    def add(self, trees: Integers, item: Item, /) -> None:
        """Add what was computed for some trees."""

    def write(self, folder: Path) -> SegmentEntry:
        """Write the segment."""


@dataclass
class UpdateReport:
    """Counts of what an update did, and of what the index has now."""

    embedded: int = 0
    seconds: float = 0.0  # of embedding
    vectors: int = 0  # of equations in the library
    structured: int = 0  # equations whose terms were added
    structure_seconds: float = 0.0  # of adding them
    papers: int = 0  # whose text was added
    forgotten: int = 0  # papers whose text was removed
    steps: dict[str, float] = field(default_factory=dict)  # seconds of each, from "embedding" to "words"


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
    """Embed new equations, index their terms and the text of new papers. Safe to interrupt and to run again.

    Files that are damaged, or of another model, are replaced.

    Args:
        library: the library; other processes may add to it at the same time.
        encoder: the model of all vectors.
        progress: called with the stage ("embedding", "structure", "words"), how much of it is done, and of
            how much.
        rebuild: replace everything.
        executor: does the work; by default this process.
        threads: embed instead of `executor`, for an encoder on a GPU.
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
                library, encoder, progress or (lambda *_: None), executor or LocalExecutor(), threads, settings
            )
            return update.run(rebuild)
    except OSError as error:
        raise StorageFailed(f"{folder}: {error.strerror or error}; what was stored before is intact") from error


def ensure_current(library: LibraryFiles, encoder: Embedder, is_complete: Callable[[], bool] | None = None) -> bool:
    """Update the index if the library or the model has changed since the last update; return whether it had.

    Args:
        library: the library.
        encoder: the model of all vectors.
        is_complete: asked if nothing has changed: whether the index has all equations. An update may have been killed,
            or an older eqkin may have made it.

    Raises:
        StorageFailed: nothing can be written.
    """
    manifest = None
    with suppress(CorruptData):  # then it is replaced
        manifest = IndexManifest.load(library.folder / INDEX_FOLDER)
    known = (manifest.version, manifest.model, manifest.generation) if manifest else None
    current = known == (INDEX_VERSION, encoder.digest, library.read_generation())
    if current and is_complete is not None:
        try:
            current = is_complete()
        except CorruptData:
            current = False
    if not current:
        with suppress(LibraryBusy):  # then another process is updating it
            update_index(library, encoder)
    return not current


class _IndexUpdate:
    """One update, under the lock."""

    def __init__(
        self,
        library: LibraryFiles,
        encoder: Embedder,
        progress: Progress,
        executor: Executor,
        threads: ThreadExecutor | None,
        settings: IndexSettings,
    ) -> None:
        self.library, self.encoder, self.progress = library, encoder, progress
        self.executor, self.threads, self.settings = executor, threads, settings
        self.folder = library.folder / INDEX_FOLDER
        self.report = UpdateReport()
        self.stored: IndexManifest | None = None  # as it is on disk, if it can be read

    def run(self, rebuild: bool) -> UpdateReport:
        """Do all steps; `rebuild`: from nothing."""
        self.manifest = self._load_start(rebuild)
        before = self.manifest.hashes
        steps: dict[str, Callable[[], None]] = {
            "embedding": self._embed,
            "tidying": self._compact_vectors,
            "structure": self._update_terms,
            "words": partial(self._update_text, rebuild),
        }
        for name, step in steps.items():
            start = time.monotonic()
            step()
            self.report.steps[name] = time.monotonic() - start
        self.report.seconds = self.report.steps["embedding"]
        self.report.structure_seconds = self.report.steps["structure"]
        cache_hashes(self.folder, dict(self.manifest.hashes.items() - before.items()))
        delete_unused_files(self.folder, self.manifest.names, OWN_INDEX_FILES)
        delete_old_models(self.folder, self.manifest.network)
        delete_old_words(self.folder, self.manifest.words.folder if self.manifest.words else "")
        sync_folder(self.folder)
        return self.report

    def _load_start(self, rebuild: bool) -> IndexManifest:
        """Return the manifest to start from: of this model and library, with intact files only."""
        now = self.library.read_generation()
        network = save_model(self.folder, self.encoder)
        fresh = IndexManifest(self.encoder.digest, self.encoder.dimensions, now, network=network)
        try:
            stored = self.stored = IndexManifest.load(self.folder)
        except CorruptData:
            return fresh
        if stored is None:
            return fresh
        fresh = replace(fresh, words=stored.words)
        if rebuild or stored.generation > now or stored.version != INDEX_VERSION:
            return fresh
        if stored.terms is not None:
            current = [entry for entry in stored.terms if entry.scheme == SEGMENT_SCHEME]
            fresh = replace(fresh, terms=SegmentSet(self.folder, current, REBUILD_HINT).select_intact())
        if stored.model != fresh.model or stored.dimensions != fresh.dimensions:
            return fresh
        return replace(fresh, files=SegmentSet(self.folder, stored.files, REBUILD_HINT).select_intact())

    def _commit(self, **changes: object) -> None:
        self.manifest = self.stored = replace(self.manifest, **changes)  # type: ignore[arg-type]
        self.manifest.save(self.folder)

    def _open_vectors(self) -> VectorFiles:
        return VectorFiles(self.folder, self.manifest.files, self.manifest.dimensions)

    def _embed(self) -> None:
        have = np.sort(self._open_vectors().trees)  # sorting is far faster than the hashing of `np.unique`
        tasks = (TreeTask(trees, forest) for trees, forest in self._iter_new_trees(have))
        embed = EmbedFunction(self.encoder, one_thread=self.threads is None)
        vectors = (self.threads or self.executor).map(embed, tasks, on_failure=fail_task)
        self.report.embedded = self._append_segments("embedding", "files", have, vectors, VectorBuffer)

    def _update_terms(self) -> None:
        """Add the terms of new equations, which do not depend on the model, and keep their segments few."""
        have = read_trees(self.folder, self.manifest.terms or ())
        tasks = (TreeTask(trees, forest) for trees, forest in self._iter_new_trees(have))
        extracted = self.executor.map(extract_structure, tasks, on_failure=fail_task)
        structures = ((trees, self._add_columns(trees, structure)) for trees, structure in extracted)
        self.report.structured = self._append_segments("structure", "terms", have, structures, TermBuffer)
        entries, live = self.manifest.terms or (), list_tree_ids(self.library)
        trees = read_trees(self.folder, entries)
        drop_dead = int(np.isin(trees, live, invert=True).sum()) > self.settings.max_dead_fraction * len(trees)
        segments = SegmentSet(self.folder, entries, REBUILD_HINT)
        codec = TermCodec(self.folder, live, self.settings)
        entries = segments.compact(codec, drop_dead=drop_dead, max_segments=self.settings.max_segments)
        if entries != self.manifest.terms:
            self._commit(terms=entries)

    def _add_columns(self, trees: Integers, structure: Structure) -> Structure:
        with self.library.translate_errors():
            found = read_columns(self.library, trees)
        columns = np.zeros_like(structure.columns)  # a tree may have been removed a moment ago
        columns[np.searchsorted(trees, found.keys)] = np.stack(found[1:], axis=1)
        return replace(structure, columns=columns)

    def _iter_new_trees(self, have: Integers) -> Iterator[tuple[Integers, Forest]]:
        """Yield the library's trees that are not in `have`, some at a time, in ascending order."""
        keys = list_tree_ids(self.library)
        new = keys[np.isin(keys, have, assume_unique=True, invert=True)]
        for trees, forest, _ in self.library.iter_trees(new, self.settings.step_trees):
            yield trees, forest

    def _append_segments(
        self,
        stage: str,
        name: str,
        have: Integers,
        items: Iterable[tuple[Integers, Item]],
        make_buffer: Callable[[IndexSettings], SegmentBuffer[Item]],
    ) -> int:
        """Write segments of items as they come and commit each; return the number of trees.

        Args:
            stage: for the progress.
            name: of the manifest's list of segments.
            have: the trees that have such an item already.
            items: trees and what was computed of them.
            make_buffer: collects the items of a segment.
        """
        total = int(np.isin(list_tree_ids(self.library), have, assume_unique=True, invert=True).sum())
        done, buffer, written = 0, make_buffer(self.settings), time.monotonic()

        def commit() -> None:
            self._commit(**{name: (*(getattr(self.manifest, name) or ()), buffer.write(self.folder))})

        try:
            for trees, item in items:
                buffer.add(trees, item)
                done += len(trees)
                self.progress(stage, done, max(total, done))
                if buffer.is_full or time.monotonic() - written > self.settings.max_segment_seconds:
                    commit()
                    buffer, written = make_buffer(self.settings), time.monotonic()
        finally:  # an interruption loses nothing that was computed
            if buffer.count:
                commit()
        return done

    def _compact_vectors(self) -> None:
        """Drop dead vectors if they are most; merge small segments if there are many."""
        trees, live = self._open_vectors().trees, list_tree_ids(self.library)
        dead = len(trees) - int(np.isin(trees, live, assume_unique=True).sum())
        drop_dead = dead > self.settings.max_dead_fraction * len(trees)
        segments = SegmentSet(self.folder, self.manifest.files, REBUILD_HINT)
        codec = VectorCodec(self.folder, self.manifest.dimensions, live, self.settings)
        files = segments.compact(codec, drop_dead=drop_dead, max_segments=self.settings.max_segments)
        self.manifest = replace(self.manifest, files=files)
        if self.stored != self.manifest:
            self._commit()
        self.report.vectors = len(trees) - dead

    def _update_text(self, rebuild: bool) -> None:
        """Update the text index."""
        entry = None if rebuild else self.manifest.words
        if entry is not None and (entry.find_problems(self.folder) or text.is_mostly_dead(self.folder, entry)):
            entry = None
        try:
            changes = text.TextChanges(self.library, self.folder, entry)
        except CorruptData:
            # of another version of tantivy
            changes = text.TextChanges(self.library, self.folder, None)
        if not changes:
            return
        progress = partial(self.progress, "words")
        for written in changes.write(self.library, self.folder, self.settings.max_segment_seconds, progress):
            self._commit(words=written)
        self.report.papers = len(changes.new)
        self.report.forgotten = len(changes.gone)
