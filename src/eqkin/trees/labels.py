"""What a node says, whatever its layout: its tag, its text, and how the letter is written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest
from eqkin.trees.order import Numbers

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
