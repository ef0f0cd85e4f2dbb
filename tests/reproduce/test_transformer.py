"""The transformer baseline: attention within trees only, truncation, training, resuming, files."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.formulas import FormulaSet
from eqkin.trees import Vocabulary
from eqkin.trees.forest import compute_preorder
from eqkin.trees.mathml import to_node
from reproduce import fits
from reproduce.transformer import (
    Transformer,
    TransformerNetwork,
    TransformerShape,
    TransformerTraining,
    TreeSequences,
    embed_sequences,
    truncate,
)
from tests.training.corpora import FORESTS, corpus_of, some_trees
from tests.trees.strategies import build

CPU = torch.device("cpu")
SMALL = TransformerShape(layers=2, width=16, inner=24, heads=2, longest=8, dimensions=4)
LESSON = TransformerTraining(triplets=48, batch=8, learning_rate=1e-2)


def network(shape=SMALL):
    torch.manual_seed(3)
    made = TransformerNetwork(shape)
    for parameter in made.parameters():  # of an ordinary size, so that attention matters
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def slow_embedding(made, forest, vocabulary):
    """The vector of a single tree by the formulas, without padding or groups."""
    trees = TreeSequences(forest, vocabulary, made.shape.longest, CPU)
    x = trees.trees.build_features(trees.make_batch(np.arange(1)).batch, torch.float32)
    x = made.input_norm(made.input(x) + made.position.weight[torch.from_numpy(truncate(forest, made.shape.longest)[1])])
    for layer in made.layers.layers:
        attention = layer.self_attn
        projected = torch.nn.functional.linear(layer.norm1(x), attention.in_proj_weight, attention.in_proj_bias)
        parts = projected.unflatten(1, (3, attention.num_heads, -1))
        heads = []
        for head in range(attention.num_heads):
            query, key, value = parts[:, :, head].unbind(1)
            heads.append(torch.softmax(query @ key.T / query.shape[1] ** 0.5, dim=1) @ value)
        x = x + attention.out_proj(torch.cat(heads, dim=1))
        x = x + layer.linear2(torch.nn.functional.gelu(layer.linear1(layer.norm2(x))))
    return made.output(made.layers.norm(x).mean(0))


@settings(max_examples=25, deadline=None)
@given(FORESTS)
def test_transformer_batch_equals_formulas_of_single_trees(forest):
    vocabulary = Vocabulary.learn([forest])
    made = network()
    vectors = embed_sequences(made, TreeSequences(forest, vocabulary, SMALL.longest, CPU))
    for tree in range(len(forest)):
        with torch.no_grad():
            alone = slow_embedding(made, forest.select([tree]), vocabulary).numpy()
        np.testing.assert_allclose(vectors[tree], alone, atol=1e-4)


def test_transformer_batch_keeps_requested_order():
    forest = some_trees(30)
    trees = TreeSequences(forest, Vocabulary.learn([forest]), 8, CPU)
    made = network()
    everything = embed_sequences(made, trees)
    asked = np.array([7, 3, 3, 29, 0, 11, 4])
    some = trees.make_batch(asked)
    with torch.no_grad():
        vectors = made(trees.trees.build_features(some.batch, torch.float32), some)
    np.testing.assert_allclose(vectors.numpy(), everything[asked], atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(FORESTS, st.integers(1, 9))
def test_truncate_keeps_first_nodes_in_depth_first_order(forest, longest):
    shorter, rank = truncate(forest, longest)
    shorter.validate()
    assert np.array_equal(rank, compute_preorder(shorter))
    for tree in range(len(forest)):
        assert written(to_node(shorter, tree)) == written(to_node(forest, tree))[:longest]


def written(node):
    return [(node.tag, node.text), *(item for child in node.children for item in written(child))]


def test_split_batches_has_every_tree_once_within_limit():
    trees = TreeSequences(some_trees(50), Vocabulary.learn([some_trees(50)]), 8, CPU)
    parts = trees.split_batches(100)
    assert sorted(np.concatenate(parts).tolist()) == list(range(50))
    assert max(len(part) for part in parts) == 100 // 16


def test_transformer_of_the_paper_has_about_six_million_weights():
    assert 5e6 < sum(weight.numel() for weight in TransformerNetwork(TransformerShape()).parameters()) < 6.5e6


def papers_with_letters_of_their_own(count):
    """A corpus whose papers can be distinguished: each uses its own letter, and the structure says nothing."""
    corpus = corpus_of([[6]] * count)
    trees = []
    for paper in range(count):
        letter = ("mi", "", "abcdefghijklmnopqrstuvwxyz"[paper], [])
        trees += [("mrow", "", "", [letter] * (1 + i % 3) + [("mn", "", str(i), [])]) for i in range(6)]
    corpus.__dict__["forest"] = build(trees).canonicalise()
    return corpus


def ranking(corpus, vectors):
    """Share of pairs of one paper that are nearer than the mean other pair."""
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = vectors @ vectors.T
    same = corpus.paper[:, None] == corpus.paper[None, :]
    other = ~np.eye(len(near), dtype=bool)
    return float((near[same & other][:, None] > near[~same][None, :]).mean())


def test_transformer_learns_which_equations_are_in_one_paper(tmp_path):
    corpus = papers_with_letters_of_their_own(8)
    formulas = FormulaSet(corpus.forest)
    before = Transformer(SMALL, TransformerTraining(triplets=1, batch=1, learning_rate=1e-9), device="cpu")
    before.fit(corpus, tmp_path / "before")
    after = Transformer(SMALL, TransformerTraining(triplets=2_000, batch=16, learning_rate=3e-3), device="cpu")
    after.fit(corpus, tmp_path / "after")
    assert ranking(corpus, before.encode(formulas)) < 0.8
    assert ranking(corpus, after.encode(formulas)) > 0.95


def test_transformer_loads_finished_fit_and_leaves_no_checkpoint(tmp_path):
    corpus = corpus_of([[4], [4], [4]])
    first = Transformer(SMALL, LESSON, device="cpu")
    first.fit(corpus, tmp_path)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert set(files) == {"transformer.json", "weights.safetensors"}
    second = Transformer(SMALL, LESSON, device="cpu")
    second.fit(corpus, tmp_path)
    assert files == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    formulas = FormulaSet(corpus.forest)
    assert np.array_equal(first.encode(formulas), second.encode(formulas))


def test_transformer_resumes_interrupted_fit_exactly(tmp_path, monkeypatch):
    corpus = corpus_of([[4], [4], [4]])
    whole = Transformer(SMALL, LESSON, device="cpu")
    whole.fit(corpus, tmp_path / "whole")
    monkeypatch.setattr(fits, "train_module", partial(fits.train_module, steps_ahead=1))

    def stop(message):
        if "step 4 of" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Transformer(SMALL, LESSON, device="cpu", log=stop, save_seconds=0.0).fit(corpus, tmp_path / "parts")
    assert (tmp_path / "parts" / "checkpoint.json").exists()
    logged = []
    parts = Transformer(SMALL, LESSON, device="cpu", log=logged.append, save_seconds=0.0)
    parts.fit(corpus, tmp_path / "parts")
    assert logged[0].startswith("Transformer: step 4 of")
    formulas = FormulaSet(corpus.forest)
    np.testing.assert_array_equal(parts.encode(formulas), whole.encode(formulas))


def test_transformer_rejects_encoding_before_fit():
    with pytest.raises(BadInput, match="call fit first"):
        Transformer(SMALL, device="cpu").encode(FormulaSet(some_trees(3)))


def test_transformer_rejects_damaged_weights(tmp_path):
    corpus = corpus_of([[4], [4]])
    Transformer(SMALL, LESSON, device="cpu").fit(corpus, tmp_path)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    with pytest.raises(CorruptData, match="do not match their hash"):
        Transformer(SMALL, LESSON, device="cpu").fit(corpus, tmp_path)
