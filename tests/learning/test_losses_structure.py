"""Term vectors and the structure loss against their formulas."""

# ruff: noqa: E402
from collections import Counter
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.formulas.engine import FormulaEngine
from eqkin.formulas.terms import extract_terms
from eqkin.learning.losses import compute_structure_loss
from eqkin.learning.text import COLUMN_BITS, COLUMNS, TermTables
from tests.learning.corpora import FORESTS, some_trees

CPU = torch.device("cpu")


def vectors(forest, most: int = 10**9) -> np.ndarray:
    """Compute the vectors of trees by the formula, term by term."""
    terms = extract_terms(FormulaEngine().parse(forest))
    counted = []
    for start, end in zip(terms.offsets[:-1], terms.offsets[1:], strict=True):
        counts: Counter[int] = Counter()
        for code, count in zip(terms.code[start:end].tolist(), terms.count[start:end].tolist(), strict=True):
            counts[code >> (32 - COLUMN_BITS)] += count
        counted.append(counts)
    trees = Counter(column for counts in counted for column in counts)
    rows = np.zeros((len(forest), COLUMNS))
    for row, counts in zip(rows, counted, strict=True):
        value = {k: 2 * c / (c + 1) * sqrt(log((1 + len(forest)) / (1 + trees[k])) + 0.1) for k, c in counts.items()}
        for column in sorted(value, key=lambda k: (-np.float32(value[k]), k))[:most]:
            row[column] = value[column]
        row /= max(np.linalg.norm(row), 1e-6)
    return rows


@settings(max_examples=8, deadline=None)
@given(FORESTS)
def test_term_vectors_match_their_formula(forest):
    made = TermTables(forest, CPU).to_dense(torch.arange(len(forest)), torch.float32)
    np.testing.assert_allclose(made.numpy(), vectors(forest), atol=1e-3)


def test_term_tables_keep_the_heaviest_terms():
    forest = some_trees(23)
    made = TermTables(forest, CPU, max_terms=7).to_dense(torch.arange(23), torch.float32)
    assert int((made > 0).sum(1).max()) == 7
    np.testing.assert_allclose(made.norm(dim=1).numpy(), np.ones(23), atol=1e-3)
    np.testing.assert_allclose(made.numpy(), vectors(forest, 7), atol=1e-3)


def test_structure_loss_matches_its_formula():
    torch.manual_seed(0)
    found, taught = (torch.nn.functional.normalize(torch.randn(6, n), dim=1) for n in (3, 9))
    same = torch.eye(6, dtype=torch.bool)
    same[1, 4] = same[4, 1] = True
    expected = []
    for i in range(6):
        others = [j for j in range(6) if not same[i, j]]
        p = (taught[others] @ taught[i] / 0.2).softmax(0)
        q = (found[others] @ found[i] / 0.2).softmax(0)
        expected.append((p * (p / q).log()).sum().item())
    assert compute_structure_loss(found, taught, same, 0.2).item() == pytest.approx(np.mean(expected), rel=1e-4)
    assert compute_structure_loss(taught, taught, same, 0.2).item() == pytest.approx(0, abs=1e-6)
