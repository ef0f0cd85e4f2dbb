"""Words as SQLite's full text search takes them: without case, accents and endings, on every server the same.

They are kept as a text of such words, which the server's own analyser only has to part at the blanks. What says more
stands there more than once: a heading three times, a title twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from eqkin.backends.milvus.expressions import truncate
from eqkin.backends.milvus.schema import MAX_TEXT_BYTES
from eqkin.index.words import split_query
from eqkin.latex.prose import to_plain_text
from eqkin.search.results import EquationRecord

_HEADING_WEIGHT, _TITLE_WEIGHT = 3, 2  # times they count
_MAX_ABSTRACT_CHARS = 1_000  # characters of it
_MAX_TEXT_CHARS = 30_000  # characters of all together
_NO_WORDS = "equation"  # stands for no words at all
_SCHEMA = """
CREATE VIRTUAL TABLE text USING fts5(words, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE found USING fts5vocab(text, instance);
"""


def build_texts(equations: Sequence[EquationRecord], abstract: str) -> list[str]:
    """The words around each equation of a paper, as they are kept: blanks around each word, a bar between parts."""
    abstract = to_plain_text(abstract)[:_MAX_ABSTRACT_CHARS]
    passages: list[str] = []
    for equation in equations:
        title, heading = to_plain_text(equation.paper.title), to_plain_text(equation.section)
        passages += [text[:_MAX_TEXT_CHARS] for text in (title, heading, equation.before, equation.after, abstract)]
    read = [" ".join(words) for words in stem_words(passages)]
    kept = []
    for start in range(0, len(read), 5):
        title, heading, before, after, rest = read[start : start + 5]
        said = [*[heading] * _HEADING_WEIGHT, *[title] * _TITLE_WEIGHT, before, after, rest]
        kept.append(truncate(f" {' | '.join(filter(None, said)) or _NO_WORDS} ", MAX_TEXT_BYTES))
    return kept


def parse_query(text: str) -> tuple[list[str], list[str]]:
    """The words of a query, each once, and those phrases of them that have to occur as they are."""
    required, optional = split_query(text)
    phrases = [words for words in stem_words([phrase.strip('"') for phrase in required]) if words]
    others = stem_words([word.strip('"') for word in optional])
    words = dict.fromkeys(word for group in (phrases, others) for each in group for word in each)
    return list(words), [" ".join(phrase) for phrase in phrases]


def stem_words(passages: Sequence[str]) -> list[list[str]]:
    """The words of each passage, in order."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        connection.executemany("INSERT INTO text (rowid, words) VALUES (?, ?)", enumerate(passages))
        words: list[list[str]] = [[] for _ in passages]
        for document, term in connection.execute("SELECT doc, term FROM found ORDER BY doc, offset"):
            words[document].append(term)
    return words
