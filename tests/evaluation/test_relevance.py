import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin import Library
from eqkin.errors import BadInput
from eqkin.evaluation.sets.library_formulas import read_section_ids
from eqkin.evaluation.sets.relevance import (
    MAX_EXACT_LENGTH,
    Keyword,
    contains_any,
    find_relevant_sections,
    make_section_text,
    normalize,
)
from eqkin.training.data import Corpus


def distance_within(text: str, word: str) -> int:
    """The least Levenshtein distance of a word to any part of a text (Sellers 1980)."""
    row = [0] * (len(text) + 1)
    for at, letter in enumerate(word, 1):
        before, row = row, [at]
        for place, other in enumerate(text, 1):
            row.append(min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != other)))
    return min(row)


def slipped(word: str, place: int, letter: str, kind: int) -> str:
    """A word with a letter put in, left out or replaced."""
    place %= len(word)
    return word[:place] + letter * (kind != 1) + word[place + (kind != 0) :]


FEW = st.text("ab", max_size=60)  # few letters make near misses likely
LONG = st.text("ab", min_size=MAX_EXACT_LENGTH + 1, max_size=16)


@given(FEW, LONG)
def test_long_keywords_count_at_a_distance_below_two(text, word):
    assert Keyword.parse(word).occurs_in(text) == (distance_within(text, word) < 2)


@given(FEW, LONG, FEW, *[st.tuples(st.integers(0, 99), st.sampled_from("abc"), st.integers(0, 2))] * 2)
def test_slips_are_told_from_greater_changes(before, word, after, first, second):
    once = slipped(word, *first)
    assert Keyword.parse(word).occurs_in(before + once + after)
    text = before + slipped(once, *second) + after
    assert Keyword.parse(word).occurs_in(text) == (distance_within(text, word) < 2)


@given(FEW, st.text("ab", min_size=1, max_size=MAX_EXACT_LENGTH))
def test_short_keywords_count_only_as_they_are(text, word):
    assert Keyword.parse(word).occurs_in(text) == (word in text)


@pytest.mark.parametrize(
    ("keyword", "text", "counts"),
    [
        ("lstm", "BiLSTMs", True),  # within a word
        ("q-learning", "Q–learning", True),  # any hyphen
        ("q-learning", "q-leaming", False),  # 10 characters: exactly
        ("strongly convex", "strongly\n  convex", True),
        ("handshake lemma", "the handshaking lemma", False),
        ("handshaking lemma", "the hand-shaking lemma", True),
        ("johnson-lindenstrauss", "the Johnson–Lindenstraus bound", True),
        ("bayes' rule", "Bayes’ rule", True),
        ("effective area", "an affective areas", True),
        ("effective area", "affective aria", False),
    ],
)
def test_examples(keyword, text, counts):
    assert contains_any(normalize(text), [Keyword.parse("nowhere to be found"), Keyword.parse(keyword)]) is counts


def test_a_section_is_read_without_its_commands():
    text = make_section_text(
        r"The \emph{Ising} Model", r"Schr{\"o}dinger~\cite{ising1925} says \textbf{Strongly} convex."
    )
    assert text == "the ising model \ufffc schrödinger says strongly convex."


@pytest.fixture
def library(tmp_path):
    latex = (
        r"\section{Cats} The cat purrs. \[ a = b \] \section{Without equations} The mouse hides."
        r"\section{A dog} It barks loudly, an anaconda is silent. \[ c = d \] \[ e = f \]"
    )
    records = [
        {"doc_id": "one", "title": "One", "latex": latex},
        {"doc_id": "two", "title": "Two", "latex": r"\section{Mice} Of the anacomda nothing is said. \[ x = y^2 \]"},
    ]
    path = tmp_path / "papers.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    with Library.open(tmp_path / "library") as opened:
        opened.add(path)
        yield opened


def test_sections_of_a_library_are_found_by_their_own_text(library):
    corpus = Corpus.from_library(library)
    sections = read_section_ids(library, corpus)
    said = []
    queries = [["purrs", "nothing is"], ["a dog"], ["mouse"], ["anaconda is silent", "the anaconda nothing"]]
    found = find_relevant_sections(library, sections, queries, said.append)
    ids = [[corpus.get_equation_id(tree) for tree in np.flatnonzero(row)] for row in found[:, corpus.section]]
    assert [[name.split(":")[-1] for name in names] for names in ids] == [
        ["one#0", "two#0"], ["one#1", "one#2"], [], ["one#1", "one#2", "two#0"],
    ]  # fmt: skip
    assert said[-1] == "keywords looked for in 3 of 3 sections"


def test_a_section_that_is_gone_is_told(library):
    with pytest.raises(BadInput, match="was changed"):
        find_relevant_sections(library, np.array([10_000]), [["purrs"]])
