"""Explain hits: which of their parts match which parts of the query, and under what names.

Like the ranking, the explanation uses substrings of tokens that both formulas have in common: greedy string tiling
under one renaming of letters (`eqkin.trees.align`). An inner node (a fraction, a row) matches another if all leaves
below the one are paired with all leaves below the other. A hit that matches a query with wildcards is explained by that
match.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eqkin.search.results import Pairing
from eqkin.search.wildcards import Pattern, PatternMatch, is_wildcard, replace_wildcards
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.align import Alignment, align_tokens
from eqkin.trees.forest import compute_ranks_and_sizes
from eqkin.trees.mathml import Node, list_nodes, to_forest, to_mathml
from eqkin.trees.normal import ROW_TAGS
from eqkin.trees.tokens import MAX_TOKENS, Tokens, extract_tokens

_SAME_SIMILARITY = 1.0  # of parts with the same label
_RENAMED_SIMILARITY = 0.75  # of letters with different names
_WILDCARD_SIMILARITY = 0.5  # of a wildcard and what it matches
_SHADE_LEVELS = 3  # classes that shade a match on a page: by a wildcard, renamed, the same


@dataclass(frozen=True)
class Explanation:
    """The parts that a hit and the query have in common."""

    pairings: tuple[Pairing, ...] = ()  # in the order of the query's nodes
    renaming: tuple[tuple[str, str], ...] = ()  # letters of the query and their other names in the hit
    bindings: tuple[tuple[str, str], ...] = ()  # wildcards and the MathML of what they match
    marked: str = ""  # the hit's MathML, nodes numbered, matched ones marked


def explain_hits(query: Node, hits: Sequence[Node], pattern: Pattern | None = None) -> list[Explanation]:
    """Explain why each tree matches a query.

    Args:
        query: The query's tree.
        hits: Trees of the hits.
        pattern: The query as a pattern, if it has wildcards.
    """
    matches = [pattern.match(hit) if pattern is not None else None for hit in hits]
    rest = _explain_by_tiling(query, [hit for hit, match in zip(hits, matches, strict=True) if match is None])
    return [
        next(rest) if match is None else _explain_match(query, hit, match)
        for hit, match in zip(hits, matches, strict=True)
    ]


def _explain_match(query: Node, hit: Node, match: PatternMatch) -> Explanation:
    wild = {number for number, node in enumerate(list_nodes(query)) if is_wildcard(node)}
    pairings = tuple(
        Pairing(ours, theirs, _WILDCARD_SIMILARITY if ours in wild else _SAME_SIMILARITY)
        for ours, theirs in match.pairs
    )
    bindings = tuple((name, to_mathml(part, display=False)) for name, part in match.bindings.items())
    return Explanation(pairings, bindings=bindings, marked=mark_mathml(hit, pairings))


def _explain_by_tiling(query: Node, hits: Sequence[Node]) -> Iterator[Explanation]:
    if not hits:
        return
    builder = ForestBuilder()
    builder.add_forest(replace_wildcards(to_forest(query)))  # its leaves stay where they are
    for hit in hits:
        builder.add_forest(to_forest(hit))
    forest = builder.build()
    tokens = extract_tokens(forest)
    ours, *others = (
        _TreeParts(list_nodes(root), spans)
        for root, spans in zip((query, *hits), _compute_spans(forest, tokens), strict=True)
    )
    for at, (hit, theirs) in enumerate(zip(hits, others, strict=True), 1):
        tiling = align_tokens(tokens, tokens, at)
        pairings = _pair_nodes(ours, theirs, tiling)
        renaming = _find_renaming(ours.nodes, theirs.nodes, tiling)
        yield Explanation(pairings, renaming, (), mark_mathml(hit, pairings))


class _TreeParts:
    """A tree's nodes in breadth-first order, and for each the span of the tokens at and below it."""

    def __init__(self, nodes: list[Node], spans: list[tuple[int, int]]) -> None:
        self.nodes, self.spans = nodes, spans
        self.rows: dict[tuple[int, int], list[int]] = defaultdict(
            list
        )  # nested rows with the same span, the outer one first
        for number, (node, span) in enumerate(zip(nodes, spans, strict=True)):
            if node.tag in ROW_TAGS and node.children and span[0] < span[1]:
                self.rows[span].append(number)


