"""`MilvusBackend` and `MilvusSnapshot`: search a collection of a Milvus server; see `eqkin.search.backend`."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from eqkin.cluster.milvus_collection import (
    MAX_ROWS,
    NO_YEAR,
    MilvusCollection,
    NoSuchCollection,
    Row,
    format_list,
    hash_name,
    unpack_record,
)
from eqkin.cluster.milvus_push import DESCRIBED_FIELDS, NO_TERM, clean_author_name, clean_field_name
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, Unreachable
from eqkin.formulas.forest import Forest
from eqkin.formulas.mathml import NodeColumns, to_mathml
from eqkin.formulas.operators import OperatorForest
from eqkin.search.backend import NO_FILTERS, Codes, EquationRef, Facets, Floats, Keys, NoSuchEquation, Snapshot
from eqkin.search.engine import SearchEngine
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord

# Vectors that are searched for at once, so that no call takes long.
_VECTORS_PER_CALL = 20
# Terms of a query that are looked up, the rarest first.
_MAX_TERMS = 64
# Equations that match a text best.
_MAX_TEXT_EQUATIONS = 1_000
# Width of the search in the HNSW graph.
_MIN_EF = 256
# Seconds for which the state of a collection counts as current.
_STATE_SECONDS = 5.0


class MilvusSnapshot(Snapshot):
    """A `Snapshot` of a collection, without names. A row is read once, with all that a search needs of it."""

    # Equations are searchable as soon as they are pushed.
    missing = 0

    def __init__(self, collection: MilvusCollection, state: Row) -> None:
        self._collection = collection
        self._state = state
        # rows by key, their records unpacked
        self._rows: dict[int, Row] = {}

    @property
    def version(self) -> Hashable:
        """Identifies the content: another value whenever a push has ended."""
        return str(self._state["time"])

    def __len__(self) -> int:
        return int(self._state.get("equations", 0))

    def search_vectors(self, vectors: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations nearest to each vector; see `Snapshot`."""
        queries = np.asarray(vectors, np.float32)
        cosines = np.zeros((len(queries), k), np.float32)
        keys = np.full((len(queries), k), -1, np.int64)
        wanted = min(k, MAX_ROWS)
        parameters = {"params": {"ef": max(_MIN_EF, 2 * wanted)}}
        usable = np.flatnonzero(queries.any(axis=1)) if wanted else np.zeros(0, np.int64)
        for start in range(0, len(usable), _VECTORS_PER_CALL):
            part = usable[start : start + _VECTORS_PER_CALL]
            found = self._search("vector", list(queries[part]), wanted, filters, parameters)
            for row, (scores, hits) in zip(part.tolist(), found, strict=True):
                cosines[row, : len(hits)] = np.clip(scores, -1, 1)
                keys[row, : len(hits)] = hits
        return cosines, keys

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations with the largest weight of common terms, of the rarest terms of the query."""
        rarest = np.lexsort((codes, -weights))[:_MAX_TERMS]
        pairs = zip(codes[rarest].tolist(), weights[rarest].tolist(), strict=True)
        query = {code: weight for code, weight in pairs if weight > 0 and code < NO_TERM}
        if not query or not k:
            return np.zeros(0, np.float32), np.zeros(0, np.int64)
        ((sums, keys),) = self._search("terms", [query], min(k, MAX_ROWS), filters)
        return sums[sums > 0], keys[sums > 0]

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Find equations whose surrounding text matches: scores are those of the server as shares of the best."""
        words = " ".join(text.replace('"', " ").split())
        if not words:
            return {}
        ((scores, keys),) = self._search("bm25", [words], _MAX_TEXT_EQUATIONS, filters)
        if not len(keys):
            return {}
        shares = scores.astype(np.float64) / scores.max()
        return dict(zip(keys.tolist(), shares.tolist(), strict=True))

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Return references to equations."""
        refs = {}
        for key, row in self._fetch(keys).items():
            record = row["record"]
            refs[key] = EquationRef(
                key=key,
                paper=record["paper"],
                number=record["number"],
                latex=record["latex"],
                year=record["year"],
                fields=tuple(record["fields"]),
                lang=record["lang"],
                whole=int((record["whole"] or "#-1").rpartition("#")[2]),
            )
        return refs

    def get_vectors(self, keys: Keys) -> Floats:
        """Return unit vectors; raises `NoSuchEquation`."""
        return np.array([row["vector"] for row in self._fetch_all(keys)], np.float32)

    def get_trees(self, keys: Keys) -> Forest:
        """Return trees; raises `NoSuchEquation`."""
        forests: list[Forest] = []
        for row in self._fetch_all(keys):
            forests.append(Forest.from_bytes(base64.b64decode(row["record"]["tree"])))
        return Forest.concatenate(forests)

    def get_nodes(self, keys: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of trees; raises `NoSuchEquation`."""
        forest = self.get_trees(np.array(list(keys), np.int64))
        return [NodeColumns.read(forest, at) for at in range(len(forest))]

    def get_operators(self, keys: Keys) -> OperatorForest:
        """Return operator trees; raises `NoSuchEquation`."""
        packed = [base64.b64decode(row["record"]["operators"]) for row in self._fetch_all(keys)]
        return OperatorForest.concatenate(list(map(OperatorForest.from_bytes, packed)))

    def get_records(
        self, keys: Iterable[int], trees: Mapping[int, NodeColumns] | None = None
    ) -> dict[int, EquationRecord]:
        """Return all that is shown of equations, except those of papers that are being pushed."""
        rows = self._fetch(keys)
        papers = self.get_papers({row["record"]["paper"] for row in rows.values()})
        nodes = dict(trees or {})
        unread = [key for key in rows if key not in nodes]
        nodes |= zip(unread, self.get_nodes(unread), strict=True)
        found = {}
        for key, row in rows.items():
            record = row["record"]
            paper = papers.get(record["paper"])
            if paper is not None:
                described = {name: record[name] for name in DESCRIBED_FIELDS}
                name = f"{paper.key}#{record['number']}"
                found[key] = EquationRecord(id=name, tree=key, mathml=to_mathml(nodes[key]), paper=paper, **described)
        return found

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput`."""
        paper, _, last = name.rpartition("#")
        for equation in self.get_records([hash_name(name)] if last.isdecimal() else self.list_keys([paper])).values():
            if last in (equation.label, equation.id.rpartition("#")[2]):
                return equation
        raise BadInput(f"the collection has no equation {name[:200]!r}; an id is PAPER#NUMBER, as a search prints it")

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper and its equations; raises `BadInput`."""
        about = self._fetch_papers([key]).get(key)
        if about is None:
            raise BadInput(f"the collection has no paper {key[:200]!r}")
        sections: dict[str, list[EquationRecord]] = {}
        for equation in self.get_records(self.list_keys([key]).tolist()).values():
            if equation.whole is None and not equation.inline:
                sections.setdefault(equation.section, []).append(equation)
        listed = tuple((heading, tuple(members)) for heading, members in sections.items())
        return PaperPage(_read_paper(about), about["abstract"], listed)

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Return papers by their keys."""
        return {key: _read_paper(about) for key, about in self._fetch_papers(keys).items()}

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """List the equations of papers that can be found, in order."""
        listed: list[int] = []
        for key in keys:
            rows = list(self._collection.scan(self._collection.name, f"paper == {hash_name(key)}", ("number",)))
            listed += [row["key"] for row in sorted(rows, key=lambda row: int(row["number"]))]
        return np.array(listed, np.int64)

    def count_facets(self) -> Facets:
        """Return equations by field and by year as counted at the end of the last push."""
        years = {int(year): count for year, count in self._state.get("years", {}).items()}
        return dict(self._state.get("fields", {})), years

    def _search(
        self, field: str, queries: Sequence[Any], limit: int, filters: Filters, parameters: Row | None = None
    ) -> list[tuple[Floats, Keys]]:
        """Return scores and keys for each query, best first, equal ones by key."""
        found = self._collection.call(
            "search",
            self._collection.name,
            data=list(queries),
            anns_field=field,
            limit=limit,
            filter=build_expression(filters),
            search_params=parameters or {},
            consistency_level="Bounded",
        )
        answers = []
        for hits in found:
            scores = np.array(hits.distances, np.float32)
            if field == "bm25":
                # Milvus Lite returns negative ones
                scores = np.abs(scores)
            keys = np.array(hits.ids, np.int64)
            order = np.lexsort((keys, -scores))
            answers.append((scores[order], keys[order]))
        return answers

    def _fetch(self, keys: Iterable[int]) -> dict[int, Row]:
        """Return rows; those that do not exist are left out."""
        wanted = [int(key) for key in keys]
        unread = [key for key in dict.fromkeys(wanted) if key not in self._rows]
        for key, row in self._collection.fetch(self._collection.name, unread, ("vector", "record")).items():
            self._rows[key] = row | {"record": unpack_record(row["record"])}
        return {key: self._rows[key] for key in wanted if key in self._rows}

    def _fetch_all(self, keys: Keys) -> list[Row]:
        """Return rows in the order of the keys; raises `NoSuchEquation`."""
        wanted = np.asarray(keys, np.int64).tolist()
        found = self._fetch(wanted)
        for key in wanted:
            if key not in found:
                raise NoSuchEquation(f"the collection has no equation with the key {key}")
        return [found[key] for key in wanted]

    def _fetch_papers(self, keys: Iterable[str]) -> dict[str, Row]:
        """Return records of papers; those that do not exist are left out."""
        wanted = {hash_name(key): key for key in keys}
        rows = self._collection.fetch(self._collection.papers, wanted, ("record",))
        return {wanted[number]: unpack_record(row["record"]) for number, row in rows.items()}


def _read_paper(about: Row) -> PaperRecord:
    values = {name: about[name] for name in PaperRecord.__dataclass_fields__}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return PaperRecord(**values | lists)


def build_expression(filters: Filters) -> str:
    """Build the condition on equations that filters express; empty for none."""
    conditions = []
    if filters.fields:
        conditions.append(f"array_contains_any(fields, {_quote(map(clean_field_name, filters.fields))})")
    if filters.first_year is not None:
        conditions.append(f"year >= {int(filters.first_year)}")
    if filters.last_year is not None:
        conditions.append(f"year <= {int(filters.last_year)} and year > {NO_YEAR}")
    if filters.languages:
        conditions.append(f"lang in {_quote(filters.languages)}")
    for author in map(clean_author_name, filters.authors):
        conditions.append(f'authors like "%{author}%"' if author else 'authors != ""')
    if filters.papers:
        conditions.append(f"paper in {format_list(map(hash_name, filters.papers))}")
    if filters.without_papers:
        conditions.append(f"paper not in {format_list(map(hash_name, filters.without_papers))}")
    return " and ".join(f"({condition})" for condition in conditions)


def _quote(texts: Iterable[str]) -> str:
    """Return a list of texts as an expression."""
    return json.dumps(list(texts), ensure_ascii=False)


class MilvusBackend:
    """A collection on a Milvus server as a `SearchBackend`, shared by threads; nothing is stored on this machine.

    A snapshot that is opened while the server is away raises `Unreachable`, the next one tries again.

    Args:
        collection: The collection.
        model: Digest of the network that embeds queries.
    """

    def __init__(self, collection: MilvusCollection, model: str) -> None:
        self.collection: MilvusCollection = collection
        self._model = model
        self._state: Row | None = None
        self._read_at = 0.0
        self._reading = threading.Lock()

    @contextmanager
    def snapshot(self) -> Iterator[MilvusSnapshot]:
        """Open a view; raises `Unreachable` if the server does not answer, or the collection is another one now."""
        try:
            yield MilvusSnapshot(self.collection, self.read_state())
        except NoSuchCollection as error:
            # dropped since its state was read, which the one who searches cannot repair
            self._state = None
            raise Unreachable(str(error)) from error

    def read_state(self) -> Row:
        """Return what describes the collection; see `MilvusCollection.read_state`."""
        with self._reading:
            if self._state is None or time.monotonic() - self._read_at > _STATE_SECONDS:
                self._state = self.collection.read_state(self._model)
                self._read_at = time.monotonic()
            return self._state

    def close(self) -> None:
        """Close the connection."""
        self.collection.close()


def open_engine(uri: str, collection: str, model: str | None = None) -> SearchEngine:
    """Open what searches a collection, with the network that made its vectors; None: the bundled one."""
    encoder = Encoder.load(model)
    return SearchEngine(open_backend(uri, collection, encoder.digest), encoder)


def open_backend(uri: str, collection: str, model: str) -> MilvusBackend:
    """Open a collection for queries of a network.

    Raises:
        BadInput: there is no such collection, another network made it, or pymilvus is not installed.
        Unreachable: the server does not answer.
    """
    backend = MilvusBackend(MilvusCollection(uri, collection), model)
    backend.read_state()
    return backend
