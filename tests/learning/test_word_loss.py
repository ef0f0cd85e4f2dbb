"""Words as a teacher: the tables, the loss against its formula, and equations without words."""

# ruff: noqa: E402
from math import log

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.learning import word_loss
from eqkin.learning.corpus_words import ContextWords
from eqkin.learning.word_loss import WordLoss, WordTables

CPU = torch.device("cpu")
ROWS = [[0, 1], [0, 2], [], [0, 1, 2, 3], [3]]
NEVER = 4  # a word of the vocabulary that stands nowhere, as may be in a part of a corpus


def words(rows: list[list[int]]) -> ContextWords:
    flat = np.array([word for row in rows for word in row], np.uint16)
    return ContextWords([f"word{i}" for i in range(5)], np.cumsum([0, *map(len, rows)]), flat)


def rarity(word: int) -> float:
    return log(len(ROWS) / sum(word in row for row in ROWS))


def unit(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=1)


def test_tables_hold_the_words_of_each_equation_and_how_rare_they_are():
    tables = WordTables(words(ROWS), CPU)
    assert tables.vocabulary == 5
    for row, held, weight in zip(ROWS, tables.word.tolist(), tables.weight.tolist(), strict=True):
        assert held[: len(row)] == row
        assert weight[: len(row)] == pytest.approx([rarity(word) for word in row], abs=1e-3)
        assert not any(weight[len(row) :])


def test_of_too_many_words_the_rarest_are_kept(monkeypatch):
    monkeypatch.setattr(word_loss, "WORDS", 2)
    assert WordTables(words(ROWS), CPU).word[3].tolist() == [1, 2]  # 0 is the most frequent, 3 as frequent as the two


def test_equations_find_their_words_and_words_their_equation():
    torch.manual_seed(0)
    made = WordLoss(WordTables(words(ROWS), CPU), 6)
    trees, papers = torch.tensor([3, 0, 2, 1, 4, 1]), [0, 1, 2, 0, 4, 5]
    vectors = unit(6, 6)
    texts = torch.zeros(6, 6)
    for i, tree in enumerate(trees.tolist()):
        for word in ROWS[tree]:
            texts[i] += rarity(word) * made.vectors[word].detach()
    texts = torch.nn.functional.normalize(texts, dim=1)
    there = [i for i, tree in enumerate(trees.tolist()) if ROWS[tree]]
    expected = 0.0
    for one, other in ((vectors, texts), (texts, vectors)):
        for i in there:
            others = [j for j in there if j == i or papers[j] != papers[i]]
            logits = other[others] @ one[i] / 0.07
            expected -= logits.log_softmax(0)[others.index(i)].item() / len(there) / 2
    paper = torch.tensor(papers)
    assert made(vectors, trees, paper[:, None] == paper).item() == pytest.approx(expected, rel=2e-3)


def test_without_any_words_nothing_is_lost_or_learned():
    made = WordLoss(WordTables(words(ROWS), CPU), 4)
    vectors = unit(3, 4).requires_grad_()
    loss = made(vectors, torch.tensor([2, 2, 2]), torch.eye(3, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert vectors.grad is not None and vectors.grad.isfinite().all() and not vectors.grad.any()
    assert made.vectors.grad is not None and made.vectors.grad.isfinite().all()


def test_cosines_are_scaled_by_no_more_than_a_hundred():
    made = WordLoss(WordTables(words(ROWS), CPU), 4)
    vectors, trees = unit(3, 4), torch.tensor([0, 1, 4])
    losses = []
    for scale in (log(100), log(1000)):
        made.scale.data.fill_(scale)
        losses.append(made(vectors, trees, torch.eye(3, dtype=torch.bool)).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
