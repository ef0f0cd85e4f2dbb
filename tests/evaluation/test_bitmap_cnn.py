"""The bitmap CNN learns which pictures belong together, and goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.store import ResultCache
from eqkin.evaluation.systems.base import FormulaSet
from eqkin.evaluation.systems.bitmap_cnn import BitmapCNN, BitmapTraining
from eqkin.evaluation.systems.bitmaps import bitmap_file
from eqkin.evaluation.systems.bitmaps.bitmap_file import pack, unpack
from eqkin.evaluation.systems.bitmaps.gallery import compute_tree_keys
from eqkin.evaluation.systems.bitmaps.network import BitmapNetwork, unpack_tensor
from eqkin.evaluation.systems.bitmaps.rendering import HEIGHT, WIDTH, find_chromium
from eqkin.training.data import Corpus
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
    bitmap_file.write_bitmaps(folder, compute_tree_keys(learn.forest), pack(images), "drawn")
    return folder


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Path:
    return draw_gallery(tmp_path_factory.mktemp("gallery"), corpus())


@pytest.fixture(scope="module")
def fitted(gallery, tmp_path_factory) -> tuple[BitmapCNN, Path]:
    folder = tmp_path_factory.mktemp("fitted")
    system = BitmapCNN(LESSON, device="cpu", gallery=gallery)
    system.fit(corpus(), folder)
    return system, folder


def test_the_network_sees_the_pictures_that_were_packed():
    images = np.random.default_rng(0).integers(0, 256, (3, HEIGHT, WIDTH), np.uint8)
    packed = pack(images)
    seen = unpack_tensor(torch.from_numpy(packed))
    assert seen.shape == (3, 1, HEIGHT, WIDTH)
    assert np.allclose(seen[:, 0].numpy() * 255, unpack(packed))


def test_it_learns_which_pictures_are_of_one_paper(fitted):
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


def test_what_was_learned_is_loaded_and_gives_the_same_vectors(fitted, gallery):
    system, folder = fitted
    assert sorted(path.name for path in folder.iterdir()) == ["bitmap_cnn.json", "weights.safetensors"]
    loaded = BitmapCNN(LESSON, device="cpu", gallery=gallery)
    loaded.fit(corpus(), folder)
    formulas = FormulaSet(corpus().forest)
    assert (loaded.encode(formulas) == system.encode(formulas)).all()
    some = np.array([7, 0, 7])
    assert np.allclose(loaded.encode(formulas.select(some)), system.encode(formulas)[some], atol=1e-6)
    assert loaded.encode(formulas.select(np.zeros(0, np.int64))).shape == (0, 64)


def test_learning_that_was_interrupted_goes_on_to_the_same_weights(fitted, gallery, tmp_path):
    def stop(message: str) -> None:
        raise KeyboardInterrupt

    _, folder = fitted
    with pytest.raises(KeyboardInterrupt):
        BitmapCNN(LESSON, device="cpu", gallery=gallery, tell=stop, save_seconds=0).fit(corpus(), tmp_path)
    assert (tmp_path / "checkpoint.json").is_file()
    told: list[str] = []
    BitmapCNN(LESSON, device="cpu", gallery=gallery, tell=told.append).fit(corpus(), tmp_path)
    assert [line[: line.index(", loss")] for line in told] == ["Bitmap CNN: step 60 of 60"]
    assert (tmp_path / "weights.safetensors").read_bytes() == (folder / "weights.safetensors").read_bytes()
    assert not list(tmp_path.glob("checkpoint*"))


def test_damaged_weights_are_refused(fitted, tmp_path):
    network = BitmapNetwork()
    network.save(tmp_path, {})
    assert (BitmapNetwork.load(tmp_path).output.weight == network.output.weight).all()
    path = tmp_path / "weights.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptData, match="delete the folder"):
        BitmapNetwork.load(tmp_path)


def test_settings_tell_lessons_apart():
    assert BitmapCNN(LESSON).settings == BitmapCNN(LESSON, device="cpu", gallery=Path("elsewhere")).settings
    assert BitmapCNN(LESSON).settings != BitmapCNN(replace(LESSON, seed=1)).settings
    with pytest.raises(BadInput, match="call fit first"):
        BitmapCNN(LESSON).encode(FormulaSet(corpus().forest))


def test_without_pictures_and_browser_the_error_says_what_is_missing(tmp_path, monkeypatch):
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    monkeypatch.setenv("EQKIN_CHROMIUM", "false")  # the command
    with pytest.raises(BadInput, match=r"lacks 18 of the pictures.*apt install chromium"):
        BitmapCNN(LESSON, device="cpu").fit(corpus(), tmp_path)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed (Debian: apt install chromium)")
def test_one_command_renders_learns_and_keeps(tmp_path):
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    context = ExperimentContext(ResultCache(tmp_path), device="cpu")
    brief = replace(LESSON, triplets=4)
    system = context.fit(BitmapCNN(brief, device="cpu"), corpus())
    assert isinstance(system, BitmapCNN)
    vectors = system.encode(FormulaSet(corpus().forest))
    (folder,) = (tmp_path / "fitted").iterdir()
    assert len(list((folder / "bitmaps").glob("*.bitmaps"))) == 1
    again = context.fit(BitmapCNN(brief, device="cpu"), corpus())
    assert isinstance(again, BitmapCNN)
    assert (again.encode(FormulaSet(corpus().forest)) == vectors).all()
