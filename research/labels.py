"""Labels of the nodes of presentation trees, as words of a text."""

from __future__ import annotations

import numpy as np

from eqkin.formulas import Forest
from eqkin.formulas.forest import Numbers, number_values
from eqkin.learning.normal import find_variants


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
        name = "␣".join(":".join(filter(None, [forest.tags[tag] or "∅", *parts])).split())
        merged[at] = names.setdefault(name, len(names))
    return list(names), merged[label]
