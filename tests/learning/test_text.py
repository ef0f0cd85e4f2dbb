"""Context words: extraction, selection and storage in corpora."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eqkin.api import Library
from eqkin.learning.data import Corpus
from eqkin.learning.text import extract_context_words, split_words, stem

SECTION = r"\section{Rings of %s} The %s of $x+y$ \emph{springs} \[ x_{%d} = 1 \] is %s. \[ y \] Then \[ z \]"


def words(corpus: Corpus, identity: str) -> set[str]:
    """Return the words around one equation."""
    tree = [corpus.get_equation_id(tree) for tree in range(len(corpus))].index(identity)
    held = corpus.words
    assert held is not None
    return {held.vocabulary[word] for word in held.word[held.offsets[tree] : held.offsets[tree + 1]]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("words")
    subjects = ["energies", "energy", "Momenta", "momenta", "unique", *["nothing"] * 9]
    records = [
        {"doc_id": f"d{n:02}", "latex": SECTION % (subject, subject, n, "constant" if n < 2 else f"only{n}")}
        for n, subject in enumerate(subjects)
    ]
    (folder / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with Library.open(folder / "library", create=True) as library:
        library.add(folder / "r.jsonl")
        return Corpus.from_library(library)


def test_rare_and_common_words_are_dropped(corpus: Corpus) -> None:
    assert corpus.words is not None
    assert set(corpus.words.vocabulary) == {"momenta", "constant"}  # energ-ies and energy are two stems, once each
    assert words(corpus, "record:d02#0") == {"momenta"}
    assert words(corpus, "record:d09#0") == set()  # "nothing", "rings" and "the" occur nearly everywhere


def test_context_includes_text_before_after_and_heading(corpus: Corpus) -> None:
    assert words(corpus, "record:d00#0") == {"constant"}  # after it
    assert words(corpus, "record:d00#1") == {"constant"}  # before it
    assert words(corpus, "record:d00#2") == {
        "constant"
    }  # little text comes before it: taken from before the previous equation
    assert words(corpus, "record:d03#2") == {"momenta"}  # in the heading


def test_select_and_split_keep_the_words(corpus: Corpus) -> None:
    learn, held_out = corpus.split(0.5, 0)
    for part in (learn, held_out, corpus.select([3, 1])):
        for tree in range(len(part)):
            assert words(part, part.get_equation_id(tree)) == words(corpus, part.get_equation_id(tree))


def test_atlas_has_meaningful_context_words(atlas_corpus: Corpus) -> None:
    held = atlas_corpus.words
    assert held is not None
    assert 8 < held.counts.mean() < 40
    assert {"energy", "matrix", "probability"} <= set(held.vocabulary)
    assert (np.bincount(held.word) < 0.15 * len(atlas_corpus)).all()
    frequency = np.bincount(held.word, minlength=len(held.vocabulary))
    assert (np.diff(frequency) <= 0).all()


def test_split_words_removes_formulas_and_commands() -> None:
    text = r"Let $abc$ be \emph{Closed} by \cite[see]{lee} and \(\alpha beta\) in \begin{foo} x_1 so é être"
    assert split_words(text) == ["let", "closed", "and", "être"]


def test_context_removes_formulas_cut_by_its_limits() -> None:
    before, after = "zzz$" + "abc " * 80 + "$ then " + "." * 150, "now $" + "xyz " * 80 + "$"
    assert extract_context_words([before, after], 0) == ["then", "now"]


def test_context_of_missing_text_is_empty() -> None:
    assert extract_context_words([], 0) == extract_context_words(["", ""], 0) == []
    assert extract_context_words(["some"], 4) == []
    assert extract_context_words(["some", "more"], 1) == ["some", "more"]


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [("rings", "ring"), ("equations", "equation"), ("spring", "spring"), ("uses", "uses"), ("computed", "comput")],
)
def test_stem_cuts_endings_if_enough_remains(word: str, stemmed: str) -> None:
    assert stem(word) == stemmed
