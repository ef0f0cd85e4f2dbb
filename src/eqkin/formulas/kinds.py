"""Numbers that compiled loops and their callers share: bits of kinds of nodes, and families of terms."""

from __future__ import annotations

from eqkin.formulas.hashing import hash_string

TERM_FAMILIES = ("label", "sibling")
FAMILY_BITS = 5  # of the number of a family, those of operator trees and outlines included
ROW_HASH, SIGN_HASH = map(hash_string, ("mrow", "mo"))


class TagKinds:
    """Bits: what a tag says about nodes."""

    ROW, ORDERED, SPACE, TEXT, IDENTIFIER, SYMBOL = (1 << bit for bit in range(6))


class TextKinds:
    """Bits: what the text of a leaf says about it."""

    LETTER, SILENT, SIGN, BLANK = (1 << bit for bit in range(4))


class LabelKinds:
    """Bits: what the label of a node of an operator tree says about it and its outline."""

    VARIABLE, UNORDERED, UNORDERED_OUTLINE, APPLIED, INDEXED, DETAIL, WRAPPER, PLAIN = (1 << bit for bit in range(8))
