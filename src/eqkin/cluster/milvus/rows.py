"""Papers and equations as rows of Milvus and back; filters and text as Milvus searches them.

In filters, papers are named by their keys, which are numbers; other texts are in double quotes with the escapes of
JSON, which Milvus reads. Authors' names consist of letters, digits and blanks alone: no quote, backslash or wildcard is
left in them. Text is stored as stems (without case, accents and endings), so that the server's own analyser only splits
it at blanks and every server finds the same; headings and titles are repeated, since they weigh more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from eqkin.cluster.milvus.collection import (
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    MAX_TEXT_BYTES,
    NO_YEAR,
    CollectionInfo,
    Row,
    build_paper_row,
    format_list,
    hash_equation,
    hash_name,
    pack_record,
)
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.mathml import NodeColumns, to_mathml
from eqkin.index.embedding import TreeTask
from eqkin.index.term_segments import extract_structure, normalise_length
from eqkin.index.text import split_query, stem_words
from eqkin.latex.prose import to_plain_text
from eqkin.library.records import simplify_name
from eqkin.search.backend import EquationRef, Floats
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord

AUTHOR_SEPARATOR = "|"
_HEADING_WEIGHT, _TITLE_WEIGHT = 3, 2  # how often they are repeated
_MAX_ABSTRACT_CHARS = 1_000  # that can be searched
_MAX_PASSAGE_CHARS = 30_000
_SHORT_TEXT_CHARS, _SHORT_NAME_CHARS, _SHORT_LIST = 3_000, 100, 50  # kept of a record that is too large otherwise
_NO_WORDS = "equation"  # Milvus wants a word
_NO_TERM = (1 << 32) - 1  # Milvus takes smaller numbers
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


_EQUATION_FIELDS = ("latex", "label", "section", "before", "after", "printed", "whole", "inline")
_PAPER_FIELDS = tuple(PaperRecord.__dataclass_fields__)


@dataclass
class PaperRows:
    """A paper as it is pushed."""

    key: int
    papers: list[Row] = field(default_factory=list)  # its own row, written last: then the paper is complete
    equations: list[Row] = field(default_factory=list)
    unindexed: list[Row] = field(default_factory=list)  # of equations that cannot be found, only seen on the page
    oversized: list[str] = field(default_factory=list)  # ids of equations too large for Milvus


def build_paper_rows(
    page: PaperPage, forest: Forest, vectors: Mapping[int, Floats], content: str, info: CollectionInfo
) -> PaperRows:
    """Build the rows of a paper.

    Args:
        page: The paper with its equations.
        forest: Trees of the equations that have one, in their order.
        vectors: Vectors of equations by the number of their tree; an equation without one cannot be found.
        content: Identifies the content of the paper.
        info: How the collection was made.
    """
    paper = page.paper
    rows = PaperRows(hash_name(paper.key))
    year = NO_YEAR if paper.year is None else int(np.clip(paper.year, -1_000_000, 1_000_000))
    fields = list(dict.fromkeys(clean_field_name(name) for name in paper.fields))[:MAX_FIELDS]
    shared: Row = {"paper_key": rows.key, "year": year, "fields": fields}
    authors = truncate(AUTHOR_SEPARATOR.join(map(clean_author_name, paper.authors)), MAX_TEXT_BYTES)
    trees = iter(range(len(forest)))
    indexed: list[tuple[EquationRecord, int]] = []
    for at, (_, members) in enumerate(page.sections):
        for equation in members:
            number = int(equation.id.rpartition("#")[2])
            tree = next(trees) if equation.tree >= 0 else None
            record: Row = {"paper": paper.key, "number": number, "year": paper.year, "fields": paper.fields, "at": at}
            record["lang"] = paper.lang
            record |= {name: getattr(equation, name) for name in _EQUATION_FIELDS}
            packed = pack_record(record | {"tree": None if tree is None else encode_tree(forest, tree)})
            key = hash_equation(paper.key, number)
            if packed is None:
                rows.oversized.append(equation.id)
            if packed is not None and tree is not None and equation.tree in vectors:
                row = {"key": key, "vector": vectors[equation.tree], "record": packed, "authors": authors}
                rows.equations.append(row | shared)
                indexed.append((equation, tree))
            else:
                rows.unindexed.append(build_paper_row(key, packed or _pack_short(record), **shared))
    if info.text:
        texts = build_texts([equation for equation, _ in indexed], page.abstract)
        for row, text in zip(rows.equations, texts, strict=True):
            row["words"] = text
    if info.terms and indexed:
        terms = _extract_indexed_terms(forest.select([tree for _, tree in indexed]))
        for row, found in zip(rows.equations, terms, strict=True):
            row["terms"] = found
    every = [equation for _, members in page.sections for equation in members]
    about = asdict(paper)
    about |= {"abstract": page.abstract, "numbers": 1 + max((int(e.id.rpartition("#")[2]) for e in every), default=-1)}
    missing = sum(equation.tree >= 0 and equation.tree not in vectors for equation in every)
    counts = {"content": content, "equations": len(rows.equations), "missing": missing}
    rows.papers = [build_paper_row(rows.key, pack_record(about) or _pack_short(about), **shared, **counts)]
    return rows


def _pack_short(record: Row) -> str:
    """Pack a record that is too large, with its texts truncated and lists shortened."""
    short: Row = {}
    for name, value in record.items():
        if isinstance(value, str):
            value = value[:_SHORT_TEXT_CHARS] if name not in ("key", "paper") else value
        elif isinstance(value, list | tuple):
            value = [text[:_SHORT_NAME_CHARS] for text in value[:_SHORT_LIST]]
        short[name] = value
    packed = pack_record(short)
    if packed is None:
        raise StorageFailed(f"the record of {record.get('paper', record.get('key'))!r} is too large for Milvus")
    return packed


def _extract_indexed_terms(forest: Forest) -> list[dict[int, float]]:
    """Return the indexed terms of each tree; Milvus wants at least one, so an empty tree has the term 0."""
    _, structure = extract_structure(TreeTask(np.arange(len(forest)), forest))
    factors = normalise_length(np.diff(structure.operators.offsets)).tolist()
    found: list[dict[int, float]] = [{} for _ in range(len(forest))]
    for owner, code in zip(structure.owners.tolist(), structure.codes.tolist(), strict=True):
        if code != _NO_TERM:
            found[owner][code] = factors[owner]
    return [terms or {0: 1.0} for terms in found]


def estimate_size(row: Row) -> int:
    """Estimate how many bytes a row takes in a message."""
    texts = sum(len(value.encode()) for value in row.values() if isinstance(value, str))
    return texts + 12 * len(row.get("terms", ())) + 4 * len(row["vector"]) + 200


def encode_tree(forest: Forest, index: int) -> list[Any]:
    """Return a tree as lists: its distinct tags, attributes and texts, and the columns of its nodes."""
    one = forest.select([index])
    columns = (one.tag, one.attribute, one.text, one.n_children)
    return [one.tags, one.attributes, one.texts, *(column.tolist() for column in columns)]


def decode_trees(trees: Iterable[list[Any]]) -> Forest:
    """Return the forest of encoded trees: several times as fast as reading a file of each; raises `CorruptData`."""
    names: tuple[dict[str, int], ...] = ({}, {}, {})
    columns: tuple[list[int], ...] = ([], [], [], [])
    sizes = []
    try:
        for tree in trees:
            for known, strings, column, numbers in zip(names, tree[:3], columns, tree[3:6], strict=False):
                numbered = [known.setdefault(text, len(known)) for text in strings]
                column += [numbered[number] for number in numbers]
            columns[3].extend(tree[6])
            sizes.append(len(tree[6]))
        builder = ForestBuilder()
        arrays = [np.array(column, np.int64) for column in columns]
        builder.add_columns(list(names[0]), list(names[1]), list(names[2]), arrays, sizes)
        forest = builder.build()
        forest.validate()
    except (TypeError, IndexError, ValueError) as error:
        raise CorruptData(f"a tree in Milvus is damaged ({error}); push the library into another collection") from error
    return forest


def parse_paper(record: Row) -> PaperRecord:
    """Return the paper of its record."""
    known = {name: record[name] for name in _PAPER_FIELDS if name in record}  # older records lack the last ones
    return PaperRecord(**known | {name: tuple(record[name]) for name in ("authors", "fields")})


def parse_ref(key: int, record: Row) -> EquationRef:
    """Return the reference to an equation."""
    whole = int((record.get("whole") or "#-1").rpartition("#")[2])
    fields, lang = tuple(record["fields"]), record.get("lang", "")
    return EquationRef(key, record["paper"], record["number"], record["latex"], record["year"], fields, lang, whole)


def parse_equation(key: int, record: Row, paper: PaperRecord, nodes: NodeColumns | None) -> EquationRecord:
    """Return the equation of its record; `key` is -1 for one that cannot be found."""
    values = {name: record[name] for name in _EQUATION_FIELDS if name in record}  # older records lack the last ones
    mathml = "" if nodes is None else to_mathml(nodes)
    return EquationRecord(id=f"{paper.key}#{record['number']}", tree=key, mathml=mathml, paper=paper, **values)


def clean_field_name(name: str) -> str:
    """Return a subject field's name as filters see it."""
    return truncate(_CONTROL_CHARACTER.sub(" ", name), MAX_FIELD_BYTES)


