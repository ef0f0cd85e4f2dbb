"""A folder of rendered formulas: what is there is found again, what is missing is rendered and kept.

Pictures are found by a hash of the tree, so the folder can be filled on a machine with a browser and used on another
one without, and rendering that was interrupted goes on where it stopped, at the last few thousand formulas.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.systems.bitmaps.bitmap_file import (
    ROW_BYTES,
    BitmapFile,
    Keys,
    PackedImages,
    pack,
    read_bitmaps,
    write_bitmaps,
)
from eqkin.evaluation.systems.bitmaps.rendering import HEIGHT, Renderer
from eqkin.trees import Forest
from eqkin.trees.mathml import to_mathml, to_node

IMAGES_PER_FILE = 3_000  # formulas of a file


class ImageCache:
    """Pictures of formulas in a folder.

    Args:
        folder: Where they are kept; made when something is.
        tell: Told how rendering gets on, a line at a time.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda message: None) -> None:
        self.folder = folder
        self._tell = tell

    def get_images(self, forest: Forest) -> PackedImages:
        """The pictures of all trees, in their order; those that are not there yet are rendered.

        Raises:
            BadInput: Some have to be rendered, and there is no browser.
            CorruptData: A file is damaged; names it.
            StorageFailed: The disk refused.
        """
        keys = compute_tree_keys(forest)
        files = self._read_files()
        known = np.concatenate([np.zeros(0, np.uint64), *(file.keys for file in files)])
        distinct, first = np.unique(keys, return_index=True)
        missing = np.sort(first[~np.isin(distinct, known)])
        if len(missing):
            self._render_missing(forest, keys, missing)
            files = self._read_files()
        return _gather_images(keys, files)

    def _read_files(self) -> list[BitmapFile]:
        return [read_bitmaps(path) for path in sorted(self.folder.glob("*.bitmaps"))]

    def _render_missing(self, forest: Forest, keys: Keys, trees: npt.NDArray[np.int64]) -> None:
        with ExitStack() as stack:
            try:
                renderer = stack.enter_context(Renderer())
            except BadInput as error:
                raise BadInput(f"{self.folder} lacks {len(trees):,} of the pictures needed: {error}") from error
            started, empty = time.monotonic(), 0
            for start in range(0, len(trees), IMAGES_PER_FILE):
                part = trees[start : start + IMAGES_PER_FILE]
                pictures = pack(renderer.render([to_mathml(to_node(forest, tree)) for tree in part.tolist()]))
                write_bitmaps(self.folder, keys[part], pictures, renderer.browser)
                empty += count_empty(pictures)
                done = start + len(part)
                rate = done / (time.monotonic() - started)
                blank = f", {empty:,} of them empty" if empty else ""
                self._tell(f"rendered {done:,} of {len(trees):,} formulas{blank}; {rate:,.0f} a second")


def compute_tree_keys(forest: Forest) -> Keys:
    """A hash of each tree: equal trees of any forests have the same, others hardly ever."""
    labels = forest.tag.astype(np.int64) * len(forest.attributes) + forest.attribute
    labels = (labels * len(forest.texts) + forest.text) * (int(forest.n_children.max(initial=0)) + 1)
    _, first, place = np.unique(labels + forest.n_children, return_index=True, return_inverse=True)
    hashes = b"".join(_hash_label(forest, node) for node in first.tolist())
    nodes = np.frombuffer(hashes, np.uint64)[place]
    ends = forest.offsets.tolist()
    trees = (nodes[start:end].tobytes() for start, end in zip(ends[:-1], ends[1:], strict=True))
    return np.frombuffer(b"".join(blake2b(tree, digest_size=8).digest() for tree in trees), "<u8").astype(np.uint64)


def _hash_label(forest: Forest, node: int) -> bytes:
    strings = forest.tags[forest.tag[node]], forest.attributes[forest.attribute[node]], forest.texts[forest.text[node]]
    text = "\0".join((*strings, str(forest.n_children[node])))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def count_empty(pictures: PackedImages) -> int:
    """How many have no ink."""
    return int((~pictures.any(axis=(1, 2))).sum())


def _gather_images(keys: Keys, files: list[BitmapFile]) -> PackedImages:
    """The pictures of some keys, all of which are in some file; the first file counts."""
    pictures = np.zeros((len(keys), ROW_BYTES, HEIGHT), np.uint8)
    wanted = np.ones(len(keys), bool)
    for file in files:
        order = np.argsort(file.keys)
        place = np.searchsorted(file.keys, keys, sorter=order).clip(max=max(len(order) - 1, 0))
        here = wanted & np.isin(keys, file.keys)
        if here.any():
            pictures[here] = file.read_images()[order[place[here]]]
            wanted &= ~here
    return pictures
