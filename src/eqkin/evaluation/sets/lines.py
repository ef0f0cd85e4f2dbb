"""What stands side by side at the top of a tree: its lines, their statements, and the sides of these.

See `equalities` for the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from eqkin.forest import Forest


class Kind(IntEnum):
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


_COLON, _OPENING, _CLOSING, _BLANK = Kind.COLON, Kind.OPENING, Kind.CLOSING, Kind.BLANK  # looked up often
_OPERATORS = {
    Kind.EQUAL: "=",
    Kind.LESS: "< ≤ ⩽ ≦",
    Kind.GREATER: "> ≥ ⩾ ≧",
    Kind.RELATION: "≠ ≡ ≢ ≈ ≃ ≅ ≊ ∼ ≁ ≍ ≐ ≑ ≜ ≔ ≕ ≝ ≟ ∝ ≪ ≫ ≲ ≳ ⪅ ⪆ ≺ ≻ ≼ ≽ ⪯ ⪰ ≮ ≯ ≰ ≱ ∈ ∉ ∋ ⊂ ⊃ ⊆ ⊇ ⊊ ⊋ ⊄"
    " ⊈ ⊏ ⊐ ⊑ ⊒ ⊢ ⊨ ⊩ ⊣ → ← ↔ ↦ ↪ ↩ ⟶ ⟵ ⟷ ⟼ ↠ ⇀ ⇌ ⇝ ⊥ ∥ ⋈ ≰ :=",
    Kind.SEPARATOR: ", ; ⇒ ⇐ ⇔ ⟹ ⟸ ⟺ ∀ ∃ ∴ ∵ ↓ ↑",
    Kind.COLON: ":",
    Kind.OPENING: "( [ { ⟨ ⌊ ⌈ ⟦ ⟮",
    Kind.CLOSING: ") ] } ⟩ ⌋ ⌉ ⟧ ⟯",
    Kind.OPERATOR: "+ − - ± ∓ × ⋅ · ∗ * ∘ ⊗ ⊕ ⊙ ∧ ∨ ∩ ∪ ÷ ∙ ⋆ ∖",
    Kind.BLANK: ". ⁡",
}
_LETTERS = {Kind.RELATION: "≔ ≕ ≜ ⊥", Kind.SEPARATOR: "∀ ∃ , ;", Kind.BLANK: "."}  # where they are no operators
_WORDS = frozenset(
    "and as by else for from if iff i.e. in on or otherwise over s.t. so subject then when where with".split()
)
_WRAPPERS = frozenset("mrow mstyle mpadded mtd menclose".split())
_BELOW_ABOVE = frozenset("mover munder munderover".split())
_NESTED = 4  # levels around a sign with something written above it


def kinds(forest: Forest) -> npt.NDArray[np.int8]:
    """What each node is, (nodes,)."""
    kind = np.zeros(len(forest.tag), np.int8)
    place = {text: at for at, text in enumerate(forest.texts)}
    for tag, meanings in (("mo", _OPERATORS), ("mi", _LETTERS)):
        of_text = np.zeros(len(forest.texts), np.int8)
        for meaning, texts in meanings.items():
            of_text[[place[text] for text in texts.split() if text in place]] = meaning
        kind = np.where(_tagged(forest, tag), of_text[forest.text], kind)
    words = np.array([_of_words(text) for text in forest.texts], np.int8)
    kind = np.where(_tagged(forest, "mtext"), words[forest.text], kind)
    spaces = np.array([_of_space(attributes) for attributes in forest.attributes], np.int8)
    kind = np.where(_tagged(forest, "mspace"), spaces[forest.attribute], kind)
    fences = np.array(["fence=true" in attributes.split("\n") for attributes in forest.attributes], bool)
    kind[fences[forest.attribute]] = Kind.PLAIN
    wrapper = _tagged(forest, *_WRAPPERS)
    kind[(wrapper & (forest.n_children == 0)) | _tagged(forest, "mphantom")] = Kind.EMPTY
    written_on = _tagged(forest, *_BELOW_ABOVE) & (forest.n_children > 0)
    around = np.flatnonzero(written_on | (wrapper & (forest.n_children == 1)))
    inside = forest.first_child()[around]
    for _ in range(_NESTED):
        sign = (kind[inside] >= Kind.EQUAL) & (kind[inside] <= Kind.RELATION)
        kind[around[sign]] = kind[inside[sign]]
    return kind


def _tagged(forest: Forest, *tags: str) -> npt.NDArray[np.bool_]:
    """Which nodes have one of these tags."""
    return np.array([tag in tags for tag in forest.tags], bool)[forest.tag]


def _of_words(text: str) -> Kind:
    words = text.replace("\u00a0", " ")
    if not words.strip():
        return Kind.BLANK
    prose = " " in words and any(character.isalpha() for character in words)
    if prose or words.strip(" ,.;:").lower() in _WORDS:
        return Kind.SEPARATOR
    return Kind.SEPARATOR if words.strip() in (",", ";") else Kind.BLANK if words.strip() == "." else Kind.PLAIN


def _of_space(attributes: str) -> Kind:
    given = dict(line.split("=", 1) for line in attributes.split("\n") if "=" in line)
    width = given.get("width", "")
    wide = width.endswith("em") and width[:-2].replace(".", "", 1).isdecimal() and float(width[:-2]) >= 1
    return Kind.SEPARATOR if wide or "linebreak" in given else Kind.BLANK


@dataclass(frozen=True)
class Side:
    """What stands between two relation signs."""

    sign: int  # before it; PLAIN for the first side of a statement
    nodes: list[int]


@dataclass(frozen=True)
class _Line:
    nodes: list[int]
    indented: bool  # whether its first cell is empty, and that of the table's first line is not


class LineReader:
    """Reads the statements at the top of trees."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self.kind = kinds(forest)
        self._first_child = forest.first_child()
        self._wrapper = np.array([tag in _WRAPPERS for tag in forest.tags], bool)
        self._table = np.array([tag == "mtable" for tag in forest.tags], bool)

    def statements(self, tree: int) -> list[list[Side]]:
        """The statements of a tree, each as its sides; a side that cannot be read whole has no nodes."""
        found: list[list[Side]] = []
        for number, line in enumerate(self._lines(self._content(int(self._forest.offsets[tree])))):
            statements = self._parted(line.nodes)
            if number and self._continues(line):
                if not self._is_sign(line.nodes[0]):
                    found[-1][-1].nodes.clear()  # the rest of it stands in this line
                found[-1].extend(statements.pop(0)[1:])
            found += statements
        return found

    def _continues(self, line: _Line) -> bool:
        """Whether a line goes on with what the line above began."""
        kind = self.kind[line.nodes[0]]
        return line.indented or self._is_sign(line.nodes[0]) or kind in (Kind.OPERATOR, Kind.CLOSING)

    def _is_sign(self, node: int) -> bool:
        return bool(Kind.EQUAL <= self.kind[node] <= Kind.RELATION)

    def _children(self, node: int) -> list[int]:
        first = int(self._first_child[node])
        last = first + int(self._forest.n_children[node])
        kept = self.kind[first:last] != Kind.EMPTY
        return list(range(first, last)) if kept.all() else (first + np.flatnonzero(kept)).tolist()

    def _content(self, node: int) -> list[int]:
        """What stands side by side in a node: its children, where it only wraps them."""
        nodes = [node]
        while len(nodes) == 1 and self._wrapper[self._forest.tag[nodes[0]]]:
            nodes = self._children(nodes[0])
        return nodes

    def _is_table(self, nodes: list[int]) -> bool:
        return len(nodes) == 1 and bool(self._table[self._forest.tag[nodes[0]]])

    def _lines(self, nodes: list[int]) -> list[_Line]:
        """The lines of a tree's content that have something in them."""
        if not self._is_table(nodes):
            return [_Line(nodes, indented=False)] if nodes else []
        rows = [[self._content(cell) for cell in self._children(row)] for row in self._children(nodes[0])]
        rows = [row for row in rows if any(row)]
        lines: list[_Line] = []
        for row in rows:
            filled = [cell for cell in row if cell]
            if len(filled) == 1 and self._is_table(filled[0]):
                lines += self._lines(filled[0])
            else:
                indented = not row[0] and bool(rows[0][0])
                lines.append(_Line([node for cell in filled for node in cell], indented))
        return lines

    def _parted(self, nodes: list[int]) -> list[list[Side]]:
        """The statements of a line, at least one; if its brackets do not match, a single side that cannot be read."""
        kinds = [*self.kind[nodes].tolist(), Kind.SEPARATOR]
        statements: list[list[Side]] = []
        sides = [Side(Kind.PLAIN, [])]
        depth = 0
        for at, kind in enumerate(kinds):
            depth += (kind == _OPENING) - (kind == _CLOSING)
            if depth < 0:
                break
            if depth == 0 and 0 < kind <= _COLON:
                if kind <= Kind.RELATION:
                    sides.append(Side(kind, []))
                elif kind == Kind.SEPARATOR or kinds[at + 1] != Kind.EQUAL:
                    statements.append([Side(side.sign, self._trimmed(side.nodes)) for side in sides])
                    sides = [Side(Kind.PLAIN, [])]
            elif at < len(nodes):
                sides[-1].nodes.append(nodes[at])
        return statements if depth == 0 else [[Side(Kind.PLAIN, [])]]

    def _trimmed(self, nodes: list[int]) -> list[int]:
        """Without blanks at the ends; nothing at all if an operator stands last, since something is missing."""
        first, last = 0, len(nodes)
        while last > first and self.kind[nodes[last - 1]] == _BLANK:
            last -= 1
        while last > first and self.kind[nodes[first]] == _BLANK:
            first += 1
        return nodes[first:last] if first < last and self.kind[nodes[last - 1]] != Kind.OPERATOR else []
