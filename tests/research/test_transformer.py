"""The transformer baseline: attention within trees only, truncation, training."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.formulas import Vocabulary
from eqkin.formulas.forest import compute_preorder
from eqkin.formulas.mathml import to_node
from eqkin.learning.config import RECIPES
from eqkin.learning.sampling import TripletSampler
from research.training import train_module
from research.transformer import (
    TransformerNetwork,
    TransformerObjective,
    TransformerShape,
    TreeSequences,
    embed_sequences,
    truncate,
)
from tests.formulas.strategies import build
from tests.learning.corpora import FORESTS, corpus_of, some_trees

CPU = torch.device("cpu")
SMALL = TransformerShape(layers=2, width=16, inner=24, heads=2, longest=8, dimensions=4)


def network(shape=SMALL):
    torch.manual_seed(3)
    made = TransformerNetwork(shape)
    for parameter in made.parameters():  # of an ordinary size, so that attention matters
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def slow_embedding(made, forest, vocabulary):
    """The vector of a single tree by the formulas."""
    trees = TreeSequences(forest, vocabulary, made.shape.longest, CPU)
    x = trees.trees.build_features(trees.make_batch(np.arange(1)).batch, torch.float32)
    x = made.input_norm(made.input(x) + made.position.weight[torch.from_numpy(truncate(forest, made.shape.longest)[1])])
    for layer in made.layers:
        parts = layer.attention_input(layer.attention_norm(x)).unflatten(1, (3, made.shape.heads, -1))
        heads = []
        for head in range(made.shape.heads):
            query, key, value = parts[:, :, head].unbind(1)
            heads.append(torch.softmax(query @ key.T / query.shape[1] ** 0.5, dim=1) @ value)
        x = x + layer.attention_output(torch.cat(heads, dim=1))
        x = x + layer.output(torch.nn.functional.gelu(layer.inner(layer.inner_norm(x))))
    return made.output(made.output_norm(x).mean(0))


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("research.transformer._EMBEDDED_NODES", {"cpu": 20})  # several batches
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


def test_transformer_learns_which_equations_are_in_one_paper():
    corpus = papers_with_letters_of_their_own(8)
    settings = {"contexts": "paper", "triplets": "2000", "batch": "16", "learning_rate": "3e-3", "transpositions": "0"}
    recipe = RECIPES["paper"].override(settings)
    trees = TreeSequences(corpus.forest, Vocabulary.learn([corpus.forest]), SMALL.longest, CPU)
    sampler = TripletSampler(corpus, kinds=("paper",), seed=0, device=CPU)
    objective = TransformerObjective(recipe, SMALL, trees, sampler)
    before = ranking(corpus, embed_sequences(objective.network.eval(), trees))
    train_module(objective, objective.compute_loss, recipe.optimizer)
    assert before < 0.8
    assert ranking(corpus, embed_sequences(objective.network.eval(), trees)) > 0.95


def test_transformer_renames_symbols_if_the_recipe_says_so():
    corpus = papers_with_letters_of_their_own(4)
    trees = TreeSequences(corpus.forest, Vocabulary.learn([corpus.forest]), SMALL.longest, CPU)
    sampler = TripletSampler(corpus, kinds=("paper",), seed=0, device=CPU)
    losses = []
    for flips in ("0", "32"):
        recipe = RECIPES["paper"].override({"batch": "8", "transpositions": flips})
        losses.append(TransformerObjective(recipe, SMALL, trees, sampler).compute_loss(0).item())
    assert losses[0] != losses[1]
