"""`Library`: a collection of papers on disk that can be added to and searched."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from eqkin.errors import BadInput, StorageFailed
from eqkin.executor import Executor, LocalExecutor
from eqkin.files import WriterLock
from eqkin.library.database import DATABASE_NAME, INDEX_FOLDER
from eqkin.library.files import LibraryFiles
from eqkin.library.pack import pack_library, unpack_library
from eqkin.library.records import export_equations

if TYPE_CHECKING:
    from eqkin.library.ingest import AddReport
    from eqkin.library.verify import VerificationReport
    from eqkin.search.engine import SearchEngine
    from eqkin.search.local import LocalBackend
    from eqkin.search.names import Completion
    from eqkin.search.results import PaperHit, Results, SearchKeywords, SearchOptions
    from eqkin.sources.metadata import MetadataSnapshot


class Library(LibraryFiles):
    """A folder with papers, their equations, and an index of them. Open it with `Library.open`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        super().__init__(folder, connection)
        self._engine: SearchEngine | None = None
        self._backend: LocalBackend | None = None  # what the engine searches
        # The last state, of library and index, in which the index had all equations.
        self._indexed: tuple[int, tuple[int, ...]] | None = None

    def close(self) -> None:
        """Close the search engine and the database."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        super().close()

    def add(
        self,
        *sources: str | os.PathLike[str],
        jobs: int = 1,
        executor: Executor | None = None,
        metadata: MetadataSnapshot | str | os.PathLike[str] | None = None,
        fetch: bool = False,
        progress: Callable[[AddReport], None] | None = None,
        formulas: str | None = None,
    ) -> AddReport:
        """Read sources into the library: new papers are added, changed ones replaced, unchanged ones skipped.

        Safe to stop at any moment and to run again: what was committed stays, the rest is done then.

        Args:
            sources: what `eqkin.sources.readers.open_source` takes: paths, `arxiv:ID`, `python:PACKAGE`.
            jobs: processes to read with, unless an executor is given.
            executor: runs the parsing, for example `eqkin.cluster.ray.RayExecutor`; the result does not depend on it.
            metadata: arXiv's metadata snapshot or its path, for bulk archives.
            fetch: download the LaTeX sources of PDFs and references from arXiv. Without it nothing is sent anywhere,
                except for sources named `arxiv:ID`.
            progress: called after every paper with the report so far.
            formulas: which formulas become equations: `displays` as a whole, `rows` (displays and their rows, the
                default of a new library) or `inline` (also inline formulas). The library keeps it for later calls.

        Returns:
            What was added, what failed and why.

        Raises:
            LibraryBusy: another process is writing to this library.
            BadInput: a source does not exist or is of an unknown kind (nothing was added).
            CorruptData: the library's trees were made by another converter.
            StorageFailed: the disk is full or read-only; everything committed before is intact.
            Unreachable: the Ray cluster is gone.
        """
        from eqkin.library.ingest import ingest  # searches do without the readers of all formats, which are many
        from eqkin.library.parsing import FORMULAS
        from eqkin.sources.metadata import MetadataSnapshot

        self.check_converter()
        if formulas not in (None, *FORMULAS):
            raise BadInput(f"formulas must be one of {', '.join(FORMULAS)}, got {formulas!r}")
        if isinstance(metadata, str | os.PathLike):
            metadata = MetadataSnapshot(Path(metadata))
        executor = executor or LocalExecutor(jobs)
        with self.open_writer() as writer:
            if formulas:
                writer.save_setting("formulas", formulas)
            names = [os.fspath(source) for source in sources]
            return ingest(writer, names, executor, metadata=metadata, fetch=fetch, progress=progress)

    def upgrade(
        self,
        *,
        executor: Executor | None = None,
        progress: Callable[[int, int], None] | None = None,
        check_trees: bool = False,
    ) -> int:
        """Make the trees again that another converter made; nothing but the library is needed.

        Trees that another converter made, or that are damaged, are made again from the stored LaTeX. Formulas that came
        as MathML keep their trees. Safe to stop at any moment and to run again. The index is updated separately.

        Args:
            executor: runs the conversion; by default this process.
            progress: called with how many papers are done, and of how many.
            check_trees: also read all trees, and make those again that are damaged.

        Returns:
            How many papers were converted again.
        """
        from eqkin.library.verify import reconvert_papers

        with self.open_writer() as writer:
            return reconvert_papers(self, writer, executor or LocalExecutor(), progress, check_trees=check_trees)

    def iter_equations(self, *, failed: bool = False, mathml: bool = True) -> Iterator[dict[str, Any]]:
        """Yield all equations as `eqkin export` writes them; `failed`: also those that did not convert."""
        return export_equations(self, failed=failed, mathml=mathml)

    def open_engine(self) -> SearchEngine:
        """Return the search engine of this library; equations added since the last time are embedded first.

        Raises:
            StorageFailed: there are such equations, but nothing can be written.
        """
        from eqkin.index.manifest import load_encoder
        from eqkin.index.update import ensure_current
        from eqkin.search.engine import SearchEngine
        from eqkin.search.local import LocalBackend

        is_complete = None
        if self._engine is None or self._backend is None:
            encoder = load_encoder(self.folder)
            backend = self._backend = LocalBackend(self, encoder.digest)
            self._engine = SearchEngine(backend, encoder)

            def is_complete() -> bool:
                backend.refresh()
                return backend.complete

        # Nothing needs to be read again as long as neither library nor index changes.
        state = self.read_generation(), self._backend.read_signature()
        if state != self._indexed:
            if ensure_current(self, self._engine.encoder, is_complete):
                self._backend.refresh()
            else:
                self._indexed = state
        return self._engine

    def search(
        self,
        query: str = "",
        options: SearchOptions | None = None,
        **changes: Unpack[SearchKeywords],
    ) -> Results:
        r"""Find the equations most related to a formula, to a name, to words, or to a formula and words.

        See `eqkin.SearchOptions` for the options and their defaults.

        Args:
            query: What you would type: LaTeX, MathML, Unicode, ASCII math, a name, words, or words and a formula.
            options: How to search.
            **changes: Options by name, which outrank `options`; see `SearchKeywords`.

        Raises:
            BadInput: the formula cannot be read, or there is nothing to search for.
            LimitReached: the formula, the text or `k` is too large.
        """
        return self.open_engine().search(query, options, **changes)

    def complete(self, text: str, k: int = 8) -> list[Completion]:
        """Return names of equations with a word that begins like a text; the most frequent first."""
        return self.open_engine().complete(text, k)

    def similar_papers(self, paper: str | os.PathLike[str], k: int = 10) -> list[PaperHit]:
        """Find papers related by their mathematics to one of the library (its key) or to a draft (a `Path`)."""
        return self.open_engine().find_similar_papers(paper, k)


@contextmanager
def hold_locks(folder: Path) -> Iterator[None]:
    """Keep writers away from a library and its index; raises `LibraryBusy`."""
    with ExitStack() as stack:
        for path in (folder, folder / INDEX_FOLDER):
            if path.is_dir() and not path.is_symlink() and (folder / DATABASE_NAME).exists():
                with suppress(StorageFailed):  # where nothing can be written, no writer can interfere
                    stack.enter_context(WriterLock(path))
        yield


def pack(folder: Path, target: Path, progress: Callable[[int], None] | None = None) -> None:
    """Write a library with its index to one file, which `unpack` checks and opens on another machine.

    Raises:
        BadInput: there is no library.
        LibraryBusy: another process is writing to it.
        StorageFailed: the file cannot be written.
    """
    with Library.open(folder) as library, hold_locks(folder):
        pack_library(library, list_index_files(folder / INDEX_FOLDER), target, progress)


def list_index_files(folder: Path) -> list[str]:
    """Return the names of all files that belong to an index, without locks and caches."""
    from eqkin.encoder.model import MODEL_FILES
    from eqkin.index.manifest import IndexManifest

    manifest = IndexManifest.load(folder)
    if manifest is None:
        return []
    names = manifest.list_files()
    names += [f"{manifest.network}/{name}" for name in MODEL_FILES if manifest.network]
    return sorted(name for name in names if (folder / name).is_file())


def unpack(source: Path, folder: Path, progress: Callable[[int], None] | None = None) -> None:
    """Make a library from a file that `pack` wrote; raises what `unpack_library` does."""
    unpack_library(source, folder, progress)
    Library.open(folder).close()


def verify(folder: Path, progress: Callable[[int], None] | None = None) -> VerificationReport:
    """Check everything in a library's folder; `progress` is called with the number of papers checked so far.

    Raises:
        BadInput: there is no library.
        LibraryBusy: another process is writing to it.
    """
    from eqkin.index.update import verify_index
    from eqkin.library.verify import verify_library

    with hold_locks(folder):
        report = verify_library(folder, progress)
        problems, notes = verify_index(folder)
    report.problems += [problem for problem in problems if problem not in report.problems]
    report.notes += notes
    return report
