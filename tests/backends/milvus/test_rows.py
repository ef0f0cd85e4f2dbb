"""Rows, texts, keys, trees and expressions: what needs no server to be checked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.backends.milvus import wording
from eqkin.backends.milvus.expressions import build_expression, join_author_names, quote, truncate
from eqkin.backends.milvus.keys import KEY_END, hash_equation, hash_name
from eqkin.backends.milvus.rows import build_document_rows, build_paper_rows, parse_document
from eqkin.backends.milvus.schema import MAX_TEXT_BYTES, CollectionInfo
from eqkin.backends.milvus.texts import fitted, restored, split
from eqkin.backends.milvus.trees import forest_from
from eqkin.errors import BadInput, CorruptData
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord
from eqkin.trees.mathml import Node, to_forest, to_mathml, to_node

ORIGIN = CollectionInfo("model", 4, 3, True, "2.6.0")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAME = st.text("abcdefgh", min_size=1, max_size=3)


def _nodes():
    leaf = st.builds(
        Node,
        st.sampled_from(["mi", "mo", "mtext", "mspace"]),
        st.dictionaries(
            st.sampled_from(["mathvariant", "width", "fence"]), st.text("a1.-é ", max_size=150), max_size=2
        ),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    )
    return st.recursive(
        leaf,
        lambda children: st.builds(
            lambda tag, below: Node(tag, children=below),
            st.sampled_from(["mrow", "mfrac", "msub"]),
            st.lists(children, min_size=1, max_size=4),
        ),
        max_leaves=12,
    )


@given(st.lists(_nodes(), min_size=1, max_size=4))
def test_trees_come_back_as_they_were_written(trees):
    forest = forest_from([to_mathml(tree) for tree in trees])
    for at, tree in enumerate(trees):
        assert to_node(forest, at) == to_node(to_forest(tree), 0)


def test_no_trees_are_an_empty_forest():
    assert len(forest_from([])) == 0


@pytest.mark.parametrize(
    "text", ["", "x", "<math></math>", "<math><mi>x</mi>", "<math></mi></mi></math>", "<p><a></a></p>"]
)
def test_what_is_no_tree_is_damage(text):
    with pytest.raises(CorruptData):
        forest_from([text])


@given(TEXT, st.integers(1, 200_000))
def test_texts_come_back_whatever_their_length(text, length):
    long = (text * (1 + length // max(len(text), 1)))[:length] if text else ""
    for kept in (fitted(text), fitted(long)):
        assert kept is not None and len(kept.encode()) <= MAX_TEXT_BYTES
    assert restored(fitted(text)) == text and restored(fitted(long)) == long
    assert restored("".join(split(long))) == long
    assert restored(fitted(f"zstd+base64:{text}")) == f"zstd+base64:{text}"


def _noise(length):
    return "".join(map(chr, np.random.default_rng(0).integers(0x10000, 0xE0000, length)))


def test_a_text_that_does_not_fit_is_split_and_damage_is_told():
    noise = _noise(50_000)
    assert fitted(noise) is None
    parts = split(noise)
    assert len(parts) > 1 and all(len(part.encode()) <= MAX_TEXT_BYTES for part in parts)
    assert restored("".join(parts)) == noise
    for damaged in (parts[0], "zstd+base64:!", "zstd+base64:aGVsbG8="):
        with pytest.raises(CorruptData):
            restored(damaged)
    rows = build_document_rows(99, {"a": noise}, "content")
    assert [row["key"] for row in rows][-1] == 99 and rows[-1]["parts"] == len(rows) > 1
    assert parse_document([rows[-1]["record"], *(row["record"] for row in rows[:-1])]) == {"a": noise}
    with pytest.raises(CorruptData):
        parse_document(["{"])


def _page(*mathml):
    paper = PaperRecord("key", "Title", ("Ann Author",), None, ("f",), "origin")
    equations = tuple(
        EquationRecord(f"key#{at}", at, "x", text, "", "Heading", "before", "after", paper)
        for at, text in enumerate(mathml)
    )
    return PaperPage(paper, "", (("Heading", equations),))


def test_an_equation_too_large_for_milvus_is_left_out_and_named():
    small, large = to_mathml(Node("mi", text="x")), to_mathml(Node("mtext", text=_noise(50_000)))
    vectors = {at: np.ones(4, np.float32) for at in range(2)}
    rows = build_paper_rows(_page(small, large), vectors, "content", ORIGIN)
    assert [row["number"] for row in rows.equations] == [0] and rows.oversized == ["key#1"]
    assert rows.papers[-1]["equations"] == 1
    record = parse_document([rows.papers[-1]["record"], *(row["record"] for row in rows.papers[:-1])])
    assert record["sections"][0][1][1][3] == large  # the paper's page has it all the same


def test_a_blank_equation_has_words_and_terms_nevertheless():
    paper = PaperRecord("key", "", (), None, (), "")
    equation = EquationRecord("key#0", 0, "", to_mathml(Node("mspace")), "", "", "", "", paper)
    (row,) = build_paper_rows(
        PaperPage(paper, "", (("", (equation,)),)), {0: np.ones(4, np.float32)}, "", ORIGIN
    ).equations
    assert row["terms"] == {0: 1.0} and row["words"].strip()


def test_keys_are_the_same_always_and_everywhere():
    assert hash_equation("arxiv:1706.03762", 3) == hash_name("arxiv:1706.03762#3") == 380_098_356_558_101_059
    keys = {hash_name(str(i)) for i in range(10_000)}
    assert len(keys) == 10_000 and 15 < min(keys) and max(keys) < KEY_END
    assert abs(np.mean([key / KEY_END for key in keys]) - 0.5) < 0.02  # spread evenly


def test_a_name_that_is_no_unicode_has_a_key_of_its_own():
    assert len({hash_name(name) for name in ("x\udcff", "x\udcfe", "x?", "x\\udcff", "x")}) == 5


def test_words_lose_case_accents_and_endings():
    assert wording.stem_words(["Schrödinger's Functions", "", "E = mc^2"]) == [
        ["schroding", "s", "function"],
        [],
        ["e", "mc", "2"],
    ]
    assert wording.parse_query('the quick "Brown foxes" quick') == (["brown", "fox", "quick"], ["brown fox"])
    (text,) = wording.build_texts(_page(to_mathml(Node("mi", text="x"))).sections[0][1], "An abstract.")
    assert text == " head | head | head | titl | titl | befor | after | an abstract "


def test_filters_become_expressions():
    assert build_expression(Filters()) == ""
    assert build_expression(Filters(first_year=1990, last_year=2000)) == (
        "(year >= 1990) and (year <= 2000 and year > -1000000000)"
    )
    assert build_expression(Filters(fields=("math.AG", 'a"b'))) == r'(array_contains_any(fields, ["math.AG", "a\"b"]))'
    assert build_expression(Filters(authors=("O'Brien%_\\",))) == '(authors like "%o brien   %")'
    assert build_expression(Filters(papers=("p",), without_papers=("q",))) == (
        f"(paper_key in [{hash_name('p')}]) and (paper_key not in [{hash_name('q')}])"
    )
    with pytest.raises(BadInput, match=r"2\.4"):
        build_expression(Filters(authors=("x",)), parts=False)


@given(TEXT)
def test_no_text_escapes_its_quotes(text):
    literal = quote(text)
    inner = literal[1:-1].replace("\\\\", "").replace('\\"', "")
    assert literal[0] == literal[-1] == '"' and '"' not in inner and "\n" not in inner


@given(TEXT, TEXT)
def test_a_part_of_a_name_is_found_in_it(before, part):
    from eqkin.backends.milvus.expressions import clean_author_name

    names = join_author_names([before + part, "Other"])
    assert "%" not in names and '"' not in names and "\\" not in names
    from eqkin.library.records import simplify_name

    if simplify_name(part) and simplify_name(part) in simplify_name(before + part):
        assert clean_author_name(part) in names


@given(TEXT, st.integers(0, 40))
def test_a_text_is_cut_between_letters(text, most):
    assert text.startswith(truncate(text, most)) and len(truncate(text, most).encode()) <= most
