"""Parts of an index: immutable files of plain arrays, one row for each of at most 65,536 equations.

    keys          (n,)      keys of the equations in the library, ascending
    vectors       (n, d)    the equation's vector is `vectors * scales`, rounded to 8 bits per number
    scales        (n,)
    norms         (n, f)    sums of squared weights of its terms, by family (`formulas.idf.encode_norms`)
    paper         (n,)      number of its paper; with `display` and `latex`, see `library.references`
    display       (n,)      the last bits of the number of its display
    latex         (n,)      a hash of its LaTeX
    codes         (t,)      terms of all equations, ascending
    starts        (t + 1,)  where the rows of each term begin in `rows`
    rows          (p,)      rows that have the term, ascending
    tree_starts   (n + 1,)  where the nodes of each operator tree begin
    labels        (m,)      label of each node in depth-first order, an index into `label_starts`
    depths        (m,)      number of its ancestors
    label_starts  (l + 1,)  where each label begins in `label_bytes`
    label_bytes   (b,)      all labels as UTF-8
    unparsed      (n,)      presentation nodes without a meaning, which keep their structure
    forms         (n, k)    hashes of the whole formula (`SAME_FORM_KINDS`)

A part is a safetensors file, mapped into memory so that all processes share it. Its hash is compared when it is
opened, which is why nothing else is checked.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.files import write_file
from eqkin.formulas.forest import accumulate, gather_rows
from eqkin.formulas.operators import FORM_KINDS, LABEL_COLUMNS, SAME_FORM_KINDS, OperatorForest, describe_labels
from eqkin.index.features import Codes, Floats, Integers, TreeFeatures, normalise_length
from eqkin.index.manifest import REBUILD_HINT, PartEntry
from eqkin.library.references import EquationColumns

# The number of a row takes two bytes.
MAX_ROWS = 1 << 16
_BY_ROW = ("keys", "vectors", "scales", "norms", "paper", "display", "latex")
# The largest number of a vector becomes this.
_MAX_CODE = 127
_DTYPES = {"I64": np.int64, "F32": np.float32, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "I8": np.int8}
_MAX_UNPARSED = np.iinfo(np.uint16).max

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Part:
    """The arrays of a part; see the module."""

    keys: Integers
    vectors: npt.NDArray[np.int8]
    scales: Floats
    norms: npt.NDArray[np.uint8]
    paper: Array
    display: Array
    latex: Array
    codes: Codes
    starts: Array
    rows: npt.NDArray[np.uint16]
    tree_starts: Array
    labels: Array
    depths: Array
    label_starts: Array
    label_bytes: npt.NDArray[np.uint8]
    unparsed: Array
    forms: Codes

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def build(cls, features: Sequence[TreeFeatures], columns: EquationColumns) -> Part:
        """Make a part of the features of equations, whose keys are ascending, and of their columns."""
        vectors = np.concatenate([some.vectors for some in features])
        largest = np.abs(vectors).max(axis=1, initial=0)
        rounded = np.rint(vectors * (_MAX_CODE / np.where(largest > 0, largest, 1))[:, None]).astype(np.int8)
        # So scaled, rounded vectors have length one, and equal ones stay equal.
        lengths = np.linalg.norm(rounded.astype(np.float32), axis=1)
        scales = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1), 0).astype(np.float32)
        counts = np.concatenate([np.diff(some.term_starts) for some in features])
        owners = np.repeat(np.arange(len(counts)), counts)
        return cls(
            keys=np.concatenate([some.keys for some in features]),
            vectors=rounded,
            scales=scales,
            norms=np.concatenate([some.norms for some in features]),
            paper=columns.paper.astype(np.uint32),
            display=columns.display.astype(np.uint16),
            latex=columns.latex.astype(np.uint32),
            **_sort_terms(owners, np.concatenate([some.codes for some in features])),
            **_pack_operators(OperatorForest.concatenate([some.operators for some in features])),
        )

    @classmethod
    def merge(cls, parts: Sequence[Part], alive: Sequence[npt.NDArray[np.bool_]]) -> Part:
        """Make one part of those equations of several parts that are alive."""
        # Arrays with one row for each equation, part after part, and then in the order of keys.
        pieces = {
            name: [getattr(part, name)[kept] for part, kept in zip(parts, alive, strict=True)] for name in _BY_ROW
        }
        order = np.argsort(np.concatenate(pieces["keys"]), kind="stable")
        places = np.argsort(order)
        owners = []
        codes = []
        forests = []
        before = 0
        for part, kept in zip(parts, alive, strict=True):
            count = int(np.count_nonzero(kept))
            # The new row of each equation that is alive.
            new_rows = np.full(len(part), -1)
            new_rows[kept] = places[before : before + count]
            before += count
            owner = new_rows[part.rows]
            owners.append(owner[owner >= 0])
            codes.append(np.repeat(part.codes, np.diff(part.starts))[owner >= 0])
            forests.append(part.read_operators(np.flatnonzero(kept)))
        return cls(
            **{name: np.concatenate(arrays)[order] for name, arrays in pieces.items()},
            **_sort_terms(np.concatenate(owners), np.concatenate(codes)),
            **_pack_operators(OperatorForest.concatenate(forests).select(order)),
        )

    def write(self, folder: Path) -> PartEntry:
        """Write the part to a new file and return what the manifest says of it."""
        # The library writes memory as it is, whatever the order of an array's dimensions.
        arrays = {field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)}
        content = safetensors.save(arrays)
        digest = sha256(content).hexdigest()
        name = f"part-{digest[:16]}.safetensors"
        write_file(folder / name, content)
        return PartEntry(
            file=name,
            bytes=len(content),
            sha256=digest,
            count=len(self),
            unparsed=int(np.count_nonzero(self.unparsed)),
        )

    @classmethod
    def open(cls, folder: Path, entry: PartEntry) -> Part:
        """Map a part into memory and compare it with its hash; raises `CorruptData`."""
        path = folder / entry.file
        try:
            with path.open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            if len(data) != entry.bytes or sha256(data).hexdigest() != entry.sha256:
                raise CorruptData(f"{path}: does not match its hash; {REBUILD_HINT}")
            return cls(**_view_arrays(data))
        # An empty file cannot be mapped: a `ValueError`.
        except (OSError, ValueError) as error:
            raise CorruptData(f"{path}: cannot be read ({error}); {REBUILD_HINT}") from error

    @cached_property
    def length_factors(self) -> Floats:
        """By what the total weight of an equation's terms is multiplied: long formulas have more of any terms."""
        return normalise_length(np.diff(self.tree_starts))

    def find_lists(self, codes: Codes) -> tuple[Integers, Integers]:
        """Return where the rows of each term begin and end in `rows`."""
        at = np.searchsorted(self.codes, codes)
        known = at < len(self.codes)
        known[known] = self.codes[at[known]] == codes[known]
        at = np.where(known, at, 0)
        starts = np.where(known, self.starts[at], 0).astype(np.int64)
        ends = np.where(known, self.starts[at + known], 0).astype(np.int64)
        return starts, ends

    def read_vectors(self, rows: Integers) -> Floats:
        """Return the vectors of some rows."""
        vectors: Floats = self.vectors[rows] * self.scales[rows, None]
        return vectors

    @cached_property
    def label_names(self) -> list[str]:
        """All labels of the operator trees, by their number."""
        names = self.label_bytes.tobytes()
        return [names[start:end].decode() for start, end in pairwise(self.label_starts.tolist())]

    def read_operators(self, rows: Integers) -> OperatorForest:
        """Return the operator trees of some rows, each with one statement of `SAME_FORM_KINDS` only.

        They keep the whole list of labels.
        """
        nodes, offsets = gather_rows(self.tree_starts, rows)
        forms = np.zeros((len(rows), len(FORM_KINDS)), np.uint32)
        forms[:, : len(SAME_FORM_KINDS)] = self.forms[rows]
        return OperatorForest(
            labels=self.label_names,
            label=self.labels[nodes].astype(np.int64),
            depth=self.depths[nodes].astype(np.int64),
            offsets=offsets,
            unparsed=self.unparsed[rows].astype(np.int64),
            forms=forms,
            form_offsets=np.arange(len(rows) + 1),
        )


