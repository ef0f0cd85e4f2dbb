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
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eqkin.formulas.forest import Forest, Numbers, Places, number_values
from eqkin.formulas.hashing import Codes, hash_string, hash_strings
from eqkin.formulas.kinds import TagKinds, TextKinds

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
    name: Codes  # (nodes,) hash of text and variant

    def list_neighbours(self) -> tuple[Places, Places]:
        """Return the nodes that have a next sibling, and these siblings."""
        # In depth-first order the next sibling, if there is one, follows the subtree.
        end = np.arange(len(self.parent)) + self.size
        has_next = (np.append(self.parent, -1)[end] == self.parent) & (self.parent >= 0)
        return np.flatnonzero(has_next), end[has_next]


@lru_cache(1_000)
def _describe_tag(tag: str) -> tuple[int, int]:
    """Return bits of `TagKinds`, and the hash of the tag that counts."""
    kinds = (
        (TagKinds.ROW, tag in ROW_TAGS),
        (TagKinds.ORDERED, tag not in _UNORDERED_TAGS),
        (TagKinds.SPACE, tag == "mspace"),
        (TagKinds.TEXT, tag == "mtext"),
        (TagKinds.IDENTIFIER, tag == "mi"),
        (TagKinds.SYMBOL, tag in ("mi", "mo")),
    )
    return sum(bit for bit, applies in kinds if applies), hash_string(normalise_tag(tag))


@lru_cache(1 << 16)
def _describe_text(text: str) -> tuple[int, int]:
    """Return bits of `TextKinds`, and the hash of what the text says."""
    kinds = (
        (TextKinds.LETTER, len(text) == 1 and text.isalpha()),
        (TextKinds.SILENT, is_silent("mo", text)),
        (TextKinds.SIGN, is_sign(text)),
        (TextKinds.BLANK, not text.strip()),
    )
    return sum(bit for bit, applies in kinds if applies), hash_string(normalise_text(text))


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
        from eqkin.formulas.kernels import normalise_nodes

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
