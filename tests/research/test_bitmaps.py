"""Formulas become pictures in a real Chromium, and are kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas.mathml import Node, to_mathml, to_node
from research.bitmap_cnn import draw_subset
from research.bitmaps import (
    HEIGHT,
    ROW_BYTES,
    WIDTH,
    Renderer,
    find_chromium,
    get_images,
    pack,
)
from tests.learning.corpora import corpus_of, some_trees

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
needs_browser = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium is installed (Debian: apt install chromium)"
)

X, Y = Node("mi", text="x"), Node("mi", text="y")
FRACTION = Node("mfrac", children=[X, Y])
LINE = Node("mrow", children=[X, Node("mo", text="="), Y])
WIDE = Node("mrow", children=[Node("mrow", children=[X, Node("mo", text="+")]) for _ in range(60)])
HIGH = Node("mtable", children=[Node("mtr", children=[Node("mtd", children=[LINE])]) for _ in range(6)])


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer() as made:
        yield made


@pytest.fixture
def no_browser(monkeypatch):
    monkeypatch.setenv("EQKIN_CHROMIUM", "false")  # the command


def show(renderer: Renderer, *nodes: Node) -> np.ndarray:
    images, _ = renderer.render([to_mathml(node) for node in nodes])
    assert images.shape == (len(nodes), HEIGHT, WIDTH)
    assert images.dtype == np.uint8
    return images


def extent(image: np.ndarray) -> tuple[int, int, int, int]:
    """First and last row, first and last column with ink."""
    rows, columns = np.flatnonzero(image.max(1) > 20), np.flatnonzero(image.max(0) > 20)
    return rows[0], rows[-1], columns[0], columns[-1]


@needs_browser
def test_renderer_shows_different_formulas_differently(renderer):
    x, y, again = show(renderer, X, Y, X)
    assert (x != y).any()
    assert (x == again).all()


@needs_browser
def test_renderer_centres_formulas_vertically_at_the_left(renderer):
    line, fraction = show(renderer, LINE, FRACTION)
    assert 4 < np.ptp(extent(line)[:2]) < np.ptp(extent(fraction)[:2]) < HEIGHT
    for image in (line, fraction):
        top, bottom, left, _ = extent(image)
        assert abs((top + bottom) / 2 - HEIGHT / 2) < 5
        assert left < 5
    assert extent(line)[3] > extent(fraction)[3]


@needs_browser
def test_renderer_scales_large_formulas_down(renderer):
    wide, high, line = show(renderer, WIDE, HIGH, LINE)
    assert WIDTH - 20 < extent(wide)[3] < WIDTH - 1  # all of it, up to the last sign
    assert wide[:, -1].max() == 0
    assert np.ptp(extent(wide)[:2]) < np.ptp(extent(line)[:2])
    assert HEIGHT - 8 < np.ptp(extent(high)[:2]) < HEIGHT
    assert high[0].max() == high[-1].max() == 0


@needs_browser
def test_renderer_aligns_equations_at_relation_signs(renderer):
    def row(terms: int) -> Node:
        left = Node("mtd", children=[X] * terms)
        return Node("mtr", children=[left, Node("mtd", children=[Node("mo", text="="), Y])])

    (image,) = show(renderer, Node("mtable", {"columnalign": "right left"}, children=[row(9), row(1)]))
    upper, lower = extent(image[: HEIGHT // 2]), extent(image[HEIGHT // 2 :])
    assert lower[2] > upper[2] + 30
    assert lower[3] == upper[3]


@needs_browser
def test_renderer_keeps_order_over_several_pages(renderer):
    digits = [Node("mn", text=str(number)) for number in range(10)]
    ten = show(renderer, *digits)
    many = show(renderer, *(digits * 61))
    assert (many == np.tile(ten, (61, 1, 1))).all()


@needs_browser
def test_renderer_runs_no_scripts(renderer):
    attack = "<script>document.title='hit'</script><img src='http://127.0.0.1:9/' onerror=\"document.title='hit'\">"
    escaped, mark = show(renderer, Node("mtext", text=attack), X)
    assert escaped.any()
    raw = f"<math><mtext>{attack}</mtext></math><svg onload=\"document.title='hit'\"></svg>"
    assert (renderer.render([raw, to_mathml(X)])[0][1] == mark).all()
    assert renderer._thread.submit(renderer._session._tab.title).result() == ""


@needs_browser
def test_renderer_accepts_empty_and_odd_formulas(renderer):
    empty, half = show(renderer, Node("mrow"), Node("mi", text="x\ud800"))
    assert not empty.any()
    assert half.any()
    assert renderer.render([])[0].shape == (0, HEIGHT, WIDTH)


@needs_browser
def test_renderer_restarts_crashed_browser(renderer):
    expected = show(renderer, LINE, WIDE, HIGH)
    renderer._thread.submit(renderer._session._browser.close).result()
    shown = show(renderer, LINE, WIDE, HIGH, X)
    assert (shown[:3] == expected).all()
    assert shown[3].any()


def test_renderer_without_browser_says_what_to_install(no_browser):
    with pytest.raises(BadInput, match="apt install chromium"):
        Renderer().__enter__()


def test_pack_keeps_four_levels_of_grey():
    images = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    images[0, 3, 5:8], images[1, -1, -1] = (90, 160, 250), 85
    packed = pack(images)
    assert packed.shape == (2, ROW_BYTES, HEIGHT)
    assert packed[0, :3, 3].tolist() == [0, 0b00_01_10_11, 0]  # four pixels per byte
    assert packed[1, -1, -1] == 0b01_00_00_00
    assert np.count_nonzero(packed) == 2


def test_subset_has_whole_papers_and_depends_on_seed():
    corpus = corpus_of([[2, 1], [4], [1], [3, 3], [2], [5]], citations=((0, 1), (2, 3), (4, 5)))
    drawn = draw_subset(corpus, 8, seed=1)
    assert 8 <= len(drawn) < 8 + 6
    sizes = dict(zip(corpus.papers, np.bincount(corpus.paper).tolist(), strict=True))
    assert np.bincount(drawn.paper).tolist() == [sizes[name] for name in drawn.papers]
    assert draw_subset(corpus, 8, seed=1).digest == drawn.digest
    assert len({tuple(draw_subset(corpus, 8, seed=seed).papers) for seed in range(8)}) > 1
    fewer = draw_subset(corpus, 4, seed=1)
    assert set(fewer.papers) < set(drawn.papers)
    assert len(draw_subset(corpus, 1_000)) == len(corpus)


@needs_browser
def test_images_are_rendered_once(tmp_path, renderer, monkeypatch):
    forest = some_trees(3)
    messages: list[str] = []
    images, heights = get_images(tmp_path / "new", forest, log=messages.append)
    assert (images == pack(renderer.render([to_mathml(to_node(forest, tree)) for tree in range(3)])[0])).all()
    assert (heights > 0).all() and messages == ["rendering 3 formulas, scaled"]
    monkeypatch.setenv("EQKIN_CHROMIUM", "false")
    assert (get_images(tmp_path / "new", forest, log=messages.append)[0] == images).all() and len(messages) == 1
    with pytest.raises(BadInput, match="apt install chromium"):
        get_images(tmp_path / "new", forest, crop=True)
    (path,) = (tmp_path / "new").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptData, match="delete it"):
        get_images(tmp_path / "new", forest)
