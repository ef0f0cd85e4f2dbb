"""Bringing a library's index up to date: vectors and structure of new equations, the file of faiss, the words.

Files are written once, then `index.json` names them: an updater killed at any moment leaves the old or the new state,
and the next one goes on from there. The index has its own lock, so that papers can be added meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from eqkin.errors import CorruptData, LibraryBusy, StorageFailed
from eqkin.executor import Executor, LocalExecutor
from eqkin.index import checked, networks
from eqkin.index import nearest as faiss_side
from eqkin.index import structure_update as structure
from eqkin.index import words_update as words
from eqkin.index.embedding import Embedder, EmbedFunction, EmbedTask, fail_embedding
from eqkin.index.state import INDEX_FOLDER, INDEX_MANIFEST_NAME, LOCK_NAME, IndexManifest, TermsEntry, VectorsEntry
from eqkin.index.vectors import Floats, Integers, VectorFiles, open_vectors, write_vectors
from eqkin.library import LibraryFiles
from eqkin.library.database import read_generation
from eqkin.library.queries import list_tree_ids
from eqkin.storage import WriterLock, sync_folder

_STEP_TREES = 4_096  # trees embedded between two looks at the clock
_MAX_FILE_VECTORS = 500_000  # most in one file
_MAX_FILE_SECONDS = 60.0  # of embedding that a kill may cost
_MAX_FILES = 16
_MAX_DEAD_FRACTION = 0.5  # of vectors that belong to no equation any more, above which all are rewritten
# Vectors that may be left out of the file of faiss, to be added whenever it is loaded: a tenth, within these bounds.
_LEAST_TAIL, _TAIL = 1_000, 20_000
_MAX_GROWTH = 4  # times the collection may grow before the lists are trained anew

Progress = Callable[[str, int, int], None]


@dataclass
class UpdateReport:
    """What an update did, and what there is now."""

    embedded: int = 0
    seconds: float = 0.0  # of embedding
    vectors: int = 0  # of equations in the library
    structured: int = 0  # equations whose structure was taken in
    structure_seconds: float = 0.0  # of taking it in
    kind: str = ""  # of the faiss index
    recall: float = 1.0  # at 10, measured when it was trained
    papers: int = 0  # whose words were taken in
    forgotten: int = 0  # papers whose words were taken out
    steps: dict[str, float] = field(default_factory=dict)  # seconds of each, from "embedding" to "words"


def update_index(
    library: LibraryFiles,
    encoder: Embedder,
    progress: Progress | None = None,
    *,
    rebuild: bool = False,
    executor: Executor | None = None,
) -> UpdateReport:
    """Embed new equations, take in their structure and the words of new papers; safe to stop and to run again.

    Files that are damaged, or of another model, are made anew.

    Args:
        library: the library; other processes may add to it meanwhile.
        encoder: the model all vectors will be of.
        progress: called now and then with what is being done ("embedding", "structure", "indexing", "words"), how
            much of it is done, and of how much.
        rebuild: make everything anew.
        executor: runs the embedding; by default this process.

    Raises:
        LibraryBusy: another process is updating this index.
        StorageFailed: the disk is full or read-only; what was stored before is intact.
    """
    folder = library.folder / INDEX_FOLDER
    try:
        folder.mkdir(exist_ok=True)
        with WriterLock(folder):
            return _IndexUpdate(
                library, folder, encoder, progress or _ignore_progress, executor or LocalExecutor()
            ).run(rebuild)
    except OSError as error:
        raise StorageFailed(f"{folder}: {error.strerror or error}; what was stored before is intact") from error


def ensure_current(library: LibraryFiles, encoder: Embedder, is_complete: Callable[[], bool] | None = None) -> bool:
    """Update the index if the library or the model has changed since the last update; return whether it had.

    Args:
        library: the library.
        encoder: the model all vectors will be of.
        is_complete: asked if nothing has changed: whether the index has all equations. An update may have been killed,
            or an older eqkin may have made it.

    Raises:
        StorageFailed: nothing can be written.
    """
    manifest = None
    with suppress(CorruptData):  # then it is replaced
        manifest = IndexManifest.load(library.folder / INDEX_FOLDER)
    known = (manifest.model, manifest.generation) if manifest else None
    current = known == (encoder.digest, library.read_generation())
    if current and is_complete is not None:
        try:
            current = is_complete()
        except CorruptData:
            current = False
    if not current:
        with suppress(LibraryBusy):  # then another process is updating it
            update_index(library, encoder)
    return not current


def _ignore_progress(*_: object) -> None:
    pass


class _IndexUpdate:
    """One update, under the lock."""

    def __init__(
        self, library: LibraryFiles, folder: Path, encoder: Embedder, progress: Progress, executor: Executor
    ) -> None:
        self.library, self.folder, self.encoder, self.progress = library, folder, encoder, progress
        self.executor = executor
        self.report = UpdateReport()
        self.stored: IndexManifest | None = None  # as it is on disk, as far as it can be read

    def run(self, rebuild: bool) -> UpdateReport:
        with self.library.translate_errors():
            now = read_generation(self.library.connection)
        self.state = self._load_start(now, rebuild)
        before = self.state.hashes
        self._time_step("embedding", self._embed)
        self._time_step("tidying", self._compact_vectors)
        self._time_step("structure", self._update_terms)
        self._time_step("indexing", self._update_faiss)
        self._time_step("words", partial(self._update_text, rebuild))
        written = self.state.hashes.items() - before.items()
        checked.remember_hashes(self.folder, dict(written))
        self._delete_unused_files()
        return self.report

    def _time_step(self, name: str, step: Callable[[], None]) -> None:
        start = time.monotonic()
        step()
        self.report.steps[name] = time.monotonic() - start

    def _load_start(self, now: int, rebuild: bool) -> IndexManifest:
        """The state to go on from: of this model, this library, and intact files only."""
        network = networks.save_model(self.folder, self.encoder)
        fresh = IndexManifest(self.encoder.digest, self.encoder.dimensions, now, network=network)
        try:
            state = self.stored = IndexManifest.load(self.folder)
        except CorruptData:
            return fresh
        if state is None:
            return fresh
        fresh = replace(fresh, words=state.words)
        if rebuild or state.generation > now:
            return fresh
        fresh = replace(fresh, terms=structure.select_usable(self.folder, state.terms))
        if state.model != fresh.model or state.dimensions != fresh.dimensions:
            return fresh
        files = tuple(entry for entry in state.files if checked.is_intact(self.folder, entry))
        nearest = state.nearest
        if nearest is not None and (files != state.files or not checked.is_intact(self.folder, nearest)):
            nearest = None  # its lists are of the first rows of all files
        return replace(fresh, files=files, nearest=nearest)

    def _commit(self, **changes: object) -> None:
        self.state = self.stored = replace(self.state, **changes)  # type: ignore[arg-type]
        self.state.save(self.folder)

    def _open_files(self) -> VectorFiles:
        return VectorFiles(self.folder, self.state.files, self.state.dimensions)

    def _embed(self) -> None:
        live = list_tree_ids(self.library)
        have = np.sort(self._open_files().trees)  # sorting is far faster than hashing them, as `np.unique` would
        total = int(np.isin(live, have, assume_unique=True, invert=True).sum())
        start = written = time.monotonic()
        trees: list[Integers] = []
        vectors: list[Floats] = []
        try:
            for numbers, embedded in self.executor.map(
                EmbedFunction(self.encoder), self._iter_tasks(have), on_failure=fail_embedding
            ):
                trees, vectors = [*trees, numbers], [*vectors, embedded]
                self.report.embedded += len(numbers)
                self.progress("embedding", self.report.embedded, max(total, self.report.embedded))
                if sum(map(len, trees)) >= _MAX_FILE_VECTORS or time.monotonic() - written > _MAX_FILE_SECONDS:
                    self._append(trees, vectors)
                    trees, vectors, written = [], [], time.monotonic()
        finally:  # an interruption costs nothing that was embedded
            self._append(trees, vectors)
        self.report.seconds = time.monotonic() - start

    def _iter_tasks(self, have: Integers) -> Iterator[EmbedTask]:
        """Trees without a vector, some at a time."""
        for numbers, forest in self.library.iter_forests():
            new = np.flatnonzero(np.isin(numbers, have, assume_unique=True, invert=True))
            for start in range(0, len(new), _STEP_TREES):
                part = new[start : start + _STEP_TREES]
                yield EmbedTask(numbers[part], forest.select(part))

    def _append(self, trees: list[Integers], vectors: list[Floats]) -> None:
        if not trees:
            return
        entry = write_vectors(self.folder, np.concatenate(trees), np.concatenate(vectors))
        self._commit(files=(*self.state.files, entry))

    def _compact_vectors(self) -> None:
        """Leave out dead vectors when they are most; merge small files when there are many."""
        files, table = self.state.files, self._open_files()
        trees = table.trees
        alive = np.isin(trees, list_tree_ids(self.library), assume_unique=True)
        if len(trees) - int(alive.sum()) > _MAX_DEAD_FRACTION * len(trees):
            checked.require_intact(self.folder, files)
            rows = np.flatnonzero(alive)
            parts = [rows[i : i + _MAX_FILE_VECTORS] for i in range(0, len(rows), _MAX_FILE_VECTORS)]
            entries = [write_vectors(self.folder, trees[part], table.take(part)) for part in parts]
            self._commit(files=tuple(entries), nearest=None)
        elif len(files) > _MAX_FILES:
            runs: list[list[VectorsEntry]] = [[]]
            for entry in files:
                if sum(e.count for e in runs[-1]) + entry.count > _MAX_FILE_VECTORS:
                    runs.append([])
                runs[-1].append(entry)
            self._commit(files=tuple(self._merge_files(run) for run in runs if run))

    def _merge_files(self, run: list[VectorsEntry]) -> VectorsEntry:
        if len(run) == 1:
            return run[0]
        checked.require_intact(self.folder, run)
        opened = [open_vectors(self.folder, entry, self.state.dimensions) for entry in run]
        return write_vectors(
            self.folder, np.concatenate([trees for trees, _ in opened]), np.concatenate([v for _, v in opened])
        )

    def _update_terms(self) -> None:
        """Which terms the equations have; that is the same for every model."""
        live, start = list_tree_ids(self.library), time.monotonic()
        entries = self.state.terms or ()

        def commit(entry: TermsEntry) -> None:
            self._commit(terms=(*(self.state.terms or ()), entry))

        tell = partial(self.progress, "structure")
        self.report.structured = structure.add_trees(self.library, self.folder, entries, live, commit, tell)
        entries = structure.compact_files(self.folder, self.state.terms or (), live)
        if entries != self.state.terms:
            self._commit(terms=entries)
        self.report.structure_seconds = time.monotonic() - start

    def _update_faiss(self) -> None:
        """The file of faiss: none for few vectors, else with all but the last few of them."""
        table = self._open_files()
        self.report.vectors = int(np.isin(table.trees, list_tree_ids(self.library), assume_unique=True).sum())
        self.report.kind = "IDMap2,Flat"
        entry = self.state.nearest
        if len(table) <= faiss_side.MAX_FLAT_VECTORS:
            entry = None
        elif entry is None or len(table) > _MAX_GROWTH * entry.trained:
            checked.require_intact(self.folder, self.state.files)
            nearest = faiss_side.build_inverted_lists(table, partial(self.progress, "indexing"))
            entry = nearest.save(self.folder)
        elif len(table) - entry.count > min(_TAIL, max(_LEAST_TAIL, entry.count // 10)):
            nearest = faiss_side.load_index(self.folder, entry, table.dimensions, mapped=False)
            nearest.append(table)
            entry = nearest.save(self.folder)
        self.state = replace(self.state, nearest=entry)
        if self.stored != self.state:
            self._commit()
        if entry is not None:
            self.report.kind, self.report.recall = entry.kind, entry.recall

    def _delete_unused_files(self) -> None:
        """Delete what the state does not name: left by a killed updater, or merged away."""
        kept = self.state.names | {INDEX_MANIFEST_NAME, LOCK_NAME, checked.HASH_CACHE_NAME}
        for path in self.folder.iterdir():
            if path.name not in kept and path.is_file():
                with suppress(PermissionError):  # somebody has it mapped, on Windows
                    path.unlink(missing_ok=True)
        networks.delete_old_models(self.folder, self.state.network)
        sync_folder(self.folder)

    def _update_text(self, rebuild: bool) -> None:
        """The words; unsealed while they are being changed."""
        entry = self.state.words
        if entry and (rebuild or not words.is_usable(self.folder, entry)):
            entry = None
        wanted = words.find_changes(self.library, self.folder, entry)
        if not wanted and entry and entry.sealed:
            return
        if wanted.anew:
            changing = words.create_text_database(self.folder)
            if entry is None:  # nothing to fall back on: what is taken in now is worth keeping if this is stopped
                self._commit(words=changing)
        else:
            assert entry is not None
            changing = replace(entry, sealed=False)
            self._commit(words=changing)
        done = words.apply_changes(self.library, self.folder / changing.file, wanted, partial(self.progress, "words"))
        self.report.papers, self.report.forgotten = done
        self._commit(words=words.seal_entry(self.folder, changing))