def clean_author_name(name: str) -> str:
    """Return a name, or a part of one, as filters see it: simplified, only letters, digits and blanks."""
    return "".join(letter if letter.isalnum() else " " for letter in simplify_name(name))


def truncate(text: str, most: int) -> str:
    """Return the beginning of a text, at most this many bytes of it."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")


def build_expression(filters: Filters, *, substrings: bool = True) -> str:
    """Build the condition on equations that filters express; empty for none.

    Servers find `substrings`, parts of texts, from Milvus 2.4 on.

    Raises:
        BadInput: the filters name a language, or an author and the server cannot find parts of texts.
    """
    conditions = []
    if filters.fields:
        names = ", ".join(quote(clean_field_name(name)) for name in filters.fields)
        conditions.append(f"array_contains_any(fields, [{names}])")
    if filters.first_year is not None:
        conditions.append(f"year >= {int(filters.first_year)}")
    if filters.last_year is not None:
        conditions.append(f"year <= {int(filters.last_year)} and year > {NO_YEAR}")
    if filters.languages:
        raise BadInput("languages cannot be filtered by on a Milvus server: its collections have no column for them")
    if filters.authors and not substrings:
        raise BadInput("authors cannot be filtered by here: the collection was made by a Milvus before 2.4")
    for author in map(clean_author_name, filters.authors):
        conditions.append(f'authors like "%{author}%"' if author else 'authors != ""')
    if filters.papers:
        conditions.append(f"paper_key in {format_list(map(hash_name, filters.papers))}")
    if filters.without_papers:
        conditions.append(f"paper_key not in {format_list(map(hash_name, filters.without_papers))}")
    return " and ".join(f"({condition})" for condition in conditions)


def quote(text: str) -> str:
    """Return a text as a literal of an expression."""
    return json.dumps(_CONTROL_CHARACTER.sub(" ", text), ensure_ascii=False)


def build_texts(equations: Sequence[EquationRecord], abstract: str) -> list[str]:
    """Build the searchable text of each equation: stems with blanks around, bars between parts."""
    abstract = to_plain_text(abstract)[:_MAX_ABSTRACT_CHARS]
    passages: list[str] = []
    for equation in equations:
        title, heading = to_plain_text(equation.paper.title), to_plain_text(equation.section)
        passages += [text[:_MAX_PASSAGE_CHARS] for text in (title, heading, equation.before, equation.after, abstract)]
    stems = [" ".join(words) for words in stem_words(passages)]
    texts = []
    for start in range(0, len(stems), 5):
        title, heading, *others = stems[start : start + 5]
        parts = [*[heading] * _HEADING_WEIGHT, *[title] * _TITLE_WEIGHT, *others]
        texts.append(truncate(f" {' | '.join(filter(None, parts)) or _NO_WORDS} ", MAX_TEXT_BYTES))
    return texts


def parse_query(text: str) -> tuple[list[str], list[str]]:
    """Return the stems of a query, each once, and its phrases, which must occur as they are."""
    required, optional = split_query(text)
    phrases = [stems for stems in stem_words([phrase.strip('"') for phrase in required]) if stems]
    others = stem_words([word.strip('"') for word in optional])
    stems = dict.fromkeys(stem for group in (phrases, others) for each in group for stem in each)
    return list(stems), [" ".join(phrase) for phrase in phrases]
