"""Keywords of the search study: bundled queries, matching with typos, relevant sections."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin import Library
from eqkin.errors import BadInput
from eqkin.learning.data import Corpus
from research.keywords import (
    MAX_EXACT_LENGTH,
    Keyword,
    StudyQuery,
    find_relevant_sections,
    load_queries,
    make_section_text,
    normalize,
    read_query_formulas,
    read_section_ids,
)
from research.published import STUDY_QUERIES


def test_bundled_keywords_are_normalised_and_not_part_of_everyday_words():
    keywords = [keyword for query in load_queries() for keyword in query.keywords]
    assert [keyword for keyword in keywords if keyword != normalize(keyword) or len(keyword) < 4] == []


def test_bundled_queries_have_every_row_of_the_papers_table():
    ours = [query for query in load_queries() if query.paper_keywords]
    assert len(ours) == len(STUDY_QUERIES) == 22
    for row in STUDY_QUERIES:
        printed = [word.replace("distr.", "distribution").replace("prog.", "programming")
                   for word in row.title.split(", ") if word not in ("...", "erm", "lima")]  # fmt: skip
        assert [query for query in ours if set(printed) <= set(query.keywords)], row.title


def test_bundled_queries_can_be_read():
    queries = load_queries()
    read = read_query_formulas(queries)
    assert len(read) == len(queries)
    assert list(read.latex) == [query.latex for query in queries]


def test_read_query_formulas_names_unreadable_formula():
    with pytest.raises(BadInput, match="frac"):
        read_query_formulas([StudyQuery("a", "b", r"\frac{", ("cccc",))])


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
def test_long_keyword_matches_at_distance_below_two(text, word):
    assert Keyword(word).occurs_in(text) == (distance_within(text, word) < 2)


@given(FEW, LONG, FEW, *[st.tuples(st.integers(0, 99), st.sampled_from("abc"), st.integers(0, 2))] * 2)
def test_long_keyword_matches_one_typo_but_not_two(before, word, after, first, second):
    once = slipped(word, *first)
    assert Keyword(word).occurs_in(before + once + after)
    text = before + slipped(once, *second) + after
    assert Keyword(word).occurs_in(text) == (distance_within(text, word) < 2)


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
def test_keyword_matches_known_examples(keyword, text, counts):
    assert Keyword(keyword).occurs_in(normalize(text)) is counts


def test_section_text_has_no_latex_commands():
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
    with Library.open(tmp_path / "library", create=True) as opened:
        opened.add(path)
        yield opened


def test_relevant_sections_are_found_by_their_own_text(library):
    corpus = Corpus.from_library(library)
    sections = read_section_ids(library, corpus)
    said = []
    queries = [["purrs", "nothing is"], ["a dog"], ["mouse"], ["anaconda is silent", "the anaconda nothing"]]
    found = find_relevant_sections(library, sections, queries, said.append)
    ids = [[corpus.get_equation_id(tree) for tree in np.flatnonzero(row)] for row in found[:, corpus.section]]
    assert [[name.split(":")[-1] for name in names] for names in ids] == [
        ["one#0", "two#0"], ["one#1", "one#2"], [], ["one#1", "one#2", "two#0"],
    ]  # fmt: skip
    assert said[-1] == "searched 3 of 3 sections for keywords"


def test_relevant_sections_report_changed_library(library):
    with pytest.raises(BadInput, match="changed while"):
        find_relevant_sections(library, np.array([10_000]), [["purrs"]])
