"""Notation as a teacher: equations with other notations of themselves (`mathml.notations`), each a small paper.

Sampling draws them like any other paper, so that notations of one equation are partners of each other, and the
equations of other papers are their negatives.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from eqkin.mathml.notations import NotationWriter
from eqkin.training.config import NAMES, NOTATIONS, Recipe
from eqkin.training.data import Corpus
from eqkin.training.names import build_names
from eqkin.trees.forest import ForestBuilder

_MIN_NODES, _MAX_NODES = 8, 90  # of an equation worth rewriting
_BLOCK_TREES = 2_000  # rewritten at a time


def build_notations(corpus: Corpus, recipe: Recipe) -> Corpus:
    """Rewrite some equations of a corpus; return a corpus of one paper per equation, which comes first in it.

    Args:
        corpus: The equations. Those of small papers are as likely as those of large ones.
        recipe: Says how many equations to rewrite (`rewritten`), how often (`notations`), and what share of the
            notations to rename (`notations_renamed`) and to paraphrase (`notations_paraphrased`).
    """
    rng = np.random.default_rng(recipe.seed)
    sizes = corpus.forest.sizes
    candidates = np.flatnonzero((sizes >= _MIN_NODES) & (sizes <= _MAX_NODES))
    in_paper = np.bincount(corpus.paper[candidates], minlength=len(corpus.papers))[corpus.paper[candidates]]
    keys = rng.random(len(candidates)) * np.sqrt(in_paper)  # smaller for equations of small papers
    chosen = np.sort(candidates[np.argsort(keys, kind="stable")[: recipe.rewritten]])
    builder, owner, writer = ForestBuilder(), [np.zeros(0, np.int64)], NotationWriter()
    for first in range(0, len(chosen), _BLOCK_TREES):
        trees = chosen[first : first + _BLOCK_TREES]
        originals = corpus.forest.select(trees)
        notations, source = writer.rewrite(
            originals,
            count=recipe.notations,
            seed=recipe.seed + first,
            renamed=recipe.notations_renamed,
            paraphrased=recipe.notations_paraphrased,
        )
        rewritten = np.unique(source)
        both = ForestBuilder()
        both.add_forest(originals.select(rewritten))
        both.add_forest(notations)
        order = np.argsort(np.concatenate([rewritten, source]), kind="stable")  # each original before its notations
        builder.add_forest(both.build().select(order))
        owner.append(trees[np.concatenate([rewritten, source])[order]])
    equations, first_trees, paper = np.unique(np.concatenate(owner), return_index=True, return_inverse=True)
    papers = [f"notations:{corpus.get_equation_id(int(tree))}" for tree in equations]
    number = paper.astype(np.int32)
    return Corpus(
        forest=builder.build().canonicalise(),
        section=number,
        paper=number,
        papers=papers,
        works=[NOTATIONS] * len(papers),
        citations=np.zeros((0, 2), np.int32),
        numbers=(np.arange(len(paper)) - first_trees[paper]).astype(np.int32),
    )


def add_related(corpus: Corpus, recipe: Recipe, folder: Path) -> Corpus:
    """Return a corpus with notations of its equations and papers of named ones, if the recipe asks for them.

    The folder keeps both for the next run with the same equations and settings.
    """
    whole = corpus
    shares = recipe.notations_renamed, recipe.notations_paraphrased
    settings = (corpus.digest, recipe.notations, recipe.rewritten, *shares, recipe.seed)
    for kind, is_wanted in ((NOTATIONS, recipe.notations > 0), (NAMES, recipe.names_share > 0)):
        if is_wanted:
            path = folder / f"{kind}-{hashlib.sha256(repr(settings).encode()).hexdigest()[:12]}.zst"
            if not path.exists():
                related = build_notations(corpus, recipe) if kind == NOTATIONS else build_names(corpus, recipe.seed)
                related.save(path)
            whole = whole.concatenate(Corpus.load(path))
    return whole
