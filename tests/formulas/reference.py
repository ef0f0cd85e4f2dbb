"""A slow reference for terms: node by node, by recursion, with strings instead of hashes."""

from collections import Counter

from eqkin.formulas.mathml import to_node
from eqkin.formulas.normal import is_silent, normalise_tag, normalise_text

MAX_NODES = 24  # of an n-gram


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


def is_renameable(node):
    tag, text, members = node
    letter = text.rsplit(":", 1)[0]
    return tag == "mi" and not members and len(letter) == 1 and letter.isalpha()


def _size(node):
    return 1 + sum(map(_size, node[2]))


def _written(node, names=None):
    """Return a subtree as text; with `names`, identifiers are renamed by first occurrence."""
    tag, text, members = node
    if names is not None and is_renameable(node):
        text = names.setdefault(text, f"number {len(names)}")
    return f"{tag} {text}({', '.join(_written(member, names) for member in members)})"


def _runs(members):
    for length in (2, 3):
        for at in range(len(members) - length + 1):
            run = members[at : at + length]
            if sum(map(_size, run)) > MAX_NODES:
                continue
            names = {}
            yield f"run{length}", "|".join(_written(member) for member in run)
            yield f"renamed{length}", "|".join(_written(member, names) for member in run)


def _walk(node, path):
    tag, text, members = node
    label = f"{tag}:{text}"
    yield "label", label
    if path:
        yield "path", (*path[-1:], label)
    if len(path) > 1:
        yield "path2", (*path[-2:], label)
        yield "apath2", (*path[-2:], "any" if is_renameable(node) else label)
    if tag == "mrow":
        yield from _runs(members)
    for one, other in zip(members[:-1], members[1:], strict=True):
        yield "sibling", (one[:2], other[:2])
    for at, member in enumerate(members):
        numbered = tag not in ("mrow", "mtable", "mtr", "mtd")
        yield from _walk(member, [*path, f"{tag} {at}" if numbered else tag])


def terms(forest, index):
    """Count the terms (family, content) of the tree at `index`."""
    root = normalise(to_node(forest, index))
    return Counter() if root is None else Counter(_walk(root, []))
