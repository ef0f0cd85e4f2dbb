"""Bags of words, tree pairs and runs of tokens: what they see, what they do not, and their weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.systems.sparse import (
    BagOfWords,
    LogBagOfWords,
    OperatorTfIdf,
    TfIdfLatex,
    TfIdfTree,
    TreePairs,
    list_ngrams,
    serialize,
    tokenize_latex,
)
from eqkin.formulas.hashing import combine_hashes, hash_strings
from eqkin.formulas.normal import label_nodes
from eqkin.formulas.vocabulary import Vocabulary
from tests.evaluation.formulas import formulas, list_lines
from tests.learning.corpora import corpus_of
from tests.trees.strategies import FORESTS, build

LATEX = [
    r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    r"P(a|b) = \frac{P(b|a) P(a)}{P(b)}",
    r"e^{i\pi} + 1 = 0",
    r"a^2 + b^2 = c^2",
    r"\sum_{i=1}^{n} x_i^2 + x_i",
    r"\mathbf{x}^\top A \mathbf{x} \geq 0",
]
TREE_SYSTEMS = [LogBagOfWords, OperatorTfIdf, TreePairs, TfIdfTree]


@pytest.fixture(scope="module")
def some():
    return formulas(*LATEX)


@pytest.mark.parametrize("system", [*TREE_SYSTEMS, TfIdfLatex])
def test_sparse_system_ranks_formula_itself_first(system, some):
    scores = system().rank(some, some)
    assert scores.shape == (6, 6)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores.diagonal(), 1, atol=1e-5)
    assert (scores.argmax(axis=1) == np.arange(6)).all()


@pytest.mark.parametrize("system", [*TREE_SYSTEMS, TfIdfLatex])
def test_sparse_similarity_of_disjoint_formulas_is_0(system):
    x, one = ("mi", "", "x", []), ("mn", "", "1", [])
    scores = system().rank(FormulaSet(build([x]), ["x"]), FormulaSet(build([one, x]), ["1", "x"]))
    assert scores[0].tolist() == pytest.approx([0, 1], abs=1e-6)


def test_operator_terms_of_equivalent_notations_are_equal():
    one, other = formulas(r"\frac{a}{b} \ge \sqrt{c}"), formulas(r"c^{1/2} \leq a/b")
    assert OperatorTfIdf().rank(one, other)[0, 0] == pytest.approx(1, abs=1e-5)
    assert TreePairs().rank(one, other)[0, 0] < 0.5


def test_order_matters_to_pairs_and_ngrams_but_not_to_bags():
    given_, turned = formulas("ab+c"), formulas("c+ba")
    assert LogBagOfWords().rank(given_, turned)[0, 0] == pytest.approx(1, abs=1e-6)
    for system in (TreePairs, TfIdfTree, TfIdfLatex):
        assert system().rank(given_, turned)[0, 0] < 0.9


def test_tree_pairs_depend_on_the_parent():
    """The same labels in depth-first order, another tree."""
    outside = build([("mrow", "", "", [("msqrt", "", "", [("mi", "", "x", [])]), ("mi", "", "y", [])])])
    inside = build([("mrow", "", "", [("msqrt", "", "", [("mi", "", "x", []), ("mi", "", "y", [])])])])
    assert list_lines(serialize(outside)) == list_lines(serialize(inside))
    one, other = FormulaSet(outside), FormulaSet(inside)
    assert TfIdfTree().rank(one, other)[0, 0] == pytest.approx(1, abs=1e-6)
    assert TreePairs().rank(one, other)[0, 0] < 0.9


def test_renamed_symbol_lowers_similarity_less_than_another_formula(some):
    for system in (*TREE_SYSTEMS, TfIdfLatex):
        scores = system().rank(some.select(np.array([0])), some)[0]
        assert scores[1] < 0.999
        assert scores[1] == np.sort(scores)[-2]


def test_rare_labels_weigh_more_than_frequent_ones():
    collection = formulas("x+1", "x+2", "x+3", r"\zeta+4")
    scores = LogBagOfWords().rank(formulas(r"x \zeta"), collection)[0]
    assert scores.argmax() == 3


@given(FORESTS)
def test_tree_pairs_equal_explicit_walk(trees):
    forest = build(trees)
    counts = TreePairs().count_terms(FormulaSet(forest))
    assert counts.shape == (len(trees), 1 << TreePairs.bits)
    for row, tree in enumerate(trees):
        pairs, stack = [("above", None, tree[0], tree[2])], [tree]
        while stack:
            node = stack.pop()
            children = node[3]
            stack.extend(children)
            pairs += [("above", (node[0], node[2]), child[0], child[2]) for child in children]
            pairs += [
                ("beside", (left[0], left[2]), right[0], right[2])
                for left, right in zip(children[:-1], children[1:], strict=True)
            ]
        found = np.sort(counts[row].data)
        assert found.tolist() == sorted(pairs.count(pair) for pair in set(pairs))


@given(st.lists(st.lists(st.sampled_from(["a", "b", r"\frac", "12", "+"]), min_size=1, max_size=8), min_size=2))
def test_log_tfidf_weights_equal_scikit_learn(lines):
    """The same tokens through its own vectoriser, with a dictionary in place of hashes."""
    given_ = [" ".join(line) for line in lines]
    theirs = (
        pytest.importorskip("sklearn.feature_extraction.text")
        .TfidfVectorizer(token_pattern=r"\S+", lowercase=False, ngram_range=(1, 3), sublinear_tf=True)
        .fit_transform(given_)
    )
    given_formulas = FormulaSet(build([("mi", "", "x", [])] * len(lines)), given_)
    ours = TfIdfLatex().rank(given_formulas, given_formulas)
    np.testing.assert_allclose(ours, (theirs @ theirs.T).toarray(), atol=1e-5)


def test_queries_are_weighted_by_the_collection(some):
    system, queries = LogBagOfWords(), some.select(np.array([0, 1]))
    np.testing.assert_allclose(system.rank(queries, some), system.rank(some, some)[:2], atol=1e-6)
    assert np.abs(system.rank(some, queries)[:2].T - system.rank(queries, some)[:, :2]).max() > 0.01


def test_tokenize_latex_splits_commands_numbers_and_characters():
    tokens = tokenize_latex([r"\frac{12}{x_1}\, \{a\}", "", "ab"])
    assert [tokens.names[token] for token in tokens.token] == [
        r"\frac", "12", "x", "_", "1", r"\,", r"\{", "a", r"\}", "a", "b"
    ]  # fmt: skip
    assert tokens.offsets.tolist() == [0, 9, 9, 11]


def test_ngrams_do_not_cross_formulas():
    rows, codes = list_ngrams(tokenize_latex(["ab", "c"]))
    assert np.bincount(rows).tolist() == [3, 1] and len(set(codes.tolist())) == 4


def test_tfidf_latex_rejects_formulas_without_latex():
    with pytest.raises(BadInput, match="trees only"):
        TfIdfLatex().rank(FormulaSet(build([("mi", "", "x", [])])), FormulaSet(build([("mi", "", "x", [])])))


@pytest.mark.parametrize("system", TREE_SYSTEMS)
def test_sparse_systems_accept_empty_sets(system, some):
    none = FormulaSet(build([]))
    assert system().rank(some, none).shape == (6, 0)
    assert system().rank(none, some).shape == (0, 6)


def test_combined_hashes_depend_on_order_and_hardly_collide():
    names = hash_strings([str(i) for i in range(500)])
    first, second = np.repeat(names, 500), np.tile(names, 500)
    codes = combine_hashes(first, second)
    assert len(np.unique(codes)) == 250_000
    columns = np.bincount((codes >> np.uint64(46)).astype(np.int64), minlength=1 << 18)
    assert columns.max() < 15  # 250,000 into 2^18 columns at random


@given(FORESTS)
def test_bag_of_words_is_sum_of_node_features(tmp_path_factory, trees):
    forest = build(trees)
    corpus = corpus_of([[6], [4]])
    system = BagOfWords()
    system.fit(corpus, tmp_path_factory.mktemp("bag"))
    nodes = Vocabulary.learn([corpus.forest]).extract_features(forest)
    expected = [
        nodes[start:end].sum(axis=0) for start, end in zip(forest.offsets[:-1], forest.offsets[1:], strict=True)
    ]
    found = system.encode(FormulaSet(forest))
    assert found.shape == (len(trees), 256)
    assert np.array_equal(found, np.array(expected).reshape(-1, 256))


def test_bag_of_words_keeps_its_vocabulary(tmp_path, some):
    first = BagOfWords()
    with pytest.raises(BadInput, match="call fit first"):
        first.encode(some)
    first.fit(corpus_of([[6], [4]]), tmp_path)
    again = BagOfWords()
    again.fit(corpus_of([[1]]), tmp_path)  # what is there is loaded, whatever the corpus
    assert np.array_equal(first.encode(some), again.encode(some))
    (tmp_path / "vocabulary.json").write_text("{")
    with pytest.raises(CorruptData, match="not a vocabulary"):
        BagOfWords().fit(corpus_of([[1]]), tmp_path)


def test_labels_have_the_same_column_in_every_forest():
    alone, among = formulas("x"), formulas("b+a", "x")
    assert label_nodes(alone.forest)[0].index("mi:x") != label_nodes(among.forest)[0].index("mi:x")
    assert LogBagOfWords().rank(alone, among)[0].argmax() == 1
    assert LogBagOfWords().rank(alone, among)[0, 1] == pytest.approx(1, abs=1e-6)


def test_serialize_writes_symbols_with_their_kinds():
    sequences = serialize(formulas(r"\frac{a}{2} + \mathbf{x}", r"\text{if and only if}").forest)
    first, second = list_lines(sequences)
    assert first.split() == ["mrow", "mfrac", "mi:a", "mn:2", "mo:+", "mi:x:bold"]
    assert second == "mrow mtext:if␣and␣only␣if"


def test_serialize_distinguishes_bold_but_not_upright_letters():
    upright, slanted, bold = list_lines(serialize(formulas(r"\mathrm{x}y", "xy", r"\mathbf{x}y").forest))
    assert upright == slanted != bold
