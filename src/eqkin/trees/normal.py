"""The normal form of trees: a formula without differences that only typesetting makes.

    removed      mspace, blank mtext, and everything below them; invisible operators and the dot of a product
    dissolved    mrow, mstyle, mpadded and math inside one of these: their members take their place
                 elsewhere, if they have one member: it takes their place; if they have none, nothing remains
    identified   limits and scripts (`munder` is `msub`); signs that look or mean the same (`normalise_text`);
                 a symbol that is not a letter is an operator, whatever its tag

`Normaliser` computes it for a whole forest in flat arrays, for terms; the remaining nodes keep their depth-first
order, so a subtree is still contiguous.

The bundled idf table was counted on terms of this normal form: a change of its rules changes their hashes.
Rules that came later are therefore an option, `exact`, for comparing formulas sign by sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.forest import (
    Array,
    Forest,
    Numbers,
    Places,
    compute_first_children,
    compute_parents,
    compute_ranks_and_sizes,
    number_values,
)
from eqkin.trees.hashing import Codes, combine_hashes, hash_strings

Flags = npt.NDArray[np.bool_]

ROW_TAGS = frozenset({"mrow", "mstyle", "mpadded", "math"})  # dissolved inside each other
HORIZONTAL_TAGS = ROW_TAGS | {"mtd", "msqrt", "menclose", "merror", "mphantom"}  # their children are one row
_UNORDERED_TAGS = ROW_TAGS | {"mtable", "mtr", "mtd"}  # the position among the children does not matter
_SCRIPT_TAGS = {"munder": "msub", "mover": "msup", "munderover": "msubsup"}
_INVISIBLE_SIGNS = frozenset("\u2061\u2062\u2063\u2064\u200b")  # function application, times, separator, plus
_PRODUCT = "\u22c5"
_EQUIVALENT_SIGNS = {
    "⋯": "…", "∣": "|", "❘": "|", "‖": "∥", "⟶": "→", "⟵": "←", "⟹": "⇒", "⟺": "⇔", "⟼": "↦", "⩽": "≤", "⩾": "≥",
    "∗": "*", "⋆": "*", "ε": "ϵ", "ϕ": "φ", "ϑ": "θ", "∅": "⌀", "≔": "=",
}  # fmt: skip
_ANGLES = {"⟨": "<", "⟩": ">"}  # people type < for a bracket
# signs of MathML from elsewhere
_TYPED_SIGNS = {"-": "−", "·": _PRODUCT, "'": "′", "〈": "⟨", "〉": "⟩"}  # noqa: RUF001
_FEATURE_SIGNS = _EQUIVALENT_SIGNS | _ANGLES
_EXACT_SIGNS = _EQUIVALENT_SIGNS | _TYPED_SIGNS
_BLANK_SIGN = "\u2423"  # replaces blanks inside a label
_NO_TAG_SIGN = "\u2205"  # replaces an empty tag
_VARIANT_PREFIX = "mathvariant="
_UPRIGHT_VARIANT = "normal"  # which the converter gives to most symbols that are not letters


def normalise_tag(tag: str) -> str:
    """Return the tag that counts: a limit is a script, because the style decides where limits are set."""
    return _SCRIPT_TAGS.get(tag, tag)


def normalise_text(text: str, *, exact: bool = False) -> str:
    """Return the text of a leaf with a visible sign for blanks, and one sign for all that mean the same.

    With `exact`, angle brackets stay brackets, and ASCII signs are those they are typed for.
    """
    text = replace_blanks(text)
    return (_EXACT_SIGNS if exact else _FEATURE_SIGNS).get(text, text)


def is_silent(tag: str, text: str, *, exact: bool = False) -> bool:
    """Return whether a leaf says nothing: space, blank text, an invisible operator, the dot of a product.

    With `exact`, the dot counts, and any leaf without visible text says nothing.
    """
    sign = text.strip()
    if exact or tag == "mspace":
        return tag == "mspace" or not sign or sign in _INVISIBLE_SIGNS
    return (tag == "mtext" and not sign) or (tag in ("mi", "mo") and (sign in _INVISIBLE_SIGNS or sign == _PRODUCT))


def is_sign(text: str) -> bool:
    """Return whether a symbol is an operator rather than a name, even if it is tagged as an identifier."""
    return bool(text.strip()) and not any(map(str.isalnum, text))


def normalise_variant(variant: str) -> str:
    """Return the variant of a letter (bold, script); an upright letter has none."""
    return "" if variant == _UPRIGHT_VARIANT else variant


def replace_blanks(text: str) -> str:
    """Return the text with a visible sign for the blanks between its words."""
    return _BLANK_SIGN.join(text.split())


def find_variants(attributes: list[str]) -> tuple[list[str], Places]:
    """Return the distinct variants of letters, first the usual one, and the index of each attribute entry's variant."""
    distinct = {"": 0}
    of_entry = np.zeros(len(attributes), np.int64)
    for at, lines in enumerate(attributes):
        found = [line[len(_VARIANT_PREFIX) :] for line in lines.split("\n") if line.startswith(_VARIANT_PREFIX)]
        if found and normalise_variant(found[0]):
            of_entry[at] = distinct.setdefault(found[0], len(distinct))
    return list(distinct), of_entry


