"""`MilvusBackend` and `MilvusSnapshot`: search a collection of a Milvus server; see `eqkin.search.backend`."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from eqkin.cluster.milvus.collection import (
    DEFAULT_COLLECTION,
    KEY_END,
    MAX_ROWS,
    SUMMARY_KEY,
    CollectionInfo,
    MilvusCollection,
    Row,
    hash_equation,
    hash_name,
    unpack_record,
)
from eqkin.cluster.milvus.connection import MilvusConnection, NoSuchCollection
from eqkin.cluster.milvus.rows import (
    build_expression,
    decode_trees,
    parse_equation,
    parse_paper,
    parse_query,
    parse_ref,
)
from eqkin.errors import BadInput, Unreachable
from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.index.term_segments import TERM_SCHEME
from eqkin.index.terms import MIN_TERMS_READ, limit_postings
from eqkin.index.vectors import normalise
from eqkin.search.backend import NO_FILTERS, Codes, EquationRef, Facets, Floats, Keys, NoSuchEquation, Snapshot
from eqkin.search.features import extract_norms
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord

_WHOLE_ROWS = 600  # equations up to which vectors and records are read together
_VECTORS_PER_CALL = 20  # searched for at once, so that no call takes long
_MAX_TEXT_EQUATIONS = 1_000  # best matches of a text
_MIN_EF, _EF_PER_HIT = 256, 2  # width of the search in the HNSW graph
_CODE_END = (1 << 32) - 1  # Milvus takes smaller numbers as terms
_STATE_SECONDS = 5.0  # for which the state of a collection is taken to be current


@dataclass(frozen=True)
class CollectionState:
    """Description and size of a collection."""

    info: CollectionInfo
    equations: int
    summary: dict[str, Any]  # written at the end of the last push

    @property
    def version(self) -> tuple[int, str]:
        """Identifier of the content."""
        return self.equations, str(self.summary.get("time", ""))


class MilvusSnapshot(Snapshot):
    """A `Snapshot` of a collection, without names. A row is read once, with all that a search needs of it."""

    def __init__(self, collection: MilvusCollection, state: CollectionState) -> None:
        self._collection, self._state = collection, state
        self._vectors: dict[int, Any] = {}
        self._records: dict[int, Row] = {}
        self._papers: dict[str, Row] = {}
        self._missing: set[int] = set()  # keys without a row

    @property
    def version(self) -> Hashable:
        """Identifies the content: another value whenever a push has changed the collection."""
        return self._state.version

    @property
    def missing(self) -> int:
        """Equations that had no vector when their library was pushed."""
        return int(self._state.summary.get("missing", 0))

    def __len__(self) -> int:
        return self._state.equations

    def search_vectors(
        self, vectors: Floats, k: int, filters: Filters = NO_FILTERS, *, rough: bool = False
    ) -> tuple[Floats, Keys]:
        """Find the equations nearest to each vector; see `Snapshot`."""
        queries, dimensions = np.asarray(vectors, np.float32), self._state.info.dimensions
        if queries.ndim != 2 or queries.shape[1] != dimensions:
            raise BadInput(f"queries of shape {queries.shape}; (any number, {dimensions}) is needed")
        cosines, keys = np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1, np.int64)
        queries = normalise(queries)
        usable, wanted = np.flatnonzero(queries.any(axis=1)), min(k, MAX_ROWS)
        parameters = {"params": {"ef": max(_MIN_EF, _EF_PER_HIT * wanted)}}
        for start in range(0, len(usable) if wanted else 0, _VECTORS_PER_CALL):
            part = usable[start : start + _VECTORS_PER_CALL]
            found = self._search("vector", list(queries[part]), wanted, filters, parameters)
            for row, (scores, hits) in zip(part.tolist(), found, strict=True):
                cosines[row, : len(hits)], keys[row, : len(hits)] = np.clip(scores, -1, 1), hits
        return cosines, keys

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations with the largest weight of common terms; see `Snapshot`.

        Terms are looked up from the rarest on, as in a library, until too many equations have them: a term of weight w
        is in about one of exp(w) formulas.
        """
        order = np.lexsort((codes, -weights))
        expected = np.cumsum(len(self) * np.exp(-np.clip(weights[order].astype(np.float64), 0, None)))
        order = order[: max(MIN_TERMS_READ, int(np.searchsorted(expected, limit_postings(len(self)), "right")))]
        pairs = zip(codes[order].tolist(), weights[order].tolist(), strict=True)
        query = {code: weight for code, weight in pairs if weight > 0 and code < _CODE_END}
        if self._state.info.terms != TERM_SCHEME or not query or not k:
            return np.zeros(0, np.float32), np.zeros(0, np.int64)
        ((sums, keys),) = self._search("terms", [query], min(k, MAX_ROWS), filters)
        return sums[sums > 0], keys[sums > 0]

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Find equations whose surrounding text matches; see `Snapshot`.

        The score is the server's BM25 as a share of what an equation would have that is the best of the collection for
        each single word; a word that occurs nowhere counts as much as the best one.
        """
        if not self._state.info.text:
            raise BadInput(
                f"text cannot be searched here: the collection was made by Milvus {self._state.info.server}, "
                "which has no full text search; 2.5 has"
            )
        words, phrases = parse_query(text)
        if not words:
            return {}
        condition = " and ".join(f'words like "% {phrase} %"' for phrase in phrases)
        ((scores, keys),) = self._search("bm25", [" ".join(words)], _MAX_TEXT_EQUATIONS, filters, condition=condition)
        if not len(keys):
            return {}
        bests = [float(best[0]) if len(best) else 0.0 for best, _ in self._search("bm25", words, 1, NO_FILTERS)]
        most = sum(best or max(bests) for best in bests)
        shares = np.clip(scores.astype(np.float64) / most, 0.0, 1.0)
        return dict(zip(keys.tolist(), shares.tolist(), strict=True))

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Return references to equations."""
        return {key: parse_ref(key, record) for key, record in self._fetch_records(keys).items()}

    def get_vectors(self, keys: Keys) -> Floats:
        """Return unit vectors; raises `NoSuchEquation`."""
        wanted = np.asarray(keys, np.int64).tolist()
        self._fetch(wanted, self._vectors)
        vectors = [self._vectors[key] for key in self._check_found(wanted, self._vectors)]
        return np.array(vectors, np.float32).reshape(len(wanted), self._state.info.dimensions)

    def get_trees(self, keys: Keys) -> Forest:
        """Return trees; raises `NoSuchEquation`."""
        wanted = np.asarray(keys, np.int64).tolist()
        records = self._fetch_records(wanted)
        return decode_trees(records[key]["tree"] for key in self._check_found(wanted, records))

    def get_nodes(self, keys: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of trees; raises `NoSuchEquation`."""
        forest = self.get_trees(np.array(list(keys), np.int64))
        return [NodeColumns.read(forest, at) for at in range(len(forest))]

    def get_operators(self, keys: Keys) -> OperatorForest:
        """Return operator trees, parsed now; raises `NoSuchEquation`."""
        return parse_operators(self.get_trees(keys))

    def get_norms(self, keys: Keys, operators: OperatorForest) -> Floats:
        """Compute the norms of equations, which are not stored; see `Snapshot`."""
        return extract_norms(operators)

    def get_records(
        self, keys: Iterable[int], trees: Mapping[int, NodeColumns] | None = None
    ) -> dict[int, EquationRecord]:
        """Return all that is shown of equations, except those of papers that are being pushed."""
        records, nodes = self._fetch_records(keys), trees or {}
        unread = [key for key in records if key not in nodes]
        forest = decode_trees(records[key]["tree"] for key in unread)
        nodes = {**nodes, **{key: NodeColumns.read(forest, at) for at, key in enumerate(unread)}}
        papers = self.get_papers({record["paper"] for record in records.values()})
        return {
            key: parse_equation(key, record, papers[record["paper"]], nodes[key])
            for key, record in records.items()
            if record["paper"] in papers
        }

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput`."""
        paper, _, last = name.rpartition("#")
        if last.isdecimal() and len(last) < 10:
            found = self._read_equations(paper, [int(last)])
        else:
            found = [equation for equation in self._read_equations(paper) if equation[1].label == last]
            found.sort(key=lambda equation: equation[1].whole is None)  # a row rather than its display
        for _, equation in found:
            return equation
        raise BadInput(f"the collection has no equation {name[:200]!r}; an id is PAPER#NUMBER, as a search prints it")

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper and its equations; raises `BadInput`."""
        record = self._fetch_papers([key]).get(key)
        if record is None:
            raise BadInput(f"the collection has no paper {key[:200]!r}")
        sections: dict[int, list[EquationRecord]] = {}
        for at, equation in self._read_equations(key):
            if not equation.whole and not equation.inline:
                sections.setdefault(at, []).append(equation)
        listed = tuple((sections[at][0].section, tuple(sections[at])) for at in sorted(sections))
        return PaperPage(parse_paper(record), record["abstract"], listed)

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Return papers by their keys."""
        return {key: parse_paper(record) for key, record in self._fetch_papers(keys).items()}

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """List the equations of papers that can be found, in order."""
        listed = [
            hash_equation(key, number)
            for key, record in self._fetch_papers(keys).items()
            for number in range(record["numbers"])
        ]
        found = self._collection.fetch(self._collection.name, listed, ())
        return np.array([key for key in listed if key in found], np.int64)

    def sample_keys(self, limit: int) -> Keys:
        """Choose the equations with the lowest keys: keys are hashes, so these are evenly spread."""
        total, enough = len(self), limit + 4 * isqrt(limit)  # a range has a few keys more or less than expected
        below = KEY_END if enough >= total else KEY_END * enough // total
        name = self._collection.name
        found = self._collection.scan(name, (), rows=min(enough, total), below=below, strong=False)
        return np.sort(np.fromiter((row["key"] for row in found), np.int64))[:limit]

    def count_facets(self) -> Facets:
        """Return equations by field and by year as counted at the end of the last push."""
        summary = self._state.summary
        return dict(summary.get("fields", {})), {int(year): count for year, count in summary.get("years", {}).items()}

    def _search(
        self,
        field: str,
        queries: Sequence[Any],
        limit: int,
        filters: Filters,
        parameters: dict[str, Any] | None = None,
        *,
        condition: str = "",
    ) -> list[tuple[Floats, Keys]]:
        """Return scores and keys for each query, best first, equal ones by key."""
        conditions = [build_expression(filters, substrings=bool(self._state.info.terms)), condition]
        found = self._collection.connection.call(
            "search",
            self._collection.name,
            data=list(queries),
            anns_field=field,
            limit=limit,
            filter=" and ".join(filter(None, conditions)),
            search_params=parameters or {},
            consistency_level="Bounded",
        )
        answers = []
        for hits in found:
            scores, keys = np.array(hits.distances, np.float32), np.array(hits.ids, np.int64)
            scores = np.abs(scores) if field == "bm25" else scores  # Milvus Lite returns negative ones
            order = np.lexsort((keys, -scores))
            answers.append((scores[order], keys[order]))
        return answers

    def _fetch(self, keys: Iterable[int], cache: dict[int, Any]) -> None:
        """Read vectors or records (whichever `cache` holds) into memory; of few equations, both."""
        wanted = dict.fromkeys(map(int, keys))
        unread = [key for key in wanted if key not in cache and key not in self._missing]
        both = len(wanted) <= _WHOLE_ROWS
        fields = ("vector", "record") if both else ("vector",) if cache is self._vectors else ("record",)
        found = self._collection.fetch(self._collection.name, unread, fields)
        for key, row in found.items():
            if "vector" in row:
                self._vectors[key] = row["vector"]
            if "record" in row:
                self._records[key] = unpack_record(row["record"])
        self._missing.update(key for key in unread if key not in found)

    def _fetch_records(self, keys: Iterable[int]) -> dict[int, Row]:
        wanted = [int(key) for key in keys]
        self._fetch(wanted, self._records)
        return {key: self._records[key] for key in wanted if key in self._records}

    def _check_found(self, keys: list[int], found: Mapping[int, Any]) -> list[int]:
        gone = next((key for key in keys if key not in found), None)
        if gone is not None:
            raise NoSuchEquation(f"the collection has no equation with the key {gone}")
        return keys

    def _fetch_papers(self, keys: Iterable[str]) -> dict[str, Row]:
        """Return records of papers; those that do not exist are left out."""
        wanted = list(dict.fromkeys(keys))
        unread = {hash_name(key): key for key in wanted if key not in self._papers}
        if unread:
            found = self._collection.read_records(unread)
            self._papers |= {unread[number]: record for number, record in found.items()}
        return {key: self._papers[key] for key in wanted if key in self._papers}

    def _read_equations(self, paper: str, numbers: Iterable[int] | None = None) -> list[tuple[int, EquationRecord]]:
        """Return equations of a paper with the place of their section, also those that cannot be found."""
        about = self._fetch_papers([paper]).get(paper)
        if about is None:
            return []
        keys = [hash_equation(paper, number) for number in (range(about["numbers"]) if numbers is None else numbers)]
        indexed = self._fetch_records(keys)
        unindexed = self._collection.read_records(key for key in keys if key not in indexed)
        records = {key: record for key, record in ((indexed | unindexed).items()) if record["paper"] == paper}
        known = [key for key in keys if key in records]
        trees = [key for key in known if records[key].get("tree") is not None]
        forest = decode_trees(records[key]["tree"] for key in trees)
        nodes = {key: NodeColumns.read(forest, at) for at, key in enumerate(trees)}
        page = parse_paper(about)
        return [
            (records[key]["at"], parse_equation(key if key in indexed else -1, records[key], page, nodes.get(key)))
            for key in known
        ]


class MilvusBackend:
    """A collection on a Milvus server as a `SearchBackend`, shared by threads; nothing is stored on this machine.

    The first snapshot connects; one that is opened while the server is away raises `Unreachable`, the next one tries
    again.

    Args:
        model: Digest of the network that embeds queries.
        state_seconds: How long what is known of the collection is taken to be current.

    Raises:
        BadInput: the address or the name is invalid, or pymilvus is not installed.
    """

    def __init__(
        self,
        uri: str,
        collection: str = DEFAULT_COLLECTION,
        model: str = "",
        *,
        state_seconds: float = _STATE_SECONDS,
    ) -> None:
        self.connection = MilvusConnection(uri)
        self.collection, self.model = MilvusCollection(self.connection, collection), model
        self._state: tuple[float, CollectionState] | None = None
        self._state_seconds = state_seconds
        self._reading = threading.Lock()

    @contextmanager
    def snapshot(self) -> Iterator[MilvusSnapshot]:
        """Open a view; raises `Unreachable` if the server does not answer, or the collection is another one now."""
        try:
            state = self.get_state()
        except BadInput as error:  # nothing that the one who searches can repair
            raise Unreachable(str(error)) from error
        try:
            yield MilvusSnapshot(self.collection, state)
        except NoSuchCollection as error:  # dropped since its state was read
            with self._reading:
                self._state = None
            raise Unreachable(str(error)) from error

    def get_state(self) -> CollectionState:
        """Return what is known of the collection, read again every few seconds: it may have been replaced.

        Raises:
            BadInput: there is no such collection, or another model made it.
            Unreachable: the server does not answer.
        """
        with self._reading:
            now = time.monotonic()
            if self._state is None or now - self._state[0] > self._state_seconds:
                self._state = None
                info = self.collection.read_info()
                self.collection.check_model(info, self.model)
                summary = self.collection.read_records([SUMMARY_KEY]).get(SUMMARY_KEY) or {}
                equations = self.collection.count(self.collection.name)
                self._state = now, CollectionState(info, equations, summary)
            return self._state[1]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def open_backend(uri: str, collection: str, model_digest: str) -> MilvusBackend:
    """Open a collection for queries of a model; its state is read before this returns.

    Raises:
        BadInput: there is no such collection, another model made it, or pymilvus is not installed.
        Unreachable: the server does not answer.
    """
    backend = MilvusBackend(uri, collection, model_digest)
    backend.get_state()
    return backend
