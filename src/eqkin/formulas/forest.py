"""Forests: many trees as a few flat arrays.

Nodes are stored in breadth-first order, tree after tree. The children of a node are therefore contiguous, and one
number per node, `n_children`, describes the shape of a tree; parent, first child, position and depth follow from it
without loops. Tag, attributes and text of a node are indices into three lists of distinct strings. A forest is
lossless: MathML can be written from it.

The stored form is one zstd frame. It begins with the sizes of its parts and the bytes per number of each column. Then
come the strings, each ended by a zero byte, and the columns, in the narrowest type that holds them. The frame carries a
checksum of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from eqkin.errors import BadInput, CorruptData

Array = npt.NDArray[np.integer[Any]]
Places = npt.NDArray[np.int64]

# Processed at a time, to limit memory.
NODES_PER_BLOCK = 1_000_000
Column = npt.NDArray[np.unsignedinteger[Any]]
_LEVEL = 9
_MAX_BYTES = 1_000_000_000
_WORD = np.dtype("<u4")
_COMPRESSOR_OPTIONS: dict[str, Any] = {"level": _LEVEL, "write_checksum": True, "write_content_size": True}


@dataclass
class Forest:
    """Trees in flat arrays. `attributes` entries are lines `name=value`, sorted by name."""

    tags: list[str]
    attributes: list[str]
    texts: list[str]
    # (nodes,) index into tags.
    tag: Array
    # (nodes,) index into attributes.
    attribute: Array
    # (nodes,) index into texts.
    text: Array
    # (nodes,) number of children.
    n_children: Array
    # (trees + 1,) first node of each tree.
    offsets: Places

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Places:
        """Number of nodes of each tree."""
        return np.diff(self.offsets)

    def compute_first_child(self) -> Places:
        """Return the index of each node's first child (for a leaf: where it would be) in the whole forest."""
        return compute_first_children(self.n_children, self.offsets)

    def compute_parent(self) -> Places:
        """Return the index of each node's parent in the whole forest; a root is its own parent."""
        return compute_parents(self.n_children, self.offsets)

    def select(self, indices: Sequence[int] | Places) -> Forest:
        """Return a forest of the trees at `indices`, in that order, with only the strings they use."""
        nodes, offsets = gather_rows(self.offsets, np.asarray(indices, np.int64))
        return self._compact(nodes, offsets)

    @classmethod
    def concatenate(cls, forests: Sequence[Forest]) -> Forest:
        """Return one forest of all trees, one forest after the other, with common string lists."""
        tags, tag = join_strings([forest.tags for forest in forests], [forest.tag for forest in forests])
        attributes, attribute = join_strings(
            [forest.attributes for forest in forests], [forest.attribute for forest in forests]
        )
        texts, text = join_strings([forest.texts for forest in forests], [forest.text for forest in forests])
        n_children = np.concatenate([np.zeros(0, np.uint8), *(forest.n_children for forest in forests)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(forest.sizes for forest in forests)])
        return cls(
            tags=tags,
            attributes=attributes,
            texts=texts,
            tag=tag,
            attribute=attribute,
            text=text,
            n_children=_to_smallest_dtype(n_children, int(n_children.max(initial=0)) + 1),
            offsets=accumulate(sizes),
        )

    def canonicalise(self) -> Forest:
        """Return the same trees with sorted string lists and fixed types: equal forests have equal bytes."""
        return self._compact(slice(None), self.offsets, alphabetical=True)

    def _compact(self, nodes: slice | Places, offsets: Places, *, alphabetical: bool = False) -> Forest:
        """Return the forest of some nodes, with only the strings they use."""
        tags, tag = _compact_strings(self.tags, self.tag[nodes], alphabetical)
        attributes, attribute = _compact_strings(self.attributes, self.attribute[nodes], alphabetical)
        texts, text = _compact_strings(self.texts, self.text[nodes], alphabetical)
        n_children = self.n_children[nodes]
        return Forest(
            tags=tags,
            attributes=attributes,
            texts=texts,
            tag=tag,
            attribute=attribute,
            text=text,
            n_children=_to_smallest_dtype(n_children, int(n_children.max(initial=0)) + 1),
            offsets=offsets,
        )

    def to_bytes(self) -> bytes:
        """Return the stored form of this forest; `from_bytes` reads it. Raises `BadInput` for a zero character."""
        return pack_columns(*self._get_parts())

    def compute_digest(self) -> str:
        """Return the hexadecimal SHA-256 of the content; that of equal trees is equal after `canonicalise`."""
        return hash_columns(*self._get_parts())

    def _get_parts(self) -> tuple[list[list[str]], list[Array]]:
        columns = [self.tag, self.attribute, self.text, self.n_children, self.sizes]
        return [self.tags, self.attributes, self.texts], columns

    @classmethod
    def from_bytes(cls, packed: bytes) -> Forest:
        """Return the forest that `to_bytes` stored; raises `CorruptData` for bytes that were changed since."""
        strings, columns = unpack_columns(packed, 3, 5)
        tag, attribute, text, n_children, sizes = columns
        return cls(
            tags=strings[0],
            attributes=strings[1],
            texts=strings[2],
            tag=tag,
            attribute=attribute,
            text=text,
            n_children=n_children,
            offsets=accumulate(sizes),
        )

    def validate(self) -> None:
        """Check that the arrays describe trees and stay inside their string lists; raises `CorruptData`."""
        nodes = len(self.tag)
        lengths = {len(self.tag), len(self.attribute), len(self.text), len(self.n_children)}
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else []
        if len(lengths) != 1 or ends != [0, nodes] or (self.sizes < 1).any():
            raise CorruptData("forest arrays differ in length or a tree is empty")
        for name in ("tag", "attribute", "text"):
            values = getattr(self, name)
            if nodes and not 0 <= int(values.min()) <= int(values.max()) < len(getattr(self, name + "s")):
                raise CorruptData(f"forest: a {name} index points past its list")
        if nodes == 0:
            return
        if not 0 <= int(self.n_children.min()) <= int(self.n_children.max()) < nodes:
            raise CorruptData("forest: a node has more children than there are nodes, or fewer than none")
        # Block by block, to limit memory.
        for trees, part in iter_blocks(self.offsets):
            offsets = self.offsets[trees.start : trees.stop + 1] - part.start
            counts = self.n_children[part]
            children = np.add.reduceat(counts, offsets[:-1], dtype=np.int64)
            first_child = compute_first_children(counts, offsets)
            if (children != np.diff(offsets) - 1).any() or (first_child <= np.arange(len(counts))).any():
                raise CorruptData("forest: child counts do not make a tree")