def label_nodes(forest: Forest) -> tuple[list[str], Numbers]:
    """Return the distinct labels of all nodes as they are, and the index of each node's label.

    The label of a leaf is its tag, its text and the variant of the letter; that of an inner node is its tag. Other
    attributes only concern layout.
    """
    written, variant = find_variants(forest.attributes)
    code = (forest.tag.astype(np.int64) * len(forest.texts) + forest.text) * len(written) + variant[forest.attribute]
    codes, label = number_values(code)
    names: dict[str, int] = {}
    merged = np.empty(len(codes), np.int32)  # blanks may make two of them one
    for at, value in enumerate(codes.tolist()):
        rest, how = divmod(value, len(written))
        tag, text = divmod(rest, len(forest.texts))
        parts = [forest.texts[text], written[how]] if forest.texts[text] else []
        name = replace_blanks(":".join(filter(None, [forest.tags[tag] or _NO_TAG_SIGN, *parts])))
        merged[at] = names.setdefault(name, len(names))
    return list(names), merged[label]


@dataclass(frozen=True)
class NormalNodes:
    """The normal form of some trees, tree after tree, in depth-first order."""

    tree: Places  # (nodes,) tree of each node
    parent: Places  # (nodes,) place of its parent; -1 for a root
    size: Places  # (nodes,) size of its subtree
    n_children: Places  # (nodes,)
    row: Flags  # (nodes,) whether it is a row
    identifier: Flags  # (nodes,) whether it is a leaf <mi> of one letter: what could have another name
    label: Codes  # (nodes,) hash of tag, text and variant
    slot: Codes  # (nodes,) hash of the parent's tag and, except in rows and tables, of the position
    name: Places  # (nodes,) the same number for leaves with the same text and variant


class Normaliser:
    """Computes the normal form of trees of one forest; what follows from its strings is computed once."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        tags, texts = forest.tags, forest.texts
        self._row, self._ordered, self._space, self._text, self._identifier, self._symbol = (
            np.array([tag in wanted for tag in tags], bool)
            for wanted in (ROW_TAGS, frozenset(tags) - _UNORDERED_TAGS, {"mspace"}, {"mtext"}, {"mi"}, {"mi", "mo"})
        )
        self._letter = np.array([len(text) == 1 and text.isalpha() for text in texts], bool)
        self._silent = np.array([is_silent("mo", text) for text in texts], bool)
        self._sign = np.array([is_sign(text) for text in texts], bool)
        self._blank = np.array([not text.strip() for text in texts], bool)
        written, self._variant = find_variants(forest.attributes)
        said: dict[str, int] = {}
        self._said = np.array([said.setdefault(normalise_text(text), len(said)) for text in texts], np.int64)
        self._variants = len(written)
        self._tag_code = hash_strings([normalise_tag(tag) for tag in tags])
        self._text_code, self._variant_code = hash_strings(said), hash_strings(written)
        self._row_code, self._operator_code = hash_strings(["mrow", "mo"])

    def normalise(self, trees: slice, nodes: slice) -> NormalNodes:
        """Return the normal form of consecutive trees, given as slices of trees and of nodes."""
        forest = self._forest
        tag, text = forest.tag[nodes], forest.text[nodes]
        counts, offsets = forest.n_children[nodes], forest.offsets[trees.start : trees.stop + 1] - nodes.start
        silent = self._space[tag] | (self._text[tag] & self._blank[text]) | (self._symbol[tag] & self._silent[text])
        stays, above, position = _place_nodes(counts, offsets, self._row[tag], silent)
        rank, size = compute_ranks_and_sizes(counts, offsets)
        tree = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        place = rank + offsets[tree]
        kept = np.empty_like(place)
        kept[place] = np.arange(len(place))
        stays = stays[kept]
        before = np.concatenate(([0], np.cumsum(stays)))  # nodes that stay before each place
        kept = kept[stays]
        at, above = place[kept], above[kept]
        parent = np.where(above < 0, -1, before[place[above]])
        n_children = np.bincount(parent[above >= 0], minlength=len(kept))
        tag, row = tag[kept], self._row[tag[kept]]
        name, label = self._compute_labels(tag, text[kept], forest.attribute[nodes][kept])
        number = np.where(self._ordered[tag][parent], position[kept] + 1, 0).astype(np.uint64)
        return NormalNodes(
            tree=tree[kept],
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
        """Return a number for each node's text and variant, and the hash of its label."""
        said, variant = self._said[text], self._variant[attribute]
        variant[self._blank[text]] = 0
        kind = np.where(self._identifier[tag] & self._sign[text], self._operator_code, self._tag_code[tag])
        label = combine_hashes(kind, combine_hashes(self._text_code[said], self._variant_code[variant]))
        label[self._row[tag]] = self._row_code
        return said * self._variants + variant, label


def _place_nodes(counts: Array, offsets: Places, row: Flags, silent: Flags) -> tuple[Flags, Places, Places]:
    """Return which nodes stay, the nodes that stay above them (-1: none), and their positions outside of rows.

    Rows directly inside rows always go; other rows stay if they have at least two members. A member is a node that is
    not a row, with only rows between it and the outermost of them.
    """
    here = np.arange(len(counts))
    parent = compute_parents(counts, offsets)
    gone = silent.copy()  # with everything below
    while (gone & (counts > 0)).any():
        found = gone[parent] & ~gone
        if not found.any():
            break
        gone |= found
    outermost = np.where(row & row[parent], parent, here)  # of the rows around a row; a node that is not one: itself
    while not np.array_equal(further := outermost[outermost], outermost):
        outermost = further
    staying = ~row & ~gone
    member = np.flatnonzero(staying & row[parent])
    its_row = outermost[parent[member]]
    members = np.bincount(its_row, minlength=len(counts))
    outer = row & ~gone & (outermost == here)
    instead = here.copy()  # whose place it takes
    only = members[its_row] == 1
    instead[member[only]] = its_row[only]
    above = outermost[parent[instead]]
    above[instead == parent[instead]] = -1
    filled = np.concatenate(([0], np.cumsum(staying | (outer & (members > 0)))))
    first_child = compute_first_children(counts, offsets)
    return staying | (outer & (members > 1)), above, filled[instead] - filled[first_child[above]]
