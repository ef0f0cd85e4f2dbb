"""A slow reference for terms: node by node, by recursion, with strings instead of hashes."""

from collections import Counter

from eqkin.formulas.mathml import to_node
from eqkin.formulas.normal import is_silent, normalise_tag, normalise_text


def _variant(node):
    variant = node.attributes.get("mathvariant", "")
    return "" if variant == "normal" or not node.text.strip() else variant


def normalise(node):
    """Return the normal form of a tree as (tag, text, members), None if nothing remains."""
    if is_silent(node.tag, node.text):
        return None
    members = [member for member in map(normalise, node.children) if member is not None]
    if node.tag not in ("mrow", "mstyle", "mpadded", "math"):
        text = normalise_text(node.text)
        is_sign = node.tag == "mi" and text and not any(map(str.isalnum, text))
        return "mo" if is_sign else normalise_tag(node.tag), f"{text}:{_variant(node)}", members
    flat = []
    for member in members:
        flat.extend(member[2] if member[0] == "mrow" else [member])
    if len(flat) < 2:
        return flat[0] if flat else None
    return "mrow", "", flat


def _walk(node):
    tag, text, members = node
    yield "label", f"{tag}:{text}"
    for one, other in zip(members[:-1], members[1:], strict=True):
        yield "sibling", (one[:2], other[:2])
    for member in members:
        yield from _walk(member)


def terms(forest, index):
    """Count the terms (family, content) of the tree at `index`."""
    root = normalise(to_node(forest, index))
    return Counter() if root is None else Counter(_walk(root))