def _compute_spans(forest: Forest, tokens: Tokens) -> list[list[tuple[int, int]]]:
    """Return the span of tokens below each node of each tree; an empty one where some tokens were cut off."""
    rank, size = compute_ranks_and_sizes(forest.n_children, forest.offsets)
    start = rank + np.repeat(forest.offsets[:-1], forest.sizes)
    is_token = np.zeros(len(rank), np.int64)
    within = tokens.node >= 0
    is_token[start[(tokens.node + forest.offsets[:-1, None])[within]]] = 1
    before = np.concatenate(([0], np.cumsum(is_token)))
    first = np.repeat(before[forest.offsets[:-1]], forest.sizes)
    begin, end = before[start] - first, before[start + size] - first
    begin = np.where(end >= MAX_TOKENS, end, begin)
    spans = list(zip(begin.tolist(), end.tolist(), strict=True))
    return [spans[i:j] for i, j in zip(forest.offsets[:-1].tolist(), forest.offsets[1:].tolist(), strict=True)]


def _pair_nodes(ours: _TreeParts, theirs: _TreeParts, tiling: Alignment) -> tuple[Pairing, ...]:
    """Pair nodes, each at most once: aligned leaves, and inner nodes whose leaves are all aligned with each other."""
    partner = dict(tiling.places)
    nodes = dict(tiling.pairs)
    values = {
        node: _SAME_SIMILARITY if same and not is_wildcard(ours.nodes[node]) else _RENAMED_SIMILARITY
        for node, same in zip(nodes, tiling.same, strict=True)
    }
    similarity = dict(zip(partner, values.values(), strict=True))
    pairings: dict[int, Pairing] = {}
    for number, (node, (start, end)) in enumerate(zip(ours.nodes, ours.spans, strict=True)):
        if not node.children:
            if number in nodes and not theirs.nodes[nodes[number]].children:
                pairings[number] = Pairing(number, nodes[number], values[number])
            continue
        places = [partner[place] for place in range(start, end) if place in partner]
        if not places or len(places) < end - start or max(places) - min(places) + 1 != len(places):
            continue  # no whole span is aligned with it
        there = min(places), max(places) + 1
        if number in nodes:
            other = nodes[number] if theirs.spans[nodes[number]] == there else -1
        else:
            depth = ours.rows[start, end].index(number) if number in ours.rows[start, end] else 0
            other = next(iter(theirs.rows.get(there, ())[depth:]), -1)
        if other >= 0:
            pairings[number] = Pairing(number, other, sum(similarity[k] for k in range(start, end)) / (end - start))
    return tuple(pairings.values())


def _find_renaming(ours: list[Node], theirs: list[Node], tiling: Alignment) -> tuple[tuple[str, str], ...]:
    """List letters and their other names; without a match, a wildcard counts as a letter."""
    same = dict(zip(tiling.pairs, tiling.same, strict=True))
    letters = ((ours[pair[0]], theirs[pair[1]], same[pair]) for pair in tiling.letters)
    return tuple(
        (mine.text, other.text)
        for mine, other, alike in letters
        if mine.text != other.text and (not alike or is_wildcard(mine))
    )


def mark_mathml(root: Node, pairings: Iterable[Pairing] = ()) -> str:
    """Return MathML whose nodes have their number as `data-node`, matched ones also a class.

    Args:
        root: The tree.
        pairings: Pairs of the query's nodes with nodes of this tree; the class is `kin kin-1` to `kin kin-3` by how
            similar they are.
    """
    classes = {}
    for pairing in pairings:
        level = min(max(int(pairing.similarity * (_SHADE_LEVELS + 1)) - 1, 1), _SHADE_LEVELS)
        classes[pairing.hit_node] = f"kin kin-{level}"
    return to_mathml(root, classes=classes)
