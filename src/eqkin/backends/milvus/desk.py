"""`MilvusDesk`: what a search asks of a collection, answered by a Milvus server; see `eqkin.search.backend.Desk`.

A row that was fetched is kept for as long as the desk is: where an equation stands, its vector, its tree and what is
shown of it come in one answer, however many of them are asked for one after the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.backends.milvus import documents, rows, wording
from eqkin.backends.milvus.connection import MilvusConnection
from eqkin.backends.milvus.expressions import build_expression
from eqkin.backends.milvus.keys import KEY_END, hash_equation, hash_name
from eqkin.backends.milvus.texts import restored
from eqkin.backends.milvus.trees import forest_from
from eqkin.errors import BadInput
from eqkin.index.structure import MAX_POSTINGS_READ, MIN_TERMS_READ
from eqkin.index.structure_files import TERM_SCHEME
from eqkin.index.vectors import normalise
from eqkin.search.backend import NO_FILTERS, Codes, EquationRef, Facets, Floats, Keys, NoSuchEquation
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord
from eqkin.trees import Forest
from eqkin.trees.mathml import Node

if TYPE_CHECKING:
    from eqkin.backends.milvus.store import CollectionState

_WHOLE_ROWS = 600  # equations up to which whole rows are fetched; of more, only what is asked for
_VECTORS_PER_CALL = 20  # vectors searched for at once, so that no call takes long
_MAX_TEXT_EQUATIONS = 1_000  # equations that fit words best
_MIN_EF, _EF_PER_HIT = 256, 2  # of the search in the graph of neighbours: at least, and times the hits wanted
_CODE_END = (1 << 32) - 1
_VECTOR = ("vector",)


class MilvusSnapshot:
    """A `Desk` over a collection. Keys are those of `eqkin.backends.milvus.keys`."""

    def __init__(self, connection: MilvusConnection, collection: str, state: CollectionState) -> None:
        self._connection, self._collection, self._state = connection, collection, state
        self._rows: dict[int, rows.Row] = {}
        self._asked: dict[int, set[str]] = {}  # fields that were asked for, of keys that may not be there
        self._records: dict[str, Any] = {}  # of papers

    @property
    def version(self) -> Hashable:
        """Another value whenever a push has changed the collection."""
        return self._state.version

    @property
    def missing(self) -> int:
        """Equations that had no vector when their library was pushed."""
        return int(self._state.about.get("missing", 0))

    def __len__(self) -> int:
        return self._state.equations

    def search_vectors(self, vectors: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """The equations nearest to each vector; see `Desk`."""
        queries, dimensions = np.asarray(vectors, np.float32), self._state.origin.dimensions
        if queries.ndim != 2 or queries.shape[1] != dimensions:
            raise BadInput(f"queries of shape {queries.shape}; (any number, {dimensions}) is needed")
        similarities, keys = np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1, np.int64)
        queries = normalise(queries)
        usable, wanted = np.flatnonzero(queries.any(axis=1)), min(k, documents.MAX_ROWS)
        parameters = {"params": {"ef": max(_MIN_EF, _EF_PER_HIT * wanted)}}
        for start in range(0, len(usable) if wanted else 0, _VECTORS_PER_CALL):
            here = usable[start : start + _VECTORS_PER_CALL]
            found = self._search("vector", list(queries[here]), wanted, filters, parameters)
            for at, (scores, hits) in zip(here.tolist(), found, strict=True):
                similarities[at, : len(hits)], keys[at, : len(hits)] = np.clip(scores, -1, 1), hits
        return similarities, keys

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """The equations that have most of some terms; nothing where the collection has no terms of this kind.

        Terms are looked up from the rarest on, as in a library, until too many equations have them.
        """
        query = _select_rarest(codes, weights, len(self))
        if self._state.origin.terms != TERM_SCHEME or not query or not k:
            return np.zeros(0, np.float32), np.zeros(0, np.int64)
        ((sums, keys),) = self._search("terms", [query], min(k, documents.MAX_ROWS), filters)
        return sums[sums > 0], keys[sums > 0]

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Equations around which stand the words.

        How well they fit is BM25 as the server reckons it, as a share of what an equation would have that were the best
        of the collection for every single word; a word that is nowhere counts as much as the one that says most.
        """
        if not self._state.origin.words:
            raise BadInput(
                f"words cannot be searched for here: the collection was made by Milvus {self._state.origin.server}, "
                "which has no full text search; 2.5 has"
            )
        words, phrases = wording.parse_query(text)
        if not words:
            return {}
        needed = " and ".join(f'words like "% {phrase} %"' for phrase in phrases)
        ((scores, keys),) = self._search("bm25", [" ".join(words)], _MAX_TEXT_EQUATIONS, filters, also=needed)
        if not len(keys):
            return {}
        bests = [float(best[0]) if len(best) else 0.0 for best, _ in self._search("bm25", words, 1, NO_FILTERS)]
        most = sum(best or max(bests) for best in bests)
        return {
            key: min(max(score / most, 0.0), 1.0) for key, score in zip(keys.tolist(), scores.tolist(), strict=True)
        }

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Where equations stand."""
        found = self._fetch(map(int, keys), rows.REF_FIELDS)
        return {key: rows.parse_ref(row) for key, row in found.items()}

    def get_vectors(self, keys: Keys) -> Floats:
        """Unit vectors; raises `NoSuchEquation`."""
        found = self._fetch_all(keys, _VECTOR)
        if not found:
            return np.zeros((0, self._state.origin.dimensions), np.float32)
        return np.array([row["vector"] for row in found], np.float32)

    def get_trees(self, keys: Keys) -> Forest:
        """Trees; raises `NoSuchEquation`."""
        return forest_from([restored(row["mathml"]) for row in self._fetch_all(keys, rows.SHOWN_FIELDS)])

    def get_records(self, keys: Iterable[int], trees: Mapping[int, Node] | None = None) -> dict[int, EquationRecord]:
        """All that is shown of equations; of papers that are being pushed, none."""
        found = self._fetch(map(int, keys), (*rows.REF_FIELDS, *rows.SHOWN_FIELDS))
        papers = self.get_papers({row["paper"] for row in found.values()})
        return {
            key: rows.parse_equation(row, papers[row["paper"]]) for key, row in found.items() if row["paper"] in papers
        }

    def get_equation(self, name: str) -> EquationRecord:
        """The equation with an id; raises `BadInput`."""
        paper, _, last = name.rpartition("#")
        number = int(last) if last.isdecimal() and len(last) < 10 else None
        if number is not None:
            key = hash_equation(paper, number)
            found = self.get_records([key]).get(key)
            if found is not None and found.paper.key == paper:
                return found
        record = self._fetch_papers([paper]).get(paper)
        for heading, known in sorted(_list_equations(record), key=lambda one: int(one[1][0])) if record else ():
            if known[0] == number or (number is None and known[1] == last):
                if len(known) > 2:
                    return rows.parse_unindexed(known, heading, rows.parse_paper(record))
                if number is None:
                    return self.get_equation(f"{paper}#{known[0]}")
        raise BadInput(f"the collection has no equation {name[:200]!r}; an id is PAPER#NUMBER, as a search prints it")

    def get_paper(self, key: str) -> PaperPage:
        """A paper and its equations; raises `BadInput`."""
        record = self._fetch_papers([key]).get(key)
        if record is None:
            raise BadInput(f"the collection has no paper {key[:200]!r}")
        paper = rows.parse_paper(record)
        numbers = [known[0] for _, known in _list_equations(record) if len(known) == 2]
        found = self.get_records(hash_equation(key, number) for number in numbers)
        sections = []
        for heading, members in record["sections"]:
            listed_ = [
                rows.parse_unindexed(known, heading, paper)
                if len(known) > 2
                else found.get(hash_equation(key, known[0]))
                for known in members
            ]
            sections.append((heading, tuple(equation for equation in listed_ if equation is not None)))
        return PaperPage(paper, record["abstract"], tuple(sections))

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Papers by their keys."""
        return {key: rows.parse_paper(record) for key, record in self._fetch_papers(keys).items()}

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """Equations of papers, in order."""
        found = []
        for key, record in self._fetch_papers(keys).items():
            numbers = sorted(known[0] for _, known in _list_equations(record) if len(known) == 2)
            found += [hash_equation(key, number) for number in numbers]
        return np.array(found, np.int64)

    def sample_keys(self, limit: int) -> Keys:
        """Equations whose keys are low: keys are hashes, so these are spread evenly."""
        total, enough = len(self), limit + 4 * isqrt(limit)  # there are a few more or less in a range than expected
        below = KEY_END if enough >= total else KEY_END * enough // total
        found = documents.scan_rows(
            self._connection, self._collection, (), rows=min(enough, total), below=below, strong=False
        )
        return np.sort(np.fromiter((row["key"] for row in found), np.int64))[:limit]

    def count_facets(self) -> Facets:
        """Equations by field and by year, as the last push that came to its end counted them."""
        about = self._state.about
        return dict(about.get("fields", {})), {int(year): count for year, count in about.get("years", {}).items()}

    def _search(
        self,
        field: str,
        queries: Sequence[Any],
        limit: int,
        filters: Filters,
        parameters: dict[str, Any] | None = None,
        *,
        also: str = "",
    ) -> list[tuple[Floats, Keys]]:
        """Scores and keys for each query, best first, equal ones by key."""
        conditions = [build_expression(filters, parts=self._state.able.parts), also]
        found = self._connection.call(
            "search",
            self._collection,
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
            scores = np.abs(scores) if field == "bm25" else scores  # Milvus Lite gives them below 0
            order = np.lexsort((keys, -scores))
            answers.append((scores[order], keys[order]))
        return answers

    def _fetch(self, keys: Iterable[int], fields: tuple[str, ...]) -> dict[int, rows.Row]:
        """Rows that have at least some fields, by key; those that are not there are left out."""
        wanted = list(dict.fromkeys(keys))
        if len(wanted) <= _WHOLE_ROWS:
            fields = (*_VECTOR, *rows.REF_FIELDS, *rows.SHOWN_FIELDS)
        lacking = [key for key in wanted if not self._asked.get(key, set()).issuperset(fields)]
        for key, row in documents.fetch_rows(self._connection, self._collection, lacking, fields).items():
            self._rows[key] = self._rows.get(key, {}) | row
        for key in lacking:
            self._asked.setdefault(key, set()).update(fields)
        return {key: self._rows[key] for key in wanted if key in self._rows}

    def _fetch_all(self, keys: Keys, fields: tuple[str, ...]) -> list[rows.Row]:
        """Rows in the order of their keys; raises `NoSuchEquation`."""
        numbers = np.asarray(keys, np.int64).tolist()
        found = self._fetch(numbers, fields)
        if len(found) < len(set(numbers)):
            gone = next(number for number in numbers if number not in found)
            raise NoSuchEquation(f"the collection has no equation with the key {gone}")
        return [found[number] for number in numbers]

    def _fetch_papers(self, keys: Iterable[str]) -> dict[str, Any]:
        """Records of papers; those that are not there are left out."""
        wanted = list(dict.fromkeys(keys))
        lacking = {hash_name(key): key for key in wanted if key not in self._records}
        if lacking:
            found = documents.read_records(self._connection, self._collection, lacking)
            self._records |= {lacking[number]: record for number, record in found.items()}
        return {key: self._records[key] for key in wanted if key in self._records}


def _select_rarest(codes: Codes, weights: Floats, equations: int) -> dict[int, float]:
    """The terms worth most, with what they are worth: a term of weight w is in about one formula of exp(w)."""
    order = np.lexsort((codes, -weights))
    expected = np.cumsum(equations * np.exp(-np.clip(weights[order].astype(np.float64), 0, None)))
    order = order[: max(MIN_TERMS_READ, int(np.searchsorted(expected, MAX_POSTINGS_READ, "right")))]
    pairs = zip(codes[order].tolist(), weights[order].tolist(), strict=True)
    return {code: weight for code, weight in pairs if weight > 0 and code < _CODE_END}


def _list_equations(record: Any) -> list[tuple[str, Any]]:
    """A paper's equations as its record lists them, each with its heading: number, label; all of it if not pushed."""
    return [(heading, known) for heading, members in record["sections"] for known in members]
