"""The normal form of trees: a formula without differences that only typesetting makes.

    removed      mspace, blank mtext, and everything below them; invisible operators and the dot of a product
    dissolved    mrow, mstyle, mpadded and math inside one of these: their members take their place
                 elsewhere, if they have one member: it takes their place; if they have none, nothing remains
    identified   limits and scripts (`munder` is `msub`), signs that look or mean the same (`EQUIVALENT_SIGNS`)

Terms, tokens, wildcards, deduplication and explanations all use it. The remaining nodes keep their depth-first order,
so a subtree is still contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.forest import Array, Forest, Numbers, compute_ranks_and_sizes
from eqkin.trees.hashing import Codes, combine_hashes, hash_strings

_BLANK_SIGN = "\u2423"  # stands for blanks inside a label
_NO_TAG_SIGN = "\u2205"  # stands for a tag without a name
_VARIANT_PREFIX = "mathvariant="
_UPRIGHT_VARIANT = "normal"  # which the converter gives to most symbols that are not letters


def label_nodes(forest: Forest) -> tuple[list[str], Numbers]:
    """What each node says: the distinct labels, and the index of each node's.

    A leaf's label is its tag and its text, so that a variable, a number and an operator differ, and how the letter is
    written (bold, script) unless that is upright; an inner node's is its tag. Other attributes are about layout alone.
    """
    written, variant = find_variants(forest.attributes)
    code = forest.tag.astype(np.int64)
    code *= len(forest.texts)
    code += forest.text
    code *= len(written)
    code += variant[forest.attribute]
    codes, label = _find_distinct(code, len(forest.tags) * len(forest.texts) * len(written))
    names: dict[str, int] = {}
    merged = np.empty(len(codes), np.int32)  # blanks may make two of them one
    for at, value in enumerate(codes.tolist()):
        rest, how = divmod(value, len(written))
        tag, text = divmod(rest, len(forest.texts))
        merged[at] = names.setdefault(_format_label(forest.tags[tag], forest.texts[text], written[how]), len(names))
    return list(names), merged[label]


def find_variants(attributes: list[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct ways letters are written, first the usual one, and the index of each attribute entry's."""
    distinct = {"": 0}
    of_entry = np.zeros(len(attributes), np.int64)
    for at, lines in enumerate(attributes):
        found = [line[len(_VARIANT_PREFIX) :] for line in lines.split("\n") if line.startswith(_VARIANT_PREFIX)]
        if found and found[0] != _UPRIGHT_VARIANT:
            of_entry[at] = distinct.setdefault(found[0], len(distinct))
    return list(distinct), of_entry


def replace_blanks(text: str) -> str:
    """The text with a visible sign for the blanks between its words."""
    return _BLANK_SIGN.join(text.split())


