"""`LibraryFiles`: a library on disk, opened for reading, and the trees in it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import Forest
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.scripts import ConverterIdentity, get_converter_identity
from eqkin.latex.titles import parse_arxiv_id
from eqkin.library.database import (
    DATABASE_NAME,
    INDEX_FOLDER,
    INTACT_EQUATION,
    INTACT_PAPER,
    INTACT_STATE,
    INTACT_TREES,
    LIBRARY_REMEDY,
    check_links,
    connect,
    read_count,
    read_state,
    translate_sqlite_errors,
)
from eqkin.sources.files import display_path

if TYPE_CHECKING:
    from eqkin.library.writer import LibraryWriter

Integers = npt.NDArray[np.int64]
Trees = TypeVar("Trees", Forest, OperatorForest)

KEY_DIFFERENCE = np.dtype("<u4")
_BATCH_TREES = 4_096
_EXPECTED_COUNTS = {
    "papers": f"SELECT value FROM state s WHERE key IS 'papers' AND {INTACT_STATE}",
    "equations": "SELECT total(n_equations) FROM papers",
}
_CHECKED_TABLES = {"papers": f"papers p WHERE {INTACT_PAPER}", "equations": f"equations e WHERE {INTACT_EQUATION}"}


class TreeNotFound(BadInput):
    """The library has no tree with this key."""


class LibraryFiles:
    """A folder with papers, sections, equations, citations and trees. Open it with `LibraryFiles.open`.

    An equation is identified by its key, a number that is never given to another equation.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder: Path = folder
        self.connection: sqlite3.Connection = connection
        # The generation in which all rows of a table were found intact.
        self._checked: dict[str, int] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, create: bool = False, check_same_thread: bool = True) -> Self:
        """Open the library in `folder`.

        Args:
            folder: Where it is.
            create: Create an empty library if there is none.
            check_same_thread: Refuse use by another thread; without it, one thread at a time may use the library.

        Raises:
            BadInput: There is no library and `create` is not set, or the folder has other content.
            CorruptData: It is damaged or made by another version.
            StorageFailed: The folder cannot be read or written.
        """
        path = Path(folder).expanduser().absolute()
        check_links(path)
        if not (path / DATABASE_NAME).exists():
            if (path / INDEX_FOLDER).is_dir():
                raise CorruptData(f"{path / DATABASE_NAME}: the library's database is missing; {LIBRARY_REMEDY}")
            if not create:
                raise BadInput(
                    f"{path}: there is no library\n"
                    f"make one with `eqkin add FOLDER --library {path}` or `Library.open(path, create=True)`; "
                    "or try `eqkin demo`"
                )
            # Readers do not need it, and it is slow to import.
            from eqkin.library.writer import create_library

            create_library(path)
        return cls(path, connect(path / DATABASE_NAME, check_same_thread=check_same_thread))

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def remove(self, *sources: str) -> int:
        """Remove papers by key (`arxiv:1706.03762`), source, file or folder; return how many there were."""
        keys: set[str] = set()
        with self.open_writer() as writer:
            for source in sources:
                name = normalise_source(source)
                # Papers below a folder have its name and a separator at the beginning of their source or key.
                length = len(name) + 1
                found = self.connection.execute(
                    "SELECT key FROM papers WHERE key IN (?1, ?2, 'file:' || ?1) OR source = ?1 "
                    "OR substr(source, 1, ?3) IN (?1 || '/', ?1 || '\\') "
                    "OR substr(key, 1, ?4) IN ('file:' || ?1 || '/', 'file:' || ?1 || '\\')",
                    (name, display_path(source), length, length + len("file:")),
                )
                keys.update(row[0] for row in found)
            return writer.remove(sorted(keys))

    def list_papers(self) -> list[dict[str, Any]]:
        """Return all papers: key, title, authors, year, fields, origin, source, and why one failed."""
        self.check_rows("papers")
        rows = self.select("SELECT key, title, authors, year, fields, origin, source, failure FROM papers ORDER BY id")
        return [dict(row) | {name: orjson.loads(row[name]) for name in ("authors", "fields")} for row in rows]

    def read_generation(self) -> int:
        """Return how many times the library was committed to."""
        with self.translate_errors():
            return read_count(self.connection, "generation")

    @property
    def converter(self) -> ConverterIdentity:
        """The converter that made all trees."""
        with self.translate_errors():
            names = ConverterIdentity.__dataclass_fields__
            return ConverterIdentity(**{name: read_state(self.connection, f"converter {name}") for name in names})

    def check_converter(self) -> None:
        """Raise `CorruptData` if another converter made the library's trees."""
        mine, theirs = get_converter_identity(), self.converter
        if mine != theirs:
            raise CorruptData(
                f"{self.folder}: its trees were made by {theirs.name} {theirs.version}, "
                f"this eqkin has {mine.name} {mine.version}; "
                "trees of two converters are never mixed: run `eqkin index`, which makes them again"
            )

    def check_rows(self, table: str) -> None:
        """Raise `CorruptData` if a row of papers or equations is damaged or lost; done once for each state.

        What selects or counts rows must call this before: a damaged row could fail a condition, and be left out.
        """
        with self.hold_state():
            generation = read_count(self.connection, "generation")
            if self._checked.get(table) == generation:
                return
            (found,) = self.connection.execute(f"SELECT count(*) FROM {_CHECKED_TABLES[table]}").fetchone()
            (expected,) = self.connection.execute(_EXPECTED_COUNTS[table]).fetchone()
            if found != expected:
                raise CorruptData(f"{self.folder / DATABASE_NAME}: rows of {table} are lost; {LIBRARY_REMEDY}")
            self._checked[table] = generation

    def list_tree_keys(self) -> Integers:
        """Return the keys of all equations that have a tree, in ascending order."""
        with self.hold_state():
            keys = join_keys(self.select(f"SELECT first, keys FROM trees t WHERE {INTACT_TREES} ORDER BY first"))
            if len(keys) != read_count(self.connection, "trees"):
                raise CorruptData(f"{self.folder / DATABASE_NAME}: some trees are lost; {LIBRARY_REMEDY}")
        return keys

    def find_tree_keys(self, keys: Integers) -> Integers:
        """Return those of ascending keys whose equation has a tree."""
        with self.translate_errors():
            found = [keys[here] for here, _, _ in self._iter_rows(keys)]
        return np.concatenate([keys[:0], *found])

    def get_trees(self, keys: Integers) -> Forest:
        """Return the presentation trees of equations, in the order of their keys; raises `TreeNotFound`."""
        return self._read_trees(keys, "t.presentation", Forest)

    def get_operators(self, keys: Integers) -> OperatorForest:
        """Return the operator trees of equations, in the order of their keys; raises `TreeNotFound`."""
        return self._read_trees(keys, "t.operators", OperatorForest)

    def _read_trees(self, keys: Integers, column: str, kind: type[Trees]) -> Trees:
        parts = []
        places = [keys[:0]]
        with self.translate_errors():
            for here, rows, (packed,) in self._iter_rows(keys, column):
                parts.append(kind.from_bytes(packed).select(rows))
                places.append(here)
            found = np.concatenate(places)
            order = np.argsort(found, kind="stable")
            _require_all(keys, found[order])
            forest = kind.concatenate(parts)
        return forest if np.array_equal(order, np.arange(len(keys))) else forest.select(order)

    def get_nodes(self, keys: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of presentation trees, in the order of their keys; raises `TreeNotFound`."""
        wanted = np.array(list(keys), np.int64)
        nodes: dict[int, NodeColumns] = {}
        with self.translate_errors():
            for here, rows, (packed,) in self._iter_rows(wanted, "t.presentation"):
                forest = Forest.from_bytes(packed)
                for place, row in zip(here.tolist(), rows.tolist(), strict=True):
                    nodes[place] = NodeColumns.read(forest, row)
        _require_all(wanted, np.array(sorted(nodes), np.int64))
        return [nodes[place] for place in range(len(wanted))]

    def iter_trees(
        self, keys: Integers, batch: int = _BATCH_TREES
    ) -> Iterator[tuple[Integers, Forest, OperatorForest]]:
        """Yield the trees of ascending keys, at most `batch` at a time: keys, presentation trees, operator trees.

        No cursor stays open between two batches, so that a writer can commit. Trees that it removed are left out.
        """
        for at in range(0, len(keys), batch):
            with self.hold_state():
                found = self.find_tree_keys(keys[at : at + batch])
                forest = self.get_trees(found)
                operators = self.get_operators(found)
            if len(found):
                yield found, forest, operators

    def _iter_rows(self, keys: Integers, *columns: str) -> Iterator[tuple[Integers, Integers, tuple[Any, ...]]]:
        """Yield the rows of `trees` that have some of the keys.

        Args:
            keys: In any order.
            columns: Those to read.

        Yields:
            Places in `keys`, places of their trees among those of the row, the columns.
        """
        order = np.argsort(keys, kind="stable")
        ascending = keys[order]
        statement = (
            f"SELECT {', '.join(('t.first', 't.keys', *columns))} FROM trees t "
            f"WHERE t.first <= ? AND {INTACT_TREES} ORDER BY t.first DESC LIMIT 1"
        )
        at = 0
        while at < len(keys):
            row = self.connection.execute(statement, (int(ascending[at]),)).fetchone()
            members = join_keys([(row[0], row[1])]) if row else keys[:0]
            end = int(np.searchsorted(ascending, members[-1], "right")) if len(members) else at
            if end <= at:
                # The key lies between two rows: its equation has no tree, or was removed.
                at += 1
                continue
            rows = np.searchsorted(members, ascending[at:end])
            known = members[rows] == ascending[at:end]
            if known.any():
                yield order[at:end][known], rows[known], tuple(row)[2:]
            at = end

    def select(self, query: str, *values: Any) -> list[Any]:
        """Return the rows that a query finds; no cursor stays open that would keep a writer waiting."""
        with self.translate_errors():
            return self.connection.execute(query, values).fetchall()

    @contextmanager
    def hold_state(self) -> Iterator[None]:
        """See one state of the library until the block ends; a writer cannot commit meanwhile."""
        with self.translate_errors():
            is_outermost = not self.connection.in_transaction
            if is_outermost:
                self.connection.execute("BEGIN")
            try:
                yield
            finally:
                if is_outermost:
                    self.connection.rollback()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of reading the library as eqkin's."""
        try:
            with translate_sqlite_errors(self.folder / DATABASE_NAME):
                yield
        except (ValueError, IndexError, KeyError) as error:
            raise CorruptData(f"{self.folder}: damaged ({error!r}); run `eqkin verify`") from error

    @contextmanager
    def open_writer(self) -> Iterator[LibraryWriter]:
        """Yield a writer that holds the library's lock; raises `LibraryBusy` if another process does."""
        from eqkin.library.writer import LibraryWriter

        with translate_sqlite_errors(self.folder / DATABASE_NAME), LibraryWriter(self.folder) as writer:
            yield writer


def _require_all(keys: Integers, found: Integers) -> None:
    """Raise `TreeNotFound` unless the trees of all keys were found, at these places."""
    if len(found) < len(keys):
        missing = np.delete(keys, found)
        raise TreeNotFound(f"the library has no tree {missing[0]}")


def to_json(values: Iterable[int | str]) -> str:
    """Return values as `json_each` takes them: a statement cannot have any number of arguments."""
    return orjson.dumps(list(values)).decode()


def join_keys(rows: Iterable[tuple[int, bytes]]) -> Integers:
    """Return all keys of rows of `trees`, given by their first key and the differences from it."""
    parts = [np.zeros(0, np.int64)]
    parts += [first + np.frombuffer(packed, KEY_DIFFERENCE).astype(np.int64) for first, packed in rows]
    return np.concatenate(parts)


def normalise_source(source: str) -> str:
    """Return one name for all spellings of a source: a resolved path, or `arxiv:ID` without version."""
    if source.lower().startswith("arxiv:") or "://" in source:
        found = parse_arxiv_id(source)
        return found.key if found else display_path(source)
    if source.startswith("python:") or source == "atlas:":
        return source
    try:
        return display_path(str(Path(source).expanduser().resolve()))
    except (OSError, ValueError, RuntimeError):
        return display_path(source)
