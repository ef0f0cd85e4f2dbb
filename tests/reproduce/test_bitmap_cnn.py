"""The bitmap CNN learns which pictures belong together, and goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.cache import ResultCache
from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.formulas import FormulaSet
from eqkin.training.data import Corpus
from reproduce.bitmap_cnn import BitmapCNN, BitmapNetwork, BitmapTraining, unpack_tensor
from reproduce.bitmaps import HEIGHT, WIDTH, compute_tree_keys, find_chromium, pack, write_bitmaps
from reproduce.fits import load_fit, save_fit
from tests.training.corpora import corpus_of

LESSON = BitmapTraining(bitmaps=100, triplets=120, batch=2, learning_rate=2e-3)


def corpus() -> Corpus:
    return corpus_of([[4], [3, 2], [4], [5]], citations=((0, 2),))


def draw_gallery(folder: Path, learn: Corpus) -> Path:
    """Pictures that need no browser: each paper has a pattern, each equation a length."""
    noise = np.random.default_rng(0)
    rows, columns = np.indices((HEIGHT, WIDTH))
    patterns = [rows % 4 < 2, columns % 4 < 2, (rows + columns) % 6 < 3, (rows // 3 + columns // 3) % 2 == 0]
    images = np.zeros((len(learn), HEIGHT, WIDTH), np.uint8)
    for image, paper in zip(images, learn.paper.tolist(), strict=True):
        image[:, : noise.integers(200, WIDTH)] = 255
        image *= patterns[paper]
    write_bitmaps(folder, compute_tree_keys(learn.forest), pack(images))
    return folder


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Path:
    return draw_gallery(tmp_path_factory.mktemp("gallery"), corpus())


@pytest.fixture(scope="module")
def fitted(gallery, tmp_path_factory) -> tuple[BitmapCNN, Path]:
    folder = tmp_path_factory.mktemp("fitted")
    system = BitmapCNN(LESSON, device="cpu", images=gallery)
    system.fit(corpus(), folder)
    return system, folder


def test_bitmap_network_unpacks_packed_images():
    images = np.random.default_rng(0).integers(0, 256, (3, HEIGHT, WIDTH), np.uint8)
    seen = unpack_tensor(torch.from_numpy(pack(images)))
    assert seen.shape == (3, 1, HEIGHT, WIDTH)
    assert np.allclose(seen[:, 0].numpy() * 3, np.round(images / 85))


def test_bitmap_cnn_learns_which_images_are_of_one_paper(fitted):
    system, folder = fitted
    learned = json.loads((folder / "bitmap_cnn.json").read_text())["learned"]
    assert learned["loss"] < 0.6  # before learning all vectors are much alike, and it is 1
    assert learned["equations"] == len(corpus())
    papers = corpus().paper
    vectors = system.encode(FormulaSet(corpus().forest))
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similar = vectors @ vectors.T
    same = papers[:, None] == papers[None, :]
    assert similar[same].mean() > similar[~same].mean() + 0.5


def test_bitmap_cnn_loads_finished_fit(fitted, gallery):
    system, folder = fitted
    assert sorted(path.name for path in folder.iterdir()) == ["bitmap_cnn.json", "weights.safetensors"]
    loaded = BitmapCNN(LESSON, device="cpu", images=gallery)
    loaded.fit(corpus(), folder)
    formulas = FormulaSet(corpus().forest)
    assert (loaded.encode(formulas) == system.encode(formulas)).all()
    some = np.array([7, 0, 7])
    assert np.allclose(loaded.encode(formulas.select(some)), system.encode(formulas)[some], atol=1e-6)
    assert loaded.encode(formulas.select(np.zeros(0, np.int64))).shape == (0, 64)


def test_bitmap_cnn_resumes_interrupted_fit_exactly(fitted, gallery, tmp_path):
    def stop(message: str) -> None:
        if "step 60 of 60" in message:
            raise KeyboardInterrupt

    _, folder = fitted
    with pytest.raises(KeyboardInterrupt):
        BitmapCNN(LESSON, device="cpu", images=gallery, log=stop, save_seconds=0).fit(corpus(), tmp_path)
    assert (tmp_path / "checkpoint.json").is_file()
    messages: list[str] = []
    BitmapCNN(LESSON, device="cpu", images=gallery, log=messages.append).fit(corpus(), tmp_path)
    assert [line[: line.index(", loss")] for line in messages] == ["Bitmap CNN: step 60 of 60"]
    assert (tmp_path / "weights.safetensors").read_bytes() == (folder / "weights.safetensors").read_bytes()
    assert not list(tmp_path.glob("checkpoint*"))


def test_load_fit_rejects_damaged_weights(tmp_path):
    network, loaded = BitmapNetwork(), BitmapNetwork()
    save_fit(tmp_path, "fit.json", network, {"facts": 1})
    assert load_fit(tmp_path, "fit.json", loaded)["facts"] == 1
    assert (loaded.output.weight == network.output.weight).all()
    path = tmp_path / "weights.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptData, match="delete the folder"):
        load_fit(tmp_path, "fit.json", loaded)


def test_bitmap_cnn_settings_depend_on_training_only():
    assert BitmapCNN(LESSON).settings == BitmapCNN(LESSON, device="cpu", images=Path("elsewhere")).settings
    assert BitmapCNN(LESSON).settings != BitmapCNN(replace(LESSON, seed=1)).settings
    with pytest.raises(BadInput, match="call fit first"):
        BitmapCNN(LESSON).encode(FormulaSet(corpus().forest))


def test_bitmap_cnn_without_images_and_browser_says_what_is_missing(tmp_path, monkeypatch):
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    monkeypatch.setenv("EQKIN_CHROMIUM", "false")  # the command
    with pytest.raises(BadInput, match=r"lacks 18 images.*apt install chromium"):
        BitmapCNN(LESSON, device="cpu").fit(corpus(), tmp_path)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed (Debian: apt install chromium)")
def test_bitmap_cnn_is_rendered_trained_and_cached_by_the_context(tmp_path):
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    context = ExperimentContext(ResultCache(tmp_path), device="cpu")
    brief = replace(LESSON, triplets=4)
    system = context.fit(BitmapCNN(brief, device="cpu"), corpus())
    assert isinstance(system, BitmapCNN)
    vectors = system.encode(FormulaSet(corpus().forest))
    (folder,) = (tmp_path / "fitted").iterdir()
    assert len(list((folder / "bitmaps").glob("*.npz"))) == 1
    again = context.fit(BitmapCNN(brief, device="cpu"), corpus())
    assert isinstance(again, BitmapCNN)
    assert (again.encode(FormulaSet(corpus().forest)) == vectors).all()
