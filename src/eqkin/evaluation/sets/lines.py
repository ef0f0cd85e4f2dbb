"""What stands side by side at the top of a tree: its lines, their statements, and the sides of these.

See `equalities` for the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest
from eqkin.trees.normal import ROW_TAGS


class NodeKind(IntEnum):
    """What a node is to the line it stands in."""

    PLAIN = 0
    EQUAL = 1
    LESS = 2
    GREATER = 3
    RELATION = 4  # any other
    SEPARATOR = 5
    COLON = 6  # separates, unless it belongs to the sign after it
    OPENING = 7
    CLOSING = 8
    OPERATOR = 9  # with something before it and after it
    BLANK = 10  # full stops and spaces
    EMPTY = 11  # not there at all


_COLON, _OPENING, _CLOSING, _BLANK = (
    NodeKind.COLON,
    NodeKind.OPENING,
    NodeKind.CLOSING,
    NodeKind.BLANK,
)  # looked up often
_OPERATORS = {
    NodeKind.EQUAL: "=",
    NodeKind.LESS: "< ≤ ⩽ ≦",
    NodeKind.GREATER: "> ≥ ⩾ ≧",
    NodeKind.RELATION: "≠ ≡ ≢ ≈ ≃ ≅ ≊ ∼ ≁ ≍ ≐ ≑ ≜ ≔ ≕ ≝ ≟ ∝ ≪ ≫ ≲ ≳ ⪅ ⪆ ≺ ≻ ≼ ≽ ⪯ ⪰ ≮ ≯ ≰ ≱ ∈ ∉ ∋ ⊂ ⊃ ⊆ ⊇ ⊊ ⊋ ⊄"
    " ⊈ ⊏ ⊐ ⊑ ⊒ ⊢ ⊨ ⊩ ⊣ → ← ↔ ↦ ↪ ↩ ⟶ ⟵ ⟷ ⟼ ↠ ⇀ ⇌ ⇝ ⊥ ∥ ⋈ ≰ :=",
    NodeKind.SEPARATOR: ", ; ⇒ ⇐ ⇔ ⟹ ⟸ ⟺ ∀ ∃ ∴ ∵ ↓ ↑",
    NodeKind.COLON: ":",
    NodeKind.OPENING: "( [ { ⟨ ⌊ ⌈ ⟦ ⟮",
    NodeKind.CLOSING: ") ] } ⟩ ⌋ ⌉ ⟧ ⟯",
    NodeKind.OPERATOR: "+ − - ± ∓ × ⋅ · ∗ * ∘ ⊗ ⊕ ⊙ ∧ ∨ ∩ ∪ ÷ ∙ ⋆ ∖",
    NodeKind.BLANK: ". ⁡",
}
_LETTERS = {
    NodeKind.RELATION: "≔ ≕ ≜ ⊥",
    NodeKind.SEPARATOR: "∀ ∃ , ;",
    NodeKind.BLANK: ".",
}  # where they are no operators
_SEPARATING_WORDS = frozenset(
    "and as by else for from if iff i.e. in on or otherwise over s.t. so subject then when where with".split()
)
_ROW_TAGS = ROW_TAGS | {"mtd", "menclose"}
_SCRIPT_TAGS = frozenset("mover munder munderover".split())
_MAX_NESTING = 4  # levels around a sign with something written above it


def classify_nodes(forest: Forest) -> npt.NDArray[np.int8]:
    """What each node is, (nodes,)."""
    kind = np.zeros(len(forest.tag), np.int8)
    place = {text: at for at, text in enumerate(forest.texts)}
    for tag, meanings in (("mo", _OPERATORS), ("mi", _LETTERS)):
        of_text = np.zeros(len(forest.texts), np.int8)
        for meaning, texts in meanings.items():
            of_text[[place[text] for text in texts.split() if text in place]] = meaning
        kind = np.where(_has_tag(forest, tag), of_text[forest.text], kind)
    words = np.array([_classify_text(text) for text in forest.texts], np.int8)
    kind = np.where(_has_tag(forest, "mtext"), words[forest.text], kind)
    spaces = np.array([_classify_space(attributes) for attributes in forest.attributes], np.int8)
    kind = np.where(_has_tag(forest, "mspace"), spaces[forest.attribute], kind)
    fences = np.array(["fence=true" in attributes.split("\n") for attributes in forest.attributes], bool)
    kind[fences[forest.attribute]] = NodeKind.PLAIN
    wrapper = _has_tag(forest, *_ROW_TAGS)
    kind[(wrapper & (forest.n_children == 0)) | _has_tag(forest, "mphantom")] = NodeKind.EMPTY
    written_on = _has_tag(forest, *_SCRIPT_TAGS) & (forest.n_children > 0)
    around = np.flatnonzero(written_on | (wrapper & (forest.n_children == 1)))
    inside = forest.compute_first_child()[around]
    for _ in range(_MAX_NESTING):
        sign = (kind[inside] >= NodeKind.EQUAL) & (kind[inside] <= NodeKind.RELATION)
        kind[around[sign]] = kind[inside[sign]]
    return kind


def _has_tag(forest: Forest, *tags: str) -> npt.NDArray[np.bool_]:
    """Which nodes have one of these tags."""
    return np.array([tag in tags for tag in forest.tags], bool)[forest.tag]


def _classify_text(text: str) -> NodeKind:
    words = text.replace("\u00a0", " ")
    if not words.strip():
        return NodeKind.BLANK
    prose = " " in words and any(character.isalpha() for character in words)
    if prose or words.strip(" ,.;:").lower() in _SEPARATING_WORDS:
        return NodeKind.SEPARATOR
    return (
        NodeKind.SEPARATOR
        if words.strip() in (",", ";")
        else NodeKind.BLANK
        if words.strip() == "."
        else NodeKind.PLAIN
    )


def _classify_space(attributes: str) -> NodeKind:
    given = dict(line.split("=", 1) for line in attributes.split("\n") if "=" in line)
    width = given.get("width", "")
    wide = width.endswith("em") and width[:-2].replace(".", "", 1).isdecimal() and float(width[:-2]) >= 1
    return NodeKind.SEPARATOR if wide or "linebreak" in given else NodeKind.BLANK


@dataclass(frozen=True)
class Side:
    """What stands between two relation signs."""

    sign: int  # before it; PLAIN for the first side of a statement
    nodes: list[int]


@dataclass(frozen=True)
class _StatementLine:
    nodes: list[int]
    indented: bool  # whether its first cell is empty, and that of the table's first line is not


class StatementReader:
    """Reads the statements at the top of trees."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self.kind = classify_nodes(forest)
        self._first_child = forest.compute_first_child()
        self._wrapper = np.array([tag in _ROW_TAGS for tag in forest.tags], bool)
        self._table = np.array([tag == "mtable" for tag in forest.tags], bool)

    def read_statements(self, tree: int) -> list[list[Side]]:
        """The statements of a tree, each as its sides; a side that cannot be read whole has no nodes."""
        found: list[list[Side]] = []
        for number, line in enumerate(self._split_lines(self._unwrap(int(self._forest.offsets[tree])))):
            statements = self._split_statements(line.nodes)
            if number and self._is_continuation(line):
                if not self._is_sign(line.nodes[0]):
                    found[-1][-1].nodes.clear()  # the rest of it stands in this line
                found[-1].extend(statements.pop(0)[1:])
            found += statements
        return found

    def _is_continuation(self, line: _StatementLine) -> bool:
        """Whether a line goes on with what the line above began."""
        kind = self.kind[line.nodes[0]]
        return line.indented or self._is_sign(line.nodes[0]) or kind in (NodeKind.OPERATOR, NodeKind.CLOSING)

    def _is_sign(self, node: int) -> bool:
        return bool(NodeKind.EQUAL <= self.kind[node] <= NodeKind.RELATION)

    def _list_children(self, node: int) -> list[int]:
        first = int(self._first_child[node])
        last = first + int(self._forest.n_children[node])
        kept = self.kind[first:last] != NodeKind.EMPTY
        return list(range(first, last)) if kept.all() else (first + np.flatnonzero(kept)).tolist()

    def _unwrap(self, node: int) -> list[int]:
        """What stands side by side in a node: its children, where it only wraps them."""
        nodes = [node]
        while len(nodes) == 1 and self._wrapper[self._forest.tag[nodes[0]]]:
            nodes = self._list_children(nodes[0])
        return nodes

    def _is_table(self, nodes: list[int]) -> bool:
        return len(nodes) == 1 and bool(self._table[self._forest.tag[nodes[0]]])

    def _split_lines(self, nodes: list[int]) -> list[_StatementLine]:
        """The lines of a tree's content that have something in them."""
        if not self._is_table(nodes):
            return [_StatementLine(nodes, indented=False)] if nodes else []
        rows = [[self._unwrap(cell) for cell in self._list_children(row)] for row in self._list_children(nodes[0])]
        rows = [row for row in rows if any(row)]
        lines: list[_StatementLine] = []
        for row in rows:
            filled = [cell for cell in row if cell]
            if len(filled) == 1 and self._is_table(filled[0]):
                lines += self._split_lines(filled[0])
            else:
                indented = not row[0] and bool(rows[0][0])
                lines.append(_StatementLine([node for cell in filled for node in cell], indented))
        return lines

    def _split_statements(self, nodes: list[int]) -> list[list[Side]]:
        """The statements of a line, at least one; if its brackets do not match, a single side that cannot be read."""
        kinds = [*self.kind[nodes].tolist(), NodeKind.SEPARATOR]
        statements: list[list[Side]] = []
        sides = [Side(NodeKind.PLAIN, [])]
        depth = 0
        for at, kind in enumerate(kinds):
            depth += (kind == _OPENING) - (kind == _CLOSING)
            if depth < 0:
                break
            if depth == 0 and 0 < kind <= _COLON:
                if kind <= NodeKind.RELATION:
                    sides.append(Side(kind, []))
                elif kind == NodeKind.SEPARATOR or kinds[at + 1] != NodeKind.EQUAL:
                    statements.append([Side(side.sign, self._trim(side.nodes)) for side in sides])
                    sides = [Side(NodeKind.PLAIN, [])]
            elif at < len(nodes):
                sides[-1].nodes.append(nodes[at])
        return statements if depth == 0 else [[Side(NodeKind.PLAIN, [])]]

    def _trim(self, nodes: list[int]) -> list[int]:
        """Without blanks at the ends; nothing at all if an operator stands last, since something is missing."""
        first, last = 0, len(nodes)
        while last > first and self.kind[nodes[last - 1]] == _BLANK:
            last -= 1
        while last > first and self.kind[nodes[first]] == _BLANK:
            first += 1
        return nodes[first:last] if first < last and self.kind[nodes[last - 1]] != NodeKind.OPERATOR else []
