"""Inverted lists that are read past FTS5 are those that FTS5 itself reads."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from eqkin.index.fts5 import InvertedLists

WORDS = ["the", *(f"w{number}" for number in range(40)), *(f"rare{number}" for number in range(600))]
CHANCES = np.array([20.0, *([1.0] * 40), *([0.02] * 600)])
PHRASES = [["the"], ["w1"], ["the", "w2"], ["w3", "the", "the"], ["the", "the"], ["w1", "absent"], ["absent"], []]


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    """Random texts, added in several transactions, so that there are several segments of many pages."""
    random = np.random.default_rng(5)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE VIRTUAL TABLE text USING fts5(words, content='')")
        for start in range(0, 1400, 200):
            connection.execute("BEGIN")
            for row in range(start + 2, start + 202):
                size = 3_000 if row == 77 else int(random.integers(0, 120))  # one list of positions fills several pages
                words = " ".join(random.choice(WORDS, size, p=CHANCES / CHANCES.sum()))
                connection.execute("INSERT INTO text (rowid, words) VALUES (?, ?)", (3 * row, words))
            connection.execute("COMMIT")
        connection.execute("CREATE VIRTUAL TABLE positions USING fts5vocab(text, instance)")
        yield connection


def count_by_fts5(database: sqlite3.Connection, words: list[str]) -> dict[int, int]:
    """Count a phrase in each row by the places that FTS5 tells."""
    places = [
        {
            (row, offset - at)
            for row, offset in database.execute("SELECT doc, offset FROM positions WHERE term = ?", (word,))
        }
        for at, word in enumerate(words)
    ]
    return dict(Counter(row for row, _ in set.intersection(*places))) if places else {}


def read_counts(database: sqlite3.Connection, words: list[str]) -> dict[int, int]:
    rows, counts = InvertedLists.open(database).count_phrase(words)
    assert rows.tolist() == sorted(rows.tolist())
    return dict(zip(rows.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("words", PHRASES)
def test_counts_are_those_of_fts5(database: sqlite3.Connection, words: list[str]) -> None:
    assert len(InvertedLists.open(database).segments) > 1
    assert read_counts(database, words) == count_by_fts5(database, words)


def test_every_word_is_found(database: sqlite3.Connection) -> None:
    expected: dict[str, Counter[int]] = {}
    for word, row in database.execute("SELECT term, doc FROM positions"):
        expected.setdefault(word, Counter())[row] += 1
    assert len(expected) > 300
    assert {word: read_counts(database, [word]) for word in expected} == expected


def test_counts_stay_the_same_while_segments_are_merged(database: sqlite3.Connection) -> None:
    before = [read_counts(database, words) for words in PHRASES]
    for command in ("INSERT INTO text (text, rank) VALUES ('merge', 8)",) * 3 + (
        "INSERT INTO text (text) VALUES ('optimize')",
    ):
        database.execute(command)
        assert [read_counts(database, words) for words in PHRASES] == before
    assert len(InvertedLists.open(database).segments) == 1


def test_damaged_pages_are_errors_or_other_counts() -> None:
    random = np.random.default_rng(6)
    for _ in range(150):
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute("CREATE VIRTUAL TABLE text USING fts5(words, content='')")
            texts = [(row, "a b " * 300 + "c") for row in range(1, 20)]
            database.executemany("INSERT INTO text (rowid, words) VALUES (?, ?)", texts)
            database.commit()
            pages = database.execute("SELECT id, block FROM text_data WHERE id >= 10").fetchall()
            number, page = pages[int(random.integers(len(pages)))]
            damaged = bytearray(page[: int(random.integers(len(page)))] if random.random() < 0.2 else page)
            for place in random.integers(0, max(len(damaged), 1), 3):
                damaged[place : place + 1] = bytes([int(random.integers(256))])
            database.execute("UPDATE text_data SET block = ? WHERE id = ?", (bytes(damaged), number))
            try:
                rows, counts = InvertedLists.open(database).count_phrase(["a", "b"])
            except sqlite3.DatabaseError:
                continue
            assert (np.diff(rows) > 0).all()
            assert (counts > 0).all()
