"""The word loss: its tables, its formula, word dropout, and equations without words."""

# ruff: noqa: E402
from math import log

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.learning.losses import WordLoss
from eqkin.learning.text import ContextWords, WordTables

CPU = torch.device("cpu")
ROWS = [[0, 1], [0, 2], [], [0, 1, 2, 3], [3]]
VOCABULARY = 5  # the last word does not occur, as can happen in a part of a corpus
APART = [list(range(8 * i, 8 * i + 8)) for i in range(30)]  # no word twice


def words(rows: list[list[int]], vocabulary: int = VOCABULARY) -> ContextWords:
    flat = np.array([word for row in rows for word in row], np.uint16)
    return ContextWords([f"word{i}" for i in range(vocabulary)], np.cumsum([0, *map(len, rows)]), flat)


def rarity(word: int) -> float:
    return log(len(ROWS) / sum(word in row for row in ROWS))


def unit(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=1)


def step(number: int = 0) -> torch.Tensor:
    return torch.tensor(number)


def by_formula(vectors: torch.Tensor, weighed: list[list[tuple[torch.Tensor, float]]], papers: list[int]) -> float:
    """Compute the loss of equations, given the vectors and weights of their words."""
    texts = torch.zeros_like(vectors)
    for text, row in zip(texts, weighed, strict=True):
        for vector, weight in row:
            text += weight * vector
    texts = torch.nn.functional.normalize(texts, dim=1)
    there = [i for i, row in enumerate(weighed) if row]
    expected = 0.0
    for one, other in ((vectors, texts), (texts, vectors)):
        for i in there:
            others = [j for j in there if j == i or papers[j] != papers[i]]
            logits = other[others] @ one[i] / 0.07
            expected -= logits.log_softmax(0)[others.index(i)].item() / len(there) / 2
    return expected


def kept(made: WordLoss, number: int) -> torch.Tensor:
    """Return which words of `APART` have a gradient in a step, (30, 8)."""
    vectors = unit(30, made.vectors.shape[1])
    loss = made(vectors, torch.arange(30), torch.eye(30, dtype=torch.bool), step(number))
    (gradient,) = torch.autograd.grad(loss, [made.vectors])
    assert gradient.isfinite().all()
    return gradient.any(1).view(30, 8)


def test_word_tables_contain_words_and_idf_weights():
    tables = WordTables(words(ROWS), CPU)
    assert tables.vocabulary == 5
    for row, held, weight in zip(ROWS, tables.word.tolist(), tables.weight.tolist(), strict=True):
        assert held[: len(row)] == row
        assert weight[: len(row)] == pytest.approx([rarity(word) for word in row], abs=1e-3)
        assert not any(weight[len(row) :])


def test_word_tables_keep_the_rarest_words():
    assert WordTables(words(ROWS), CPU, max_words=2).word[3].tolist() == [
        1,
        2,
    ]  # 0 is the most frequent, 3 as frequent as the two


def test_word_loss_matches_its_formula() -> None:
    torch.manual_seed(0)
    made = WordLoss(WordTables(words(ROWS), CPU), 6, dropout=0.0)
    trees, papers = torch.tensor([3, 0, 2, 1, 4, 1]), [0, 1, 2, 0, 4, 5]
    vectors, own = unit(6, 6), made.vectors.detach()
    expected = by_formula(vectors, [[(own[w], rarity(w)) for w in ROWS[tree]] for tree in trees.tolist()], papers)
    paper = torch.tensor(papers)
    assert made(vectors, trees, paper[:, None] == paper, step()).item() == pytest.approx(expected, rel=2e-3)


def test_word_dropout_depends_only_on_step_and_seed() -> None:
    tables = WordTables(words(APART, 240), CPU)
    first, again, other = (kept(WordLoss(tables, 6, seed=seed), 7) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize(("share", "tree"), [(0.5, 2), (1.0, 3)], ids=["there are none", "all are left out"])
def test_word_loss_is_zero_without_words(share: float, tree: int) -> None:
    made = WordLoss(WordTables(words(ROWS), CPU), 4, dropout=share)
    vectors = unit(3, 4).requires_grad_()
    loss = made(vectors, torch.tensor([tree] * 3), torch.eye(3, dtype=torch.bool), step())
    loss.backward()
    assert loss.item() == 0
    assert vectors.grad is not None and vectors.grad.isfinite().all() and not vectors.grad.any()
    assert made.vectors.grad is not None and made.vectors.grad.isfinite().all() and not made.vectors.grad.any()
