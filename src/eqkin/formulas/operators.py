"""Operator trees: what a formula says instead of how it is set, in flat arrays.

`eqkin.formulas.engine` makes them from presentation trees, `eqkin.formulas.terms` extracts terms from them. A
label is an operator (`+`, `frac`, `D`, `f:sin`, `app`) or a leaf with its kind: variable `v:x`, number `n:2`, constant
`c:∞`, name `fn:sin`, `text:`, sign `o:→`. The statements of a formula are the formula itself, which comes first, and
the relations in its chains, lists and rows: `a = b = c` says `a = b`, `b = c`, `a = c`.

An outline is an operator tree without details that authors add or leave out: see `eqkin.formulas.terms`. Which labels
are details, relations or operators without an order is known to the scripts; Python asks once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.formulas.forest import accumulate, gather_rows, hash_columns, join_strings, pack_columns, unpack_columns
from eqkin.formulas.hashing import Codes, LabelKinds, hash_string

Integers = npt.NDArray[np.int64]
# The forms of a statement. canonical: notation unified; renamed: variables without names; weak: terms moved, scaled,
# solved for a variable.
FORM_KINDS = ("canonical", "renamed", "weak", "weak renamed")
# Two statements that share one of these forms are the same, up to names and notation.
SAME_FORM_KINDS = FORM_KINDS[:3]
# The columns of what `describe_labels` returns.
LABEL_COLUMNS = 4
_MAX_CACHED_LABELS = 1 << 16
_ANY_VARIABLE = hash_string("any variable")


@dataclass(frozen=True)
class OperatorForest:
    """Operator trees, tree after tree, each in depth-first order."""

    labels: list[str]
    # (nodes,) index into labels.
    label: Integers
    # (nodes,) number of ancestors.
    depth: Integers
    # (trees + 1,) first node of each tree.
    offsets: Integers
    # (trees,) presentation nodes without a meaning here, which keep their structure.
    unparsed: Integers
    # (statements, FORM_KINDS) hashes; a formula's first statement is all of it.
    forms: npt.NDArray[np.uint32]
    # (trees + 1,) first statement of each tree.
    form_offsets: Integers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def formula_forms(self) -> npt.NDArray[np.uint32]:
        """Forms of whole formulas, (trees, FORM_KINDS)."""
        return self.forms[self.form_offsets[:-1]]

    @cached_property
    def properties(self) -> Codes:
        """What `describe_labels` says of the labels that occur: (labels, LABEL_COLUMNS)."""
        return describe_labels(self.labels)

    def select(self, trees: Sequence[int] | Integers) -> OperatorForest:
        """Return a forest of the given trees, in that order; it keeps the whole list of labels."""
        trees = np.asarray(trees, np.int64)
        nodes, offsets = gather_rows(self.offsets, trees)
        statements, form_offsets = gather_rows(self.form_offsets, trees)
        selected = OperatorForest(
            labels=self.labels,
            label=self.label[nodes],
            depth=self.depth[nodes],
            offsets=offsets,
            unparsed=self.unparsed[trees],
            forms=self.forms[statements],
            form_offsets=form_offsets,
        )
        # The labels are the same, so what is known of them need not be looked up again.
        if "properties" in self.__dict__:
            selected.__dict__["properties"] = self.properties
        return selected

    @classmethod
    def concatenate(cls, forests: Sequence[OperatorForest]) -> OperatorForest:
        """Return one forest of all trees, one forest after the other, with a common list of labels."""
        if len(forests) == 1:
            return forests[0]
        labels, label = join_strings([forest.labels for forest in forests], [forest.label for forest in forests])
        depths = [forest.depth for forest in forests]
        sizes = [np.diff(forest.offsets) for forest in forests]
        unparsed = [forest.unparsed for forest in forests]
        forms = [forest.forms for forest in forests]
        statements = [np.diff(forest.form_offsets) for forest in forests]
        nothing = np.zeros(0, np.int64)
        return cls(
            labels=labels,
            label=label.astype(np.int64),
            depth=np.concatenate([nothing, *depths]),
            offsets=accumulate(np.concatenate([nothing, *sizes])),
            unparsed=np.concatenate([nothing, *unparsed]),
            forms=np.concatenate([np.zeros((0, len(FORM_KINDS)), np.uint32), *forms]),
            form_offsets=accumulate(np.concatenate([nothing, *statements])),
        )

    def to_bytes(self) -> bytes:
        """Return the stored form of these trees, with only the labels they use; `from_bytes` reads it."""
        return pack_columns(*self._get_parts())

    def compute_digest(self) -> str:
        """Return the hexadecimal SHA-256 of the content, which is the same however the labels are numbered."""
        return hash_columns(*self._get_parts())

    def _get_parts(self) -> tuple[list[list[str]], list[npt.NDArray[Any]]]:
        used, place = np.unique(self.label, return_inverse=True)
        names = [self.labels[number] for number in used.tolist()]
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.zeros(len(names), np.int64)
        rank[order] = np.arange(len(names))
        forms = [self.forms[:, column] for column in range(len(FORM_KINDS))]
        sizes = [np.diff(self.offsets), np.diff(self.form_offsets)]
        return [[names[at] for at in order]], [rank[place], self.depth, self.unparsed, *sizes, *forms]

    @classmethod
    def from_bytes(cls, packed: bytes) -> OperatorForest:
        """Return the trees that `to_bytes` stored; raises `CorruptData` for bytes that were changed since."""
        (labels,), columns = unpack_columns(packed, 1, 5 + len(FORM_KINDS))
        label, depth, unparsed, sizes, n_statements = (column.astype(np.int64) for column in columns[:5])
        return cls(
            labels=labels,
            label=label,
            depth=depth,
            offsets=accumulate(sizes),
            unparsed=unparsed,
            forms=np.stack(columns[5:], axis=1).astype(np.uint32),
            form_offsets=accumulate(n_statements),
        )

    def validate(self) -> None:
        """Check that the arrays describe trees; raises `CorruptData`."""
        nodes = len(self.label)
        ends = [self.offsets[-1], self.form_offsets[-1], len(self.depth), len(self.form_offsets), len(self.unparsed)]
        if ends != [nodes, len(self.forms), nodes, len(self.offsets), len(self)]:
            raise CorruptData("operator trees: arrays differ in length")
        if (np.diff(self.offsets) < 1).any() or (np.diff(self.form_offsets) < 1).any():
            raise CorruptData("operator trees: a tree is empty")
        if nodes and not 0 <= int(self.label.min()) <= int(self.label.max()) < len(self.labels):
            raise CorruptData("operator trees: a label points past its list")
        # Depth begins at zero in each tree, and grows by at most one from a node to the next.
        is_root = np.zeros(nodes, bool)
        is_root[self.offsets[:-1]] = True
        steps = np.diff(self.depth, prepend=0)
        if ((self.depth == 0) != is_root).any() or (steps > 1).any():
            raise CorruptData("operator trees: depths do not make a tree")

    def to_json(self, tree: int) -> Any:
        """Return a tree as nested lists: `["=", "v:E", ["*", "v:m", ["pow", "v:c", "n:2"]]]`."""
        # Depth and subtree of the nodes that wait for their parent, the last one first.
        done: list[tuple[int, Any]] = []
        for node in range(self.offsets[tree + 1] - 1, self.offsets[tree] - 1, -1):
            name = self.labels[self.label[node]]
            depth = self.depth[node]
            children = []
            while done and done[-1][0] > depth:
                children.append(done.pop()[1])
            done.append((depth, [name, *children] if children else name))
        return done[0][1]


def share_form(
    forms: npt.NDArray[np.uint32], form: npt.NDArray[np.uint32], kinds: Sequence[str] = SAME_FORM_KINDS
) -> npt.NDArray[np.bool_]:
    """Return which statements say the same as one: in the same names, consistently renamed, or with terms moved.

    Statements that could not be parsed have zeros as forms, and say the same as none.

    Args:
        forms: Hashes of statements (n, FORM_KINDS).
        form: Hashes of one, (1, FORM_KINDS).
        kinds: Those of `FORM_KINDS` that are compared.
    """
    columns = [FORM_KINDS.index(kind) for kind in kinds]
    same: npt.NDArray[np.bool_] = ((forms[:, columns] == form[:, columns]) & (form[:, columns] != 0)).any(axis=1)
    return same


def describe_labels(labels: Iterable[str]) -> Codes:
    """Return what terms are made of: (labels, LABEL_COLUMNS).

    The columns are hashes of a label, of its label in an outline, of that without the name of a variable, and bits of
    `LabelKinds`.
    """
    return np.array([_describe_label(label) for label in labels], np.uint64).reshape(-1, LABEL_COLUMNS)


@lru_cache(_MAX_CACHED_LABELS)
def _describe_label(label: str) -> tuple[int, ...]:
    tables = load_label_tables()
    outline = simplify_label(label)
    outlined = hash_string(outline)
    anonymous = _ANY_VARIABLE if outline.startswith("v:") else outlined
    # Every search meets dozens of new labels, most of them variables.
    if label.startswith("v:"):
        bits = LabelKinds.VARIABLE
    else:
        bits = (
            LabelKinds.UNORDERED * (outline in tables["unordered"])
            | LabelKinds.APPLIED * (label in tables["applied"])
            | LabelKinds.INDEXED * (label == "idx")
            | LabelKinds.DETAIL * (label in tables["details"])
            | LabelKinds.WRAPPER * (label in tables["wrappers"])
        )
    bits |= LabelKinds.PLAIN * (label.partition(":")[0] in tables["plain"])
    return hash_string(label), outlined, anonymous, bits


def simplify_label(label: str) -> str:
    """Return the label in an outline: a variable without decoration, one kind of relation, one kind of quotient."""
    tables = load_label_tables()
    kind, _, text = label.partition(":")
    if kind == "fn":
        return f"v:{text}"
    if kind == "v":
        # Nearly all variables are a single letter.
        if len(text) < 2:
            return label
        end = next((at for at, sign in enumerate(text) if sign in tables["decorations"]), len(text))
        return f"v:{text[:end]}" if end else label
    if label in tables["relations"]:
        return "="
    return "frac" if label == "D" else label


@cache
def load_label_tables() -> dict[str, frozenset[str]]:
    """Return the labels of each kind."""
    from eqkin.formulas.engine import borrow_engine

    with borrow_engine() as engine:
        return engine.describe_labels()
