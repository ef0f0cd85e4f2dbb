r"""A tree as rows of items in normal form, so that two trees can be compared item by item.

The rules are those of `eqkin.trees.normal` with the option `exact`, and some that need an understanding of brackets:

    removed      phantoms and alignment marks; punctuation of the sentence at the end
    dissolved    alignments: their cells are members of the row; `mfenced` becomes its brackets and content
    corrected    (a+b)^2, whose square the converter gives to the bracket alone; x_i^2 is {x_i}^2

Every item has a code, and two items of trees read by the same reader are the same if their codes are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqkin.trees.mathml import Node, number_nodes
from eqkin.trees.normal import (
    HORIZONTAL_TAGS,
    ROW_TAGS,
    is_sign,
    is_silent,
    normalise_tag,
    normalise_text,
    normalise_variant,
)

_HIDDEN_TAGS = frozenset({"mphantom", "maligngroup", "malignmark"})
_TOKEN_TAGS = frozenset({"mi", "mn", "mo", "ms", "mtext"})
_DOUBLE_SCRIPT_TAGS = {"msubsup": "msub", "munderover": "munder"}  # and what remains without the upper script
_SIGNS_AS_LETTERS = frozenset("|∥/.!")  # operators that the converter sometimes tags as identifiers
_OPENING, _CLOSING, _BARS = frozenset("([{⟨⌊⌈"), frozenset(")]}⟩⌋⌉"), frozenset("|∥")
_FINAL_PUNCTUATION = frozenset(".,;:")
_ELLIPSES = frozenset("…⋮⋱")
_SIGNS = frozenset("+−±∓")  # noqa: RUF001
_RELATIONS = frozenset("=≠<>≤≥≪≫≡∼≃≈≅∝≺≻←→↔⇐⇒⇔↦↪⟷⟸")  # noqa: RUF001
_INFIX = _RELATIONS | _SIGNS | frozenset("∈∉∋⊂⊆⊊⊃⊇|∤∥⟂⊥⊢⊨:,;×⋅÷*∘∧∨∪∩∖⊕⊗⊙/")  # noqa: RUF001


@dataclass(frozen=True, eq=False)
class RowItem:
    """A member of a row."""

    code: int  # equal for equal items
    tag: str
    text: str
    slots: tuple[ItemRow, ...]  # its children, each as a row
    node: Node | None  # where it comes from; None for a sign that the tree only implies
    number: int  # of that node, breadth first; -1 for none
    covers: tuple[int, ...]  # numbers of the nodes it consists of, without the nodes below them

    @property
    def is_operator(self) -> bool:
        """True if it only joins others."""
        return self.tag == "mo" and self.text not in _ELLIPSES

    @property
    def is_relation(self) -> bool:
        """True if it makes a statement of two expressions."""
        return self.tag == "mo" and self.text in _RELATIONS

    @property
    def needs_before(self) -> bool:
        """True if it needs an operand before it; plus and minus may come first."""
        return self.tag == "mo" and self.text in _INFIX - _SIGNS

    @property
    def needs_after(self) -> bool:
        """True if it needs an operand after it."""
        return self.tag == "mo" and self.text in _INFIX

    def to_node(self) -> Node:
        """Return it as a tree of its own."""
        if self.node is None or not self.slots:
            return self.node or Node(self.tag, text=self.text)
        tag, slots, attributes = self.node.tag, self.slots, dict(self.node.attributes)
        if tag in _DOUBLE_SCRIPT_TAGS and self.tag == "msub":
            tag = _DOUBLE_SCRIPT_TAGS[tag]
        elif tag in _DOUBLE_SCRIPT_TAGS:
            slots = (*slots[0].items[0].slots, slots[1])
        return Node(tag, attributes, "", [build_node(slot.items) for slot in slots])


@dataclass(frozen=True, eq=False)
class ItemRow:
    """Adjacent items; the content of a slot is a row, even if it is a single item."""

    items: tuple[RowItem, ...]

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """The codes of its items: equal for equal rows."""
        return tuple(item.code for item in self.items)

    @cached_property
    def partners(self) -> tuple[int, ...]:
        """For a bracket with a partner in this row, the place of the partner; for any other item, its own place."""
        return _match_brackets(self.items)


def build_node(items: Sequence[RowItem]) -> Node:
    """Return adjacent items as a tree of their own."""
    return items[0].to_node() if len(items) == 1 else Node("mrow", children=[item.to_node() for item in items])


class RowReader:
    """Reads trees as rows; items of all trees it has read can be compared by their codes."""

    def __init__(self, *, variants: bool = True) -> None:
        self._variants = variants  # whether a bold letter differs from others
        self._codes: dict[tuple[str, str, str, tuple[tuple[int, ...], ...]], int] = {}
        self._numbers: dict[int, int] = {}

    def copy(self) -> RowReader:
        """Return a reader that continues from here and leaves this one unchanged."""
        copied = RowReader(variants=self._variants)
        copied._codes = dict(self._codes)
        return copied

    def read(self, root: Node) -> ItemRow:
        """Return a tree as a row."""
        self._numbers = number_nodes(root)
        items = self._read_row([root]).items
        end = len(items)
        while end > 1 and not items[end - 1].slots and items[end - 1].text in _FINAL_PUNCTUATION:
            end -= 1
        return ItemRow(items[:end])

    def _read_row(self, nodes: Iterable[Node]) -> ItemRow:
        return ItemRow(tuple(self._attach_scripts([item for node in nodes for item in self._read_items(node)])))

    def _read_items(self, node: Node) -> list[RowItem]:
        tag = node.tag
        if tag in _HIDDEN_TAGS or (not node.children and tag not in _TOKEN_TAGS):
            return []
        if tag in ROW_TAGS:
            return [item for child in node.children for item in self._read_items(child)]
        if tag == "mfenced":
            return self._read_fenced(node)
        if tag == "mtable" and _is_alignment(node):
            cells = [cell for line in node.children for cell in (line.children or [line])]
            return [item for cell in cells for child in cell.children or [cell] for item in self._read_items(child)]
        if node.children:
            held = [node.children] if tag in HORIZONTAL_TAGS else [[child] for child in node.children]
            return [self._make_item(tag, "", tuple(self._read_row(nodes) for nodes in held), node)]
        if is_silent(tag, node.text, exact=True):
            return []
        return [self._make_item(tag, normalise_text(node.text, exact=True), (), node)]

    def _make_item(
        self, tag: str, text: str, slots: tuple[ItemRow, ...], node: Node | None, covers: tuple[int, ...] = ()
    ) -> RowItem:
        tag = normalise_tag(tag)
        if tag == "msubsup":
            tag, slots = "msup", (ItemRow((self._make_item("msub", "", slots[:2], node, covers),)), slots[2])
        label = "mo" if tag == "mi" and is_sign(text) else tag
        tag = label if text in _SIGNS_AS_LETTERS else tag
        variant = ""
        if self._variants and node is not None and text and tag != "mo":  # a bold dot is a dot
            variant = normalise_variant(node.attributes.get("mathvariant", ""))
        code = self._codes.setdefault((label, text, variant, tuple(slot.codes for slot in slots)), len(self._codes))
        number = self._numbers[id(node)] if node is not None else -1
        return RowItem(code, tag, text, slots, node, number, covers or ((number,) if number >= 0 else ()))

    def _read_fenced(self, node: Node) -> list[RowItem]:
        separators = node.attributes.get("separators", ",").replace(" ", "")
        items = [self._make_sign(node.attributes.get("open", "("))]
        for place, child in enumerate(node.children):
            if place and separators:
                items.append(self._make_sign(separators[min(place, len(separators)) - 1]))
            items += self._read_items(child)
        return [*items, self._make_sign(node.attributes.get("close", ")"))]

    def _make_sign(self, text: str) -> RowItem:
        return self._make_item("mo", normalise_text(text, exact=True), (), None)

    def _attach_scripts(self, items: list[RowItem]) -> list[RowItem]:
        """Give the scripts of a closing bracket to everything in the brackets."""
        done: list[RowItem] = []
        for item in items:
            base, scripts = item, list[RowItem]()
            while base.tag in ("msub", "msup") and len(base.slots[0].items) == 1:
                scripts.append(base)
                base = base.slots[0].items[0]
            if scripts and not base.slots and base.text in _CLOSING | _BARS:
                inside = (*done, base)
                start = _match_brackets(inside)[-1]
                if start < len(done):
                    covers = tuple(number for part in done[start:] for number in part.covers) + item.covers
                    row = ItemRow(inside[start:])
                    for script in reversed(scripts):
                        item = self._make_item(script.tag, "", (row, script.slots[1]), script.node, covers)
                        row = ItemRow((item,))
                    del done[start:]
            done.append(item)
        return done


def _match_brackets(items: Sequence[RowItem]) -> tuple[int, ...]:
    partners = list(range(len(items)))
    stack: list[int] = []
    for place, item in enumerate(items):
        text = item.text if not item.slots else ""
        if text in _BARS and any(items[at].text == text for at in stack[-1:]):
            pass  # a bar that closes
        elif text in _OPENING or text in _BARS:
            stack.append(place)
            continue
        elif text not in _CLOSING:
            continue
        while stack and text in _CLOSING and items[stack[-1]].text in _BARS:
            stack.pop()  # a bar without a partner
        if stack:
            partners[place] = stack.pop()
            partners[partners[place]] = place
    return tuple(partners)


def _is_alignment(table: Node) -> bool:
    """Return whether a table contains the lines of an equation rather than a matrix or cases."""
    columns = table.attributes.get("columnalign", "").split()
    spacing = table.attributes.get("columnspacing", "").split()
    lines = columns[:1] == ["right"] and not spacing  # one column
    return lines or columns == ["right", "center", "left"] or spacing[:1] == ["0em"]
