"""The normal form of trees: a formula without differences that only typesetting makes.

    removed      mspace, blank mtext, and everything below them; invisible operators and the dot of a product
    dissolved    mrow, mstyle, mpadded and math inside one of these: their members take their place
                 elsewhere, if they have one member: it takes their place; if they have none, nothing remains
    identified   limits and scripts (`munder` is `msub`); signs that look or mean the same (`normalise_text`);
                 a symbol that is not a letter is an operator, whatever its tag

`Normaliser` computes it for a whole forest in flat arrays; the remaining nodes keep their depth-first order, so a
subtree is still contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eqkin.formulas.forest import Forest, Places
from eqkin.formulas.hashing import Codes, hash_string, hash_strings
from eqkin.formulas.mathml import ROW_TAGS

Flags = npt.NDArray[np.bool_]

_UNORDERED_TAGS = ROW_TAGS | {"mtable", "mtr", "mtd"}  # the position among the children does not matter
_SCRIPT_TAGS = {"munder": "msub", "mover": "msup", "munderover": "msubsup"}
_INVISIBLE_SIGNS = frozenset("\u2061\u2062\u2063\u2064\u200b")  # function application, times, separator, plus
_PRODUCT = "\u22c5"
_EQUIVALENT_SIGNS = {
    "⋯": "…", "∣": "|", "❘": "|", "‖": "∥", "⟶": "→", "⟵": "←", "⟹": "⇒", "⟺": "⇔", "⟼": "↦", "⩽": "≤", "⩾": "≥",
    "∗": "*", "⋆": "*", "ε": "ϵ", "ϕ": "φ", "ϑ": "θ", "∅": "⌀", "≔": "=", "⟨": "<", "⟩": ">",
}  # fmt: skip
_BLANK_SIGN = "\u2423"  # replaces blanks inside a label
_VARIANT_PREFIX = "mathvariant="
_UPRIGHT_VARIANT = "normal"  # which the converter gives to most symbols that are not letters


# What a tag says about nodes (row, ordered, space, text, identifier, symbol), and a text about its leaf (letter,
# silent, sign, blank).
TAG_BITS = tuple(1 << bit for bit in range(6))
TEXT_BITS = TAG_BITS[:4]


def is_silent(tag: str, text: str) -> bool:
    """Return whether a leaf says nothing: space, blank text, an invisible operator, the dot of a product."""
    sign = text.strip()
    if tag in ("mi", "mo"):
        return sign in _INVISIBLE_SIGNS or sign == _PRODUCT
    return tag == "mspace" or (tag == "mtext" and not sign)


def normalise_tag(tag: str) -> str:
    """Return the tag that counts: a limit is a script, because the style decides where limits are set."""
    return _SCRIPT_TAGS.get(tag, tag)


def normalise_text(text: str) -> str:
    """Return the text of a leaf with a visible sign for blanks, and one sign for all that mean the same."""
    text = _BLANK_SIGN.join(text.split())
    return _EQUIVALENT_SIGNS.get(text, text)


def is_sign(text: str) -> bool:
    """Return whether a symbol is an operator rather than a name, even if it is tagged as an identifier."""
    return bool(text.strip()) and not any(map(str.isalnum, text))


def find_variants(attributes: list[str]) -> tuple[list[str], Places]:
    """Return the distinct variants of letters, first the usual one, and the index of each attribute entry's variant."""
    distinct = {"": 0}
    of_entry = np.zeros(len(attributes), np.int64)
    for at, lines in enumerate(attributes):
        found = [line[len(_VARIANT_PREFIX) :] for line in lines.split("\n") if line.startswith(_VARIANT_PREFIX)]
        if found and found[0] not in ("", _UPRIGHT_VARIANT):
            of_entry[at] = distinct.setdefault(found[0], len(distinct))
    return list(distinct), of_entry


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
    name: Codes  # (nodes,) hash of text and variant


@lru_cache(1_000)
def _describe_tag(tag: str) -> tuple[int, int]:
    """Return the bits of a tag, and the hash of the tag that counts."""
    kinds = (
        tag in ROW_TAGS,
        tag not in _UNORDERED_TAGS,
        tag == "mspace",
        tag == "mtext",
        tag == "mi",
        tag in ("mi", "mo"),
    )
    return sum(bit for bit, applies in zip(TAG_BITS, kinds, strict=True) if applies), hash_string(normalise_tag(tag))


@lru_cache(1 << 16)
def _describe_text(text: str) -> tuple[int, int]:
    """Return the bits of a text, and the hash of what it says."""
    kinds = (len(text) == 1 and text.isalpha(), is_silent("mo", text), is_sign(text), not text.strip())
    return sum(bit for bit, applies in zip(TEXT_BITS, kinds, strict=True) if applies), hash_string(normalise_text(text))


class Normaliser:
    """Computes the normal form of trees of one forest; what follows from its strings is computed once."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._tags, self._texts = (
            np.array([describe(name) for name in names], np.uint64).reshape(-1, 2)
            for describe, names in ((_describe_tag, forest.tags), (_describe_text, forest.texts))
        )
        written, self._variant = find_variants(forest.attributes)
        self._variants = hash_strings(written)

    def normalise(self, trees: slice, nodes: slice) -> NormalNodes:
        """Return the normal form of consecutive trees, given as slices of trees and of nodes.

        Raises:
            ValueError: The nodes do not form trees.
        """
        from eqkin.learning.normal_kernels import normalise_nodes

        forest = self._forest
        offsets = forest.offsets[trees.start : trees.stop + 1] - nodes.start
        tag, text, counts = (column[nodes].astype(np.int64) for column in (forest.tag, forest.text, forest.n_children))
        variant = self._variant[forest.attribute[nodes]]
        strings = self._tags, self._texts, self._variants
        places, codes = normalise_nodes(tag, text, variant, counts, offsets, *strings)
        if not len(places):
            raise ValueError("nodes do not form trees")
        tree, parent, size, n_children, kind = places
        return NormalNodes(tree, parent, size, n_children, kind & 1 > 0, (kind >= 2) & (n_children == 0), *codes)