def _find_distinct(codes: npt.NDArray[np.int64], bound: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct codes, ascending, and where each one stands among them; without sorting if there is room."""
    if bound > 1 << 26:
        values, inverse = np.unique(codes, return_inverse=True)
        return values, inverse.reshape(-1)
    present = np.zeros(max(bound, 1), bool)
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]


def _format_label(tag: str, text: str, variant: str) -> str:
    parts = [tag or _NO_TAG_SIGN] + ([text] if text else []) + ([variant] if variant and text else [])
    return replace_blanks(":".join(parts))


Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SILENT_OPERATORS = frozenset(
    "\u2061\u2062\u2063\u2064\u200b\u22c5"
)  # function application, invisible operators, product
EQUIVALENT_SIGNS = {
    "munder": "msub", "mover": "msup", "munderover": "msubsup",
    "⋯": "…", "∣": "|", "❘": "|", "‖": "∥", "⟶": "→", "⟵": "←", "⟹": "⇒", "⟺": "⇔", "⟼": "↦", "⩽": "≤", "⩾": "≥",
    "∗": "*", "⋆": "*", "⟨": "<", "⟩": ">", "ε": "ϵ", "ϕ": "φ", "ϑ": "θ", "∅": "⌀", "≔": "=",
}  # fmt: skip

ROW_TAGS = frozenset({"mrow", "mstyle", "mpadded", "math"})
_UNORDERED_TAGS = frozenset({"mrow", "mtable", "mtr", "mtd"})  # where it makes no difference which child one is


@dataclass(frozen=True)
class NormalNodes:
    """Nodes that are left of some trees, tree after tree, in depth-first order."""

    tree: Places  # (nodes,) tree of each node
    node: Places  # (nodes,) which node of the forest it is, counted from the first given
    parent: Places  # (nodes,) its parent's place; -1 for a root
    size: Places  # (nodes,) nodes of its subtree
    n_children: Places  # (nodes,)
    row: Flags  # (nodes,) whether it is a row
    identifier: Flags  # (nodes,) whether it is a leaf <mi> of one letter: what could have another name
    label: Codes  # (nodes,) tag, text, and how the letter is written; a sign is an operator, whatever its tag
    slot: Codes  # (nodes,) which child of what it is: tag of the parent and, but in rows and tables, the position
    name: Places  # (nodes,) the same for leaves with the same text, written the same way


class Normaliser:
    """Simplifies trees of one forest; what follows from its strings is found once."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        numbered = frozenset(forest.tags) - _UNORDERED_TAGS - ROW_TAGS
        self._row, self._numbered, self._space, self._text, self._identifier, self._sign = (
            np.array([tag in wanted for tag in forest.tags], bool)
            for wanted in (ROW_TAGS, numbered, {"mspace"}, {"mtext"}, {"mi"}, {"mi", "mo"})
        )
        self._letter = np.array([len(text) == 1 and text.isalpha() for text in forest.texts], bool)
        self._silent = np.array([text.strip() in SILENT_OPERATORS for text in forest.texts], bool)
        self._word = np.array([any(map(str.isalnum, text)) for text in forest.texts], bool)
        self._blank = np.array([not text.strip() for text in forest.texts], bool)
        written, self._variant = find_variants(forest.attributes)
        said: dict[str, int] = {}
        texts = (replace_blanks(text) for text in forest.texts)
        self._said = np.array(
            [said.setdefault(EQUIVALENT_SIGNS.get(text, text), len(said)) for text in texts], np.int64
        )
        self._variants = len(written)
        tags = [EQUIVALENT_SIGNS.get(tag, tag) for tag in forest.tags]
        self._tag_code, self._text_code, self._variant_code = (
            hash_strings(tags),
            hash_strings(said),
            hash_strings(written),
        )
        self._row_code, self._operator_code = hash_strings(["mrow", "mo"])
        self._last: tuple[slice, slice, NormalNodes] | None = None

    def __call__(self, trees: slice, nodes: slice) -> NormalNodes:
        """The nodes left of consecutive trees, given by which they are and which nodes they have.

        What was asked for last is kept: terms and tokens of a few trees are both made of it.
        """
        last = self._last
        if last is None or (last[0], last[1]) != (trees, nodes):
            last = self._last = trees, nodes, self._normalise(trees, nodes)
        return last[2]

    def _normalise(self, trees: slice, nodes: slice) -> NormalNodes:
        forest = self._forest
        tag, text = forest.tag[nodes], forest.text[nodes]
        counts, offsets = forest.n_children[nodes], forest.offsets[trees.start : trees.stop + 1] - nodes.start
        blank = self._space[tag] | (self._text[tag] & self._blank[text]) | (self._sign[tag] & self._silent[text])
        left = _place_nodes(counts, offsets, self._row[tag], blank)
        rank, size = compute_ranks_and_sizes(counts, offsets)
        tree = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        place = rank + offsets[tree]
        kept = np.empty_like(place)
        kept[place] = np.arange(len(place))
        stays = left.stays[kept]
        before = np.concatenate(([0], np.cumsum(stays)))  # nodes that stay before each place
        kept = kept[stays]
        at, above = place[kept], left.parent[kept]
        parent = np.where(above < 0, -1, before[place[above]])
        n_children = np.bincount(parent[above >= 0], minlength=len(kept))
        tag, row = tag[kept], self._row[tag[kept]]
        name, label = self._compute_labels(tag, text[kept], forest.attribute[nodes][kept])
        number = np.where(self._numbered[tag][parent], left.position[kept] + 1, 0).astype(np.uint64)
        return NormalNodes(
            tree=tree[kept],
            node=kept,
            parent=parent,
            size=before[at + size[kept]] - before[at],
            n_children=n_children,
            row=row,
            identifier=self._identifier[tag] & self._letter[text[kept]] & (n_children == 0),
            name=name,
            label=label,
            slot=combine_hashes(np.where(row, self._row_code, self._tag_code[tag])[parent], number),
        )

    def _compute_labels(self, tag: Array, text: Array, attribute: Array) -> tuple[Places, Codes]:
        """Number of each node's text as it is written, and code of its label."""
        said, variant = self._said[text], self._variant[attribute]
        variant[self._blank[text]] = 0
        kind = np.where(
            self._identifier[tag] & ~self._word[text] & ~self._blank[text], self._operator_code, self._tag_code[tag]
        )
        label = combine_hashes(kind, combine_hashes(self._text_code[said], self._variant_code[variant]))
        label[self._row[tag]] = self._row_code
        return said * self._variants + variant, label


@dataclass(frozen=True)
class _Placement:
    """What becomes of each node, in the forest's order; said of nodes that stay alone."""

    stays: Flags
    parent: Places  # the node that stays above it; -1 for a root
    position: Places  # among its siblings, if its parent is not a row


def _place_nodes(counts: Array, offsets: Places, row: Flags, blank: Flags) -> _Placement:
    """Which nodes stay, and where.

    Rows directly within rows always go, others stay: if they have two members or more. A member is what is no row and
    has nothing but rows between it and the outermost of them.
    """
    here = np.arange(len(counts))
    parent = _compute_parents(counts, offsets)
    gone = _mark_below(blank, parent, counts)
    outermost = _find_outermost_rows(row, parent)
    staying = ~row & ~gone
    member = np.flatnonzero(staying & row[parent])
    its_row = outermost[parent[member]]
    members = np.bincount(its_row, minlength=len(counts))
    outer = row & ~gone & (outermost == here)
    instead = here.copy()  # whose place it takes
    only = members[its_row] == 1
    instead[member[only]] = its_row[only]
    above = parent[instead]
    above = outermost[above]  # a node that is no row is its own outermost
    above[instead == parent[instead]] = -1
    filled = np.concatenate(([0], np.cumsum(staying | (outer & (members > 0)))))
    children = np.cumsum(counts, dtype=np.int64) - counts + np.repeat(np.arange(1, len(offsets)), np.diff(offsets))
    return _Placement(staying | (outer & (members > 1)), above, filled[instead] - filled[children[above]])


def _compute_parents(counts: Array, offsets: Places) -> Places:
    """Each node's parent; a root is its own."""
    parent = np.empty(len(counts), np.int64)
    parent[offsets[:-1]] = offsets[:-1]
    inner = np.ones(len(counts), bool)
    inner[offsets[:-1]] = False
    parent[inner] = np.repeat(np.arange(len(counts)), counts)
    return parent


def _mark_below(marked: Flags, parent: Places, counts: Array) -> Flags:
    """Those marked and all nodes below them."""
    marked = marked.copy()
    while (marked & (counts > 0)).any():
        found = marked[parent] & ~marked
        if not found.any():
            break
        marked |= found
    return marked


def _find_outermost_rows(row: Flags, parent: Places) -> Places:
    """Of each row the outermost one it is in with nothing but rows between; of other nodes, the node itself."""
    up = np.where(row & row[parent], parent, np.arange(len(row)))
    while True:
        further = up[up]
        if np.array_equal(further, up):
            return up
        up = further