def _to_smallest_dtype(values: Array, bound: int) -> Array:
    """Convert an array to the narrowest unsigned type that holds numbers below `bound`."""
    return np.asarray(values, dtype=np.min_scalar_type(max(bound - 1, 0)))


def _compact_strings(strings: list[str], indices: Array, alphabetical: bool) -> tuple[list[str], Array]:
    """Return the strings in use, in their order or sorted, and the indices into that list."""
    used = np.flatnonzero(np.bincount(indices, minlength=len(strings))).tolist()
    if alphabetical:
        used.sort(key=strings.__getitem__)
    rank = np.zeros(max(len(strings), 1), np.int64)
    rank[used] = np.arange(len(used))
    return [strings[i] for i in used], _to_smallest_dtype(rank[indices], max(len(used), 1))


def join_strings(lists: Sequence[list[str]], columns: Sequence[Array]) -> tuple[list[str], Array]:
    """Return the strings of several lists without repetition, and the indices of all columns into that list."""
    if lists and all(strings is lists[0] for strings in lists):
        return lists[0], _to_smallest_dtype(np.concatenate(columns), len(lists[0]))
    index: dict[str, int] = {}
    parts = [np.zeros(0, np.int64)]
    for strings, column in zip(lists, columns, strict=True):
        numbers = np.array([index.setdefault(string, len(index)) for string in strings], np.int64)
        parts.append(numbers[column])
    return list(index), _to_smallest_dtype(np.concatenate(parts), len(index))


def compute_first_children(n_children: Array, offsets: Places) -> Places:
    """Return the index of each node's first child: 1 + the tree's number + the children of all nodes before."""
    counts = n_children.astype(np.int64)
    return np.cumsum(counts) - counts + np.repeat(np.arange(1, len(offsets)), np.diff(offsets))


