"""Rows, records, keys, trees and expressions: all that needs no server."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.cluster.milvus.collection import (
    KEY_END,
    MAX_TEXT_BYTES,
    CollectionInfo,
    hash_equation,
    hash_name,
    pack_record,
    unpack_record,
)
from eqkin.cluster.milvus.push import add_fields
from eqkin.cluster.milvus.rows import (
    AUTHOR_SEPARATOR,
    build_expression,
    build_paper_rows,
    build_texts,
    clean_author_name,
    decode_trees,
    encode_tree,
    parse_query,
    quote,
    truncate,
)
from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import ForestBuilder
from eqkin.formulas.mathml import Node, to_forest, to_node
from eqkin.index.text import stem_words
from eqkin.library.records import simplify_name
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord

INFO = CollectionInfo("model", 4, 3, True, "2.6.0")
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


def _make_forest(trees):
    builder = ForestBuilder()
    for tree in trees:
        builder.add_forest(to_forest(tree))
    return builder.build()


@given(st.lists(_nodes(), max_size=4))
def test_encoded_trees_are_decoded_as_they_were(trees):
    forest = _make_forest(trees)
    encoded = unpack_record(pack_record([encode_tree(forest, at) for at in range(len(forest))]))
    decoded = decode_trees(encoded)
    assert len(decoded) == len(trees)
    assert all(to_node(decoded, at) == to_node(forest, at) for at in range(len(trees)))


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        [["mi"], [""], ["x"], [0], [0], [1], [0]],
        [["mi"], [""], ["x"], [0], [0], [0], [7]],
        [["mi"], [""], ["x"], [0, 0], [0], [0], [0]],
        [["mi"], [""], ["x"], ["a"], [0], [0], [0]],
    ],
)
def test_damaged_trees_are_refused(tree):
    with pytest.raises(CorruptData):
        decode_trees([tree])


@given(st.dictionaries(TEXT, TEXT | st.integers(-(2**53), 2**53) | st.none(), max_size=5))
def test_packed_records_are_unpacked_as_they_were(record):
    assert unpack_record(pack_record(record)) == record


def _make_noise(length):
    return "".join(map(chr, np.random.default_rng(0).integers(0x10000, 0xE0000, length)))


def test_record_that_does_not_fit_is_refused_and_damage_is_reported():
    assert pack_record({"a": _make_noise(50_000)}) is None
    assert len(pack_record({"a": "word " * 50_000})) <= MAX_TEXT_BYTES
    for damaged in ("", "!", "aGVsbG8=", pack_record({"a": 1})[:-8]):
        with pytest.raises(CorruptData):
            unpack_record(damaged)


PAPER = PaperRecord("key", "Title", ("Ann Author",), None, ("f",), "origin")


def _make_equation(number, tree, paper=PAPER):
    return EquationRecord(f"{paper.key}#{number}", tree, "x", "", "", "Heading", "before", "after", paper)


def _build_rows(trees, paper=PAPER, abstract=""):
    members = tuple(_make_equation(at, at, paper) for at in range(len(trees)))
    vectors = {at: np.ones(4, np.float32) for at in range(len(trees))}
    page = PaperPage(paper, abstract, (("Heading", members),))
    return build_paper_rows(page, _make_forest(trees), vectors, "content", INFO)


def test_equation_too_large_for_milvus_is_named_and_on_the_page_without_its_tree():
    rows = _build_rows([Node("mi", text="x"), Node("mtext", text=_make_noise(50_000))])
    assert [unpack_record(row["record"])["number"] for row in rows.equations] == [0] and rows.oversized == ["key#1"]
    (paper,), (other,) = rows.papers, rows.unindexed
    assert paper["equations"] == 1 and unpack_record(paper["record"])["numbers"] == 2
    record = unpack_record(other["record"])
    assert other["key"] == hash_equation("key", 1) and record["latex"] == "x" and "tree" not in record


def test_paper_record_that_does_not_fit_is_truncated():
    authors = tuple(_make_noise(1_000)[:500] for _ in range(300))
    rows = _build_rows([], replace(PAPER, authors=authors), _make_noise(50_000))
    record = unpack_record(rows.papers[0]["record"])
    assert (record["key"], record["title"]) == ("key", "Title")
    assert record["abstract"] and _make_noise(50_000).startswith(record["abstract"])


def test_summary_keeps_the_most_frequent_fields_that_fit() -> None:
    few = {"math": 1, "physics": 2}
    assert list(add_fields({"papers": 3}, few)["fields"].items()) == [("physics", 2), ("math", 1)]
    many = {f"{hash_name(str(number)):x}": number for number in range(20_000)}
    kept = add_fields({"papers": 3}, many)
    assert list(kept["fields"].values()) == sorted(many.values(), reverse=True)[: len(kept["fields"])]
    assert pack_record(kept) is not None
    too_large = {"years": many}
    assert add_fields(too_large, few) == too_large | {"fields": {}}


def test_blank_equation_has_a_word_and_a_term():
    blank = PaperRecord("key", "", (), None, (), "")
    equation = EquationRecord("key#0", 0, "", "", "", "", "", "", blank)
    page = PaperPage(blank, "", (("", (equation,)),))
    vectors = {0: np.ones(4, np.float32)}
    (row,) = build_paper_rows(page, _make_forest([Node("mspace")]), vectors, "", INFO).equations
    assert row["terms"] and row["words"].strip()


def test_keys_are_stable_unique_and_evenly_distributed():
    assert hash_equation("arxiv:1706.03762", 3) == hash_name("arxiv:1706.03762#3") == 380_098_356_558_101_059
    keys = {hash_name(str(i)) for i in range(10_000)}
    assert len(keys) == 10_000 and 15 < min(keys) and max(keys) < KEY_END
    assert abs(np.mean([key / KEY_END for key in keys]) - 0.5) < 0.02  # evenly distributed


def test_names_with_surrogates_have_their_own_keys():
    assert len({hash_name(name) for name in ("x\udcff", "x\udcfe", "x?", "x\\udcff", "x")}) == 5


def test_text_is_stored_and_searched_as_stems():
    assert stem_words(["Schrödinger's Functions", "", "E = mc^2"]) == [
        ["schroding", "s", "function"],
        [],
        ["e", "mc", "2"],
    ]
    assert parse_query('the quick "Brown foxes" quick') == (["brown", "fox", "quick"], ["brown fox"])
    (text,) = build_texts([_make_equation(0, 0)], "An abstract.")
    assert text == " head | head | head | titl | titl | befor | after | an abstract "


def test_build_expression_of_filters():
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
        build_expression(Filters(authors=("x",)), substrings=False)


@given(TEXT)
def test_quoted_text_cannot_escape_its_quotes(text):
    literal = quote(text)
    inner = literal[1:-1].replace("\\\\", "").replace('\\"', "")
    assert literal[0] == literal[-1] == '"' and '"' not in inner and "\n" not in inner


@given(TEXT, TEXT)
def test_part_of_an_author_name_is_found_in_it(before, part):
    names = AUTHOR_SEPARATOR.join(map(clean_author_name, [before + part, "Other"]))
    assert "%" not in names and '"' not in names and "\\" not in names
    if simplify_name(part) and simplify_name(part) in simplify_name(before + part):
        assert clean_author_name(part) in names


@given(TEXT, st.integers(0, 40))
def test_truncate_cuts_between_characters(text, most):
    assert text.startswith(truncate(text, most)) and len(truncate(text, most).encode()) <= most
