"""Queries of the search study, and which sections are relevant to them by keywords (paper, section 6).

Queries are formulas from many fields with keywords. Those with `paper_keywords` have the keywords that the paper prints
in its table of single queries, except "erm" and "lima", which occur within everyday words ("term", "climate"). The
paper does not print its formulas; ours are what the keywords describe. Keywords were chosen by what a text about the
formula says, never by what a system finds. They are long enough not to occur within other words, nor with one typo:
"ising model" is one letter from "using model", "action potential" is in "interaction potential".

A keyword counts wherever it occurs, also within a longer word, in any case. A keyword of more than 10 characters also
counts if some part of the text is at Levenshtein distance 1: then one of its halves occurs unchanged next to the other
with one typo. That is exact, and hardly slower than searching for the halves.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.systems import FormulaSet
from eqkin.latex.prose import EQUATION_MARK, to_plain_text
from eqkin.learning.data import Corpus
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import read_sections

Flags: TypeAlias = npt.NDArray[np.bool_]
_Value = TypeVar("_Value")

BUNDLED_QUERIES = Path(__file__).parent / "queries.json"
# Longer keywords may have a typo.
MAX_EXACT_LENGTH = 10
_TITLE_KEYWORDS = 2
_SECTION_BATCH = 500
_HYPHENS, _APOSTROPHES = "‐‑‒–—−", "‘’ʼ`´"  # noqa: RUF001


@dataclass(frozen=True)
class StudyQuery:
    """A formula to search for."""

    id: str
    field: str
    latex: str
    # Normalised; a result is relevant if its section has one of them.
    keywords: tuple[str, ...]
    # Whether the keywords are a row of the paper's table.
    paper_keywords: bool = False

    @property
    def title(self) -> str:
        """Its first keywords, for tables."""
        more = ["..."] if len(self.keywords) > _TITLE_KEYWORDS else []
        return ", ".join([*self.keywords[:_TITLE_KEYWORDS], *more])


def load_queries() -> list[StudyQuery]:
    """Read the bundled queries."""
    entries = json.loads(BUNDLED_QUERIES.read_bytes())
    return [StudyQuery(**entry | {"keywords": tuple(entry["keywords"])}) for entry in entries]


def read_query_formulas(queries: Sequence[StudyQuery]) -> FormulaSet:
    """Read the formulas of the queries; raises `BadInput` that names an unreadable one."""
    latex = [query.latex for query in queries]
    return FormulaSet(Encoder.load().parse_formulas(latex), latex)


def normalize(text: str) -> str:
    """Convert to lower case, with single spaces and one kind of hyphen and apostrophe."""
    text = unicodedata.normalize("NFC", text).lower()
    if not text.isascii() or "`" in text:
        for variants, plain in ((_HYPHENS, "-"), (_APOSTROPHES, "'")):
            for character in variants:
                text = text.replace(character, plain)
    return " ".join(text.split())


def make_section_text(title: str, latex: str) -> str:
    """Return heading and prose of a section, normalised; a mark replaces each display equation."""
    return normalize(f"{to_plain_text(title)} {EQUATION_MARK} {to_plain_text(latex)}")


class Keyword:
    """A keyword, which is normalised."""

    def __init__(self, text: str) -> None:
        self.text = normalize(text)
        self._head, self._tail = self.text[: len(self.text) // 2], self.text[len(self.text) // 2 :]
        self._typo_in_tail = _compile_typos(self._head, self._tail)
        # A typo in the head is found from the other end, in reversed texts.
        self._typo_in_head = _compile_typos(self._tail[::-1], self._head[::-1])

    def occurs_in(self, text: str) -> bool:
        """Return whether it occurs in a normalised text: exactly or, if it is long, with at most one typo."""
        if len(self.text) <= MAX_EXACT_LENGTH:
            return self.text in text
        if self._typo_in_tail.search(text):
            return True
        return self._tail in text and self._typo_in_head.search(text[::-1]) is not None


def _compile_typos(start: str, end: str) -> re.Pattern[str]:
    """Compile a pattern for `start` as it is, then a string at Levenshtein distance 0 or 1 from `end`."""
    before_and_after = [(re.escape(end[:at]), re.escape(end[at:]), re.escape(end[at + 1 :])) for at in range(len(end))]
    changed = [f"{before}(?:.?{rest}|.{after})" for before, after, rest in before_and_after]
    return re.compile(f"{re.escape(start)}(?:{'|'.join(changed)})", re.DOTALL)


def find_relevant_sections(
    library: LibraryFiles,
    sections: npt.NDArray[np.int64],
    queries: Sequence[Sequence[str]],
    log: Callable[[str], None] = lambda message: None,
) -> Flags:
    """Find which sections (ids in the database) have a keyword of which query, (queries, sections), in one pass.

    Raises `BadInput` if a section no longer exists.
    """
    keywords = [[Keyword(keyword) for keyword in one] for one in queries]
    found = np.zeros((len(keywords), len(sections)), bool)
    for start in range(0, len(sections), _SECTION_BATCH):
        ids = sections[start : start + _SECTION_BATCH].tolist()
        texts = {number: make_section_text(*section) for number, section in read_sections(library, ids).items()}
        if len(texts) < len(set(ids)):
            raise BadInput(f"{library.folder}: changed while it was read; run this again")
        for index, section in enumerate(ids, start):
            found[:, index] = [any(keyword.occurs_in(texts[section]) for keyword in one) for one in keywords]
        done = start + len(ids)
        if 10 * done // len(sections) > 10 * start // len(sections):
            log(f"searched {done:,} of {len(sections):,} sections for keywords")
    return found


_SELECT_COLUMN = "SELECT p.key, e.number, e.%s FROM equations e JOIN papers p ON p.id = e.paper"


def read_library_formulas(library: LibraryFiles) -> tuple[Corpus, FormulaSet]:
    """Read the corpus of a library, and its formulas in the same order; raises `BadInput` if there are none."""
    corpus = Corpus.from_library(library)
    if not len(corpus):
        raise BadInput(f"{library.folder}: no equations; fill it with `eqkin add`")
    latex = {(key, number): text for key, number, text in library.connection.execute(_SELECT_COLUMN % "latex")}
    return corpus, FormulaSet(corpus.forest, _sort_by_corpus(library, corpus, latex))


def read_section_ids(library: LibraryFiles, corpus: Corpus) -> npt.NDArray[np.int64]:
    """Return the id in the library's database of each section of the corpus (`corpus.section`)."""
    found = {(key, number): section for key, number, section in library.connection.execute(_SELECT_COLUMN % "section")}
    section_of_tree = np.array(_sort_by_corpus(library, corpus, found), np.int64)
    return section_of_tree[np.unique(corpus.section, return_index=True)[1]]


def _sort_by_corpus(library: LibraryFiles, corpus: Corpus, found: dict[tuple[str, int], _Value]) -> list[_Value]:
    """Return the value of each equation in the order of the corpus; raises `BadInput` if the library was changed."""
    keys = [corpus.papers[paper] for paper in corpus.paper.tolist()]
    try:
        return [found[place] for place in zip(keys, corpus.numbers.tolist(), strict=True)]
    except KeyError as error:
        raise BadInput(f"{library.folder}: changed while it was read; run this again") from error