class LabelTable:
    """The labels of several parts in one list, each described once, when a search first needs it."""

    def __init__(self, parts: Sequence[Part]) -> None:
        known: dict[str, int] = {}
        # The common number of each label, by the identity of the part.
        self._numbers = {
            id(part): np.array([known.setdefault(name, len(known)) for name in part.label_names], np.int64)
            for part in parts
        }
        self._labels = list(known)
        self._properties = np.zeros((len(known), LABEL_COLUMNS), np.uint64)
        self._is_described = np.zeros(len(known), bool)

    def join(self, parts: Sequence[tuple[Part, OperatorForest]]) -> OperatorForest:
        """Return one forest of trees, each given with the part from which it was read."""
        forests = [
            replace(trees, labels=self._labels, label=self._numbers[id(part)][trees.label]) for part, trees in parts
        ]
        joined = OperatorForest.concatenate(forests)
        is_used = np.zeros(len(self._labels), bool)
        is_used[joined.label] = True
        # Two threads may describe a label at once: both write the same.
        new = np.flatnonzero(is_used & ~self._is_described)
        self._properties[new] = describe_labels([self._labels[number] for number in new.tolist()])
        self._is_described[new] = True
        joined.__dict__["properties"] = self._properties
        return joined


def _sort_terms(owners: Integers, codes: Codes) -> dict[str, Array]:
    """Return the arrays of terms, given the row and the code of each."""
    pairs = codes.astype(np.uint64) << np.uint64(16) | owners.astype(np.uint64)
    pairs.sort()
    # Two terms of a row may have the same code.
    pairs = pairs[np.diff(pairs, prepend=~pairs[:1]) != 0]
    ordered = pairs >> np.uint64(16)
    first = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))
    return {
        "codes": ordered[first].astype(np.uint32),
        "starts": np.append(first, len(pairs)).astype(np.uint32),
        "rows": (pairs & np.uint64(MAX_ROWS - 1)).astype(np.uint16),
    }


def _pack_operators(forest: OperatorForest) -> dict[str, Array]:
    """Return the arrays of operator trees."""
    used, label = np.unique(forest.label, return_inverse=True)
    names = [forest.labels[at].encode() for at in used.tolist()]
    return {
        "tree_starts": forest.offsets.astype(np.uint32),
        "labels": _shrink(label),
        "depths": _shrink(forest.depth),
        "label_starts": accumulate(np.array([len(name) for name in names], np.int64)).astype(np.uint32),
        "label_bytes": np.frombuffer(b"".join(names), np.uint8),
        "unparsed": np.minimum(forest.unparsed, _MAX_UNPARSED).astype(np.uint16),
        "forms": np.ascontiguousarray(forest.formula_forms[:, : len(SAME_FORM_KINDS)]),
    }


def _shrink(values: Integers) -> Array:
    """Return the numbers, which are not negative, in as few bytes as the highest needs."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _view_arrays(data: memoryview) -> dict[str, Array]:
    """Return the arrays of a safetensors file as views of its content, which the library would copy."""
    length = int.from_bytes(data[:8], "little")
    arrays = {}
    for name, entry in json.loads(bytes(data[8 : 8 + length])).items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        arrays[name] = np.frombuffer(data[start:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays
