"""The transformer baseline: attention within trees alone, cutting, learning, resuming, files."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.systems import transformer as module
from eqkin.evaluation.systems.base import FormulaSet
from eqkin.evaluation.systems.transformer import Transformer, TransformerTraining
from eqkin.evaluation.systems.transformer_batches import TreeSet, pad, truncate, unpad
from eqkin.evaluation.systems.transformer_network import TransformerNetwork, TransformerShape
from eqkin.training.trainer import train_module
from eqkin.trees import Vocabulary
from eqkin.trees.forest import compute_preorder
from eqkin.trees.mathml import to_node
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
    """The vector of a single tree as the formulas are written, without padding or groups."""
    trees = TreeSet(forest, vocabulary, made.shape.longest, CPU)
    x = trees.resident.build_features(trees.make_batch(np.arange(1)).batch, torch.float32)
    x = made.input_norm(made.input(x) + made.position.weight[torch.from_numpy(truncate(forest, made.shape.longest)[1])])
    for layer in made.layers:
        asking = layer.attend(layer.attention_norm(x)).unflatten(1, (3, layer.heads, -1))
        heads = []
        for head in range(layer.heads):
            query, key, value = asking[:, :, head].unbind(1)
            heads.append(torch.softmax(query @ key.T / query.shape[1] ** 0.5, dim=1) @ value)
        x = x + layer.attended(torch.cat(heads, dim=1))
        x = x + layer.outer(torch.nn.functional.gelu(layer.inner(layer.inner_norm(x))))
    return made.output(made.norm(x).mean(0))


@settings(max_examples=25, deadline=None)
@given(FORESTS)
def test_trees_in_a_batch_get_the_vectors_of_the_formulas(forest):
    vocabulary = Vocabulary.learn([forest])
    made = network()
    vectors = module.embed_trees(made, TreeSet(forest, vocabulary, SMALL.longest, CPU))
    for tree in range(len(forest)):
        with torch.no_grad():
            alone = slow_embedding(made, forest.select([tree]), vocabulary).numpy()
        np.testing.assert_allclose(vectors[tree], alone, atol=1e-4)


def test_a_batch_gives_vectors_in_the_order_asked_for():
    forest = some_trees(30)
    trees = TreeSet(forest, Vocabulary.learn([forest]), 8, CPU)
    made = network()
    everything = module.embed_trees(made, trees)
    asked = np.array([7, 3, 3, 29, 0, 11, 4])
    some = trees.make_batch(asked)
    with torch.no_grad():
        vectors = made(trees.resident.build_features(some.batch, torch.float32), some)
    np.testing.assert_allclose(vectors.numpy(), everything[asked], atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(FORESTS, st.integers(1, 9))
def test_cutting_keeps_the_first_nodes_of_a_tree(forest, longest):
    shorter, rank = truncate(forest, longest)
    shorter.validate()
    assert np.array_equal(rank, compute_preorder(shorter))
    for tree in range(len(forest)):
        assert written(to_node(shorter, tree)) == written(to_node(forest, tree))[:longest]


def written(node):
    return [(node.tag, node.text), *(item for child in node.children for item in written(child))]


def test_padding_and_its_way_back_have_the_right_gradients():
    forest = some_trees(12)
    group = TreeSet(forest, Vocabulary.learn([forest]), 8, CPU).make_batch(np.arange(12)).groups[1]
    rows = torch.randn(len(group.place), 3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(unpad(pad(rows, group), group), rows)
    assert torch.autograd.gradcheck(lambda x: unpad(pad(x, group).square() + 1, group), [rows])


def test_parts_have_every_tree_once_and_no_more_than_the_room():
    trees = TreeSet(some_trees(50), Vocabulary.learn([some_trees(50)]), 8, CPU)
    parts = trees.split_batches(100)
    assert sorted(np.concatenate(parts).tolist()) == list(range(50))
    assert max(len(part) for part in parts) == 100 // 16


def test_the_papers_shape_has_about_six_million_weights():
    assert 5e6 < sum(weight.numel() for weight in TransformerNetwork(TransformerShape()).parameters()) < 6.5e6


def papers_with_letters_of_their_own(count):
    """A corpus whose papers can be told apart: each uses a letter of its own, the structure says nothing."""
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


def test_it_learns_which_equations_stand_in_one_paper(tmp_path):
    corpus = papers_with_letters_of_their_own(8)
    formulas = FormulaSet(corpus.forest)
    before = Transformer(SMALL, TransformerTraining(triplets=1, batch=1, learning_rate=1e-9), device="cpu")
    before.fit(corpus, tmp_path / "before")
    after = Transformer(SMALL, TransformerTraining(triplets=2_000, batch=16, learning_rate=3e-3), device="cpu")
    after.fit(corpus, tmp_path / "after")
    assert ranking(corpus, before.encode(formulas)) < 0.8
    assert ranking(corpus, after.encode(formulas)) > 0.95


def test_what_was_learned_is_loaded_and_leaves_no_checkpoint(tmp_path):
    corpus = corpus_of([[4], [4], [4]])
    first = Transformer(SMALL, LESSON, device="cpu")
    first.fit(corpus, tmp_path)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert set(files) == {"transformer.json", "weights.safetensors", "vocabulary.json"}
    second = Transformer(SMALL, LESSON, device="cpu")
    second.fit(corpus, tmp_path)
    assert files == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    formulas = FormulaSet(corpus.forest)
    assert np.array_equal(first.encode(formulas), second.encode(formulas))


def test_a_descent_that_was_stopped_ends_where_it_would_have(tmp_path, monkeypatch):
    corpus = corpus_of([[4], [4], [4]])
    whole = Transformer(SMALL, LESSON, device="cpu")
    whole.fit(corpus, tmp_path / "whole")
    monkeypatch.setattr(module, "train_module", partial(train_module, save_seconds=0.0, steps_ahead=1))

    def stop(step, *_):
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Transformer(SMALL, LESSON, device="cpu", progress=stop).fit(corpus, tmp_path / "parts")
    assert (tmp_path / "parts" / "checkpoint.json").exists()
    taken = []
    parts = Transformer(SMALL, LESSON, device="cpu", progress=lambda step, *_: taken.append(step))
    parts.fit(corpus, tmp_path / "parts")
    assert taken[0] == 4
    formulas = FormulaSet(corpus.forest)
    np.testing.assert_array_equal(parts.encode(formulas), whole.encode(formulas))


def test_it_cannot_encode_before_it_learned():
    with pytest.raises(BadInput, match="call fit first"):
        Transformer(SMALL, device="cpu").encode(FormulaSet(some_trees(3)))


def test_damaged_weights_are_refused(tmp_path):
    corpus = corpus_of([[4], [4]])
    Transformer(SMALL, LESSON, device="cpu").fit(corpus, tmp_path)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    with pytest.raises(CorruptData, match="does not match its hash"):
        Transformer(SMALL, LESSON, device="cpu").fit(corpus, tmp_path)