def compute_parents(n_children: Array, offsets: Places) -> Places:
    """Return the index of each node's parent; a root is its own parent."""
    parent = np.empty(len(n_children), np.int64)
    parent[offsets[:-1]] = offsets[:-1]
    inner = np.ones(len(parent), bool)
    inner[offsets[:-1]] = False
    parent[inner] = np.repeat(np.arange(len(parent)), n_children)
    return parent


def iter_blocks(offsets: Places, size: int = NODES_PER_BLOCK) -> Iterator[tuple[slice, slice]]:
    """Yield consecutive trees (or sequences) with at most `size` nodes together, as slices of trees and of nodes.

    A tree with more nodes is a block of its own.
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + size, "right")) - 1)
        yield slice(first, last), slice(int(offsets[first]), int(offsets[last]))
        first = last


def accumulate(sizes: npt.NDArray[Any]) -> Places:
    """Return where each part begins if parts of these sizes follow one another, and where the last ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def gather_rows(offsets: npt.NDArray[Any], rows: Places) -> tuple[Places, Places]:
    """Return the indices of all members of some rows, and the offsets of these rows in them."""
    starts = offsets[rows].astype(np.int64)
    sizes = offsets[rows + 1].astype(np.int64) - starts
    ends = accumulate(sizes)
    return np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1]), ends


def pack_columns(lists: Sequence[Sequence[str]], columns: Sequence[npt.NDArray[Any]]) -> bytes:
    """Return string lists and columns of numbers below 2**32 as one compressed frame.

    Raises:
        BadInput: A string contains a zero character.
    """
    return zstandard.ZstdCompressor(**_COMPRESSOR_OPTIONS).compress(_join_parts(lists, columns))


def hash_columns(lists: Sequence[Sequence[str]], columns: Sequence[npt.NDArray[Any]]) -> str:
    """Return the hexadecimal SHA-256 of string lists and columns, which no compressor influences."""
    return hashlib.sha256(_join_parts(lists, columns)).hexdigest()


def _join_parts(lists: Sequence[Sequence[str]], columns: Sequence[npt.NDArray[Any]]) -> bytes:
    texts = []
    for strings in lists:
        joined = "".join(f"{text}\0" for text in strings).encode("utf-8", "surrogatepass")
        if joined.count(b"\0") != len(strings):
            raise BadInput("a tree cannot be stored: one of its strings contains a zero character")
        texts.append(joined)
    widths = [np.min_scalar_type(int(column.max(initial=0))).itemsize for column in columns]
    numbers = [column.astype(f"<u{width}").tobytes() for column, width in zip(columns, widths, strict=True)]
    header = [*map(len, texts), *map(len, columns), *widths]
    return b"".join([np.array(header, _WORD).tobytes(), *texts, *numbers])


def unpack_columns(packed: bytes, n_lists: int, n_columns: int) -> tuple[list[list[str]], list[Column]]:
    """Return the string lists and columns of a frame; raises `CorruptData` if it is not what was written."""
    try:
        content = _decompress(packed)
        at = (n_lists + 2 * n_columns) * _WORD.itemsize
        header = np.frombuffer(content[:at], _WORD).tolist()
        lists = []
        for size in header[:n_lists]:
            strings = content[at : at + size].decode("utf-8", "surrogatepass").split("\0")
            lists.append(strings[:-1])
            at += size
        columns = []
        for size, width in zip(header[n_lists:-n_columns], header[-n_columns:], strict=True):
            columns.append(np.frombuffer(content, f"<u{width}", size, at))
            at += size * width
        if at != len(content):
            raise ValueError("its parts have other sizes")
        return lists, columns
    except (zstandard.ZstdError, ValueError, TypeError, MemoryError) as error:
        raise CorruptData(f"stored trees are damaged ({error}); run `eqkin verify`") from error


def _decompress(packed: bytes) -> bytes:
    parameters = zstandard.get_frame_parameters(packed)
    # A damaged header may say that there is no checksum, or a size that would fill the memory.
    if not parameters.has_checksum or parameters.content_size > _MAX_BYTES:
        raise ValueError("not a frame that eqkin has written")
    return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
