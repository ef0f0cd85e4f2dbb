"""The paper's figures: copied right, as far as the paper's own sums and words can tell."""

import pytest

from research.published import (
    ABLATION_ROWS,
    EQUALITIES_ROWS,
    STUDY_QUERIES,
    STUDY_ROWS,
)

KEYS = ("ranking", "labelled_ranking", "accuracy")


def figures(row, keys):
    return [row.cells[key].value for key in keys]


def test_ablation_rows_have_the_printed_differences():
    printed = {
        "No histogram loss": (-4.0, -8.1, -29.7),
        "No masking": (-1.3, -3.4, -10.6),
        "No augmentation": (-1.2, -4.1, -10.6),
        "Bitmap CNN, original": (-0.3, 14.2, 7.7),
        "Bitmap CNN, retrained": (-6.5, -7.7, -7.7),
    }
    full, *others = ABLATION_ROWS
    assert {row.title for row in others} == set(printed)
    for row in others:
        lost = [100 * (a - b) for a, b in zip(figures(row, KEYS), figures(full, KEYS), strict=True)]
        assert lost == pytest.approx(printed[row.title])


def test_graph_network_of_the_paper_is_best_with_one_exception():
    exceptions = []
    for name, rows in EQUALITIES_ROWS.items():
        for key in ("r1", "r10", "r100"):
            best = max(rows, key=lambda row: row.cells[key].value)
            exceptions += [(name, key, best.title)] if best.title != "Graph-CNN" else []
    assert exceptions == [("equalities", "r1", "Transformer")]


def test_study_rows_of_five_million_triplets_are_best():
    bag, five, twenty = STUDY_ROWS
    for key in ("p10", "p100", "p1000", "umap"):
        assert five.cells[key].value > max(bag.cells[key].value, twenty.cells[key].value)
    assert 1.4 < five.cells["p1000"].value / bag.cells["p1000"].value < 1.5
    shares = [row.cells["p100"].value for row in STUDY_QUERIES]
    assert shares == sorted(shares, reverse=True) and len(shares) == 22
