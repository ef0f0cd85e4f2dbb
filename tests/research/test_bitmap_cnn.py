"""The bitmap CNN learns which pictures belong together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from eqkin.evaluation.context import SMALL_SCALE, ExperimentContext, ResultCache

from eqkin.learning.data import Corpus
from research.bitmap_cnn import BITMAP_NETWORKS, BitmapData, measure_bitmaps, unpack_tensor
from research.bitmaps import HEIGHT, WIDTH, pack
from research.paper import make_bitmaps_result
from research.triples import unpack_bits
from tests.learning.corpora import corpus_of

CORPUS = corpus_of([[4], [3, 2], [4], [5]])
SCALE = replace(SMALL_SCALE, triplets=192, triples=1_000)


def draw_images(corpus: Corpus) -> np.ndarray:
    """Images that need no browser: each paper has a pattern, each equation a length."""
    noise = np.random.default_rng(0)
    rows, columns = np.indices((HEIGHT, WIDTH))
    patterns = [rows % 4 < 2, columns % 4 < 2, (rows + columns) % 6 < 3, (rows // 3 + columns // 3) % 2 == 0]
    images = np.zeros((len(corpus), HEIGHT, WIDTH), np.uint8)
    for image, paper in zip(images, corpus.paper.tolist(), strict=True):
        image[:, : noise.integers(200, WIDTH)] = 255
        image *= patterns[paper]
    return pack(images)


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    """Batches of a computer without a GPU: 12 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BITMAP_NETWORKS, "scaled", replace(BITMAP_NETWORKS["scaled"], batch_size=16))
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    images = draw_images(CORPUS)
    heights = np.where(CORPUS.paper == 0, 60, 20).astype(np.float32)
    data = BitmapData(CORPUS, CORPUS, dict.fromkeys((False, True), (images, images)), heights)
    messages: list[str] = []
    context = ExperimentContext(ResultCache(tmp_path_factory.mktemp("bitmaps")), SCALE, "cpu", messages.append)
    return context, data, measure_bitmaps(context, data, "scaled"), messages


def test_bitmap_network_unpacks_packed_images():
    images = np.random.default_rng(0).integers(0, 256, (3, HEIGHT, WIDTH), np.uint8)
    seen = unpack_tensor(torch.from_numpy(pack(images)))
    assert seen.shape == (3, 1, HEIGHT, WIDTH)
    assert np.allclose(seen[:, 0].numpy() * 3, np.round(images / 85))


def test_bitmap_cnn_learns_which_images_are_of_one_paper(measured):
    row = measured[2]
    assert unpack_bits(row["train"], 200).mean() > 0.6
    assert row["train"] == row["test"]  # the same equations here


def test_bitmap_cnn_is_not_trained_twice(measured):
    context, data, row, messages = measured
    count = len(messages)
    assert count and measure_bitmaps(context, data, "scaled") == row and len(messages) == count


def test_bitmap_table_separates_tall_formulas(measured, monkeypatch):
    context, data, _, _ = measured
    monkeypatch.setattr("research.paper.BITMAP_NETWORKS", {"scaled": BITMAP_NETWORKS["scaled"]})
    vectors = np.random.default_rng(0).normal(size=(len(CORPUS), 4))
    (table,) = make_bitmaps_result(context, {1.0: data}, {"Noise": (vectors, 7)}).tables
    cells = {row.title: row.cells for row in table.rows}
    assert list(cells)[:3] == ["Scaled down", "Graph network, same triplets", "Noise"]
    assert [cells[name]["equations"].value for name in ("Scaled down", "Noise")] == [len(CORPUS), 7]
    assert cells["Graph network, same triplets"]["train"].value == cells["Graph network, same triplets"]["test"].value
    low, high = sorted((cells["Noise"]["low"].value, cells["Noise"]["tall"].value))
    assert low <= cells["Noise"]["test"].value <= high
