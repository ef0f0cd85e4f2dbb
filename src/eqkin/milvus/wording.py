"""Words as SQLite's full text search takes them: without case, accents and endings, on every server the same.

They are kept as a text of such words, which the server's own analyser only has to part at the blanks. What says more
stands there more than once: a heading three times, a title twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from eqkin.index.words import parts
from eqkin.latex.prose import plain_text
from eqkin.milvus.expressions import cut
from eqkin.milvus.schema import TEXT_BYTES
from eqkin.search.results import EquationRecord

_HEADING, _TITLE = 3, 2  # times they count
_ABSTRACT = 1_000  # characters of it
_LONG = 30_000  # characters of all together
_NONE = "equation"  # stands for no words at all
_SCHEMA = """
CREATE VIRTUAL TABLE text USING fts5(words, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE found USING fts5vocab(text, instance);
"""


def around(equations: Sequence[EquationRecord], abstract: str) -> list[str]:
    """The words around each equation of a paper, as they are kept: blanks around each word, a bar between parts."""
    abstract = plain_text(abstract)[:_ABSTRACT]
    passages: list[str] = []
    for equation in equations:
        title, heading = plain_text(equation.paper.title), plain_text(equation.section)
        passages += [text[:_LONG] for text in (title, heading, equation.before, equation.after, abstract)]
    read = [" ".join(words) for words in words_of(passages)]
    kept = []
    for start in range(0, len(read), 5):
        title, heading, before, after, rest = read[start : start + 5]
        said = [*[heading] * _HEADING, *[title] * _TITLE, before, after, rest]
        kept.append(cut(f" {' | '.join(filter(None, said)) or _NONE} ", TEXT_BYTES))
    return kept


def asked(text: str) -> tuple[list[str], list[str]]:
    """The words of a query, each once, and those phrases of them that have to occur as they are."""
    required, optional = parts(text)
    phrases = [words for words in words_of([phrase.strip('"') for phrase in required]) if words]
    others = words_of([word.strip('"') for word in optional])
    words = dict.fromkeys(word for group in (phrases, others) for each in group for word in each)
    return list(words), [" ".join(phrase) for phrase in phrases]


def words_of(passages: Sequence[str]) -> list[list[str]]:
    """The words of each passage, in order."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        connection.executemany("INSERT INTO text (rowid, words) VALUES (?, ?)", enumerate(passages))
        words: list[list[str]] = [[] for _ in passages]
        for document, term in connection.execute("SELECT doc, term FROM found ORDER BY doc, offset"):
            words[document].append(term)
    return words
