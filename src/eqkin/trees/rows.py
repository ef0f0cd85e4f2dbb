r"""A tree as rows of items, without what is layout alone, so that two trees can be laid beside each other.

left out    blanks, phantoms, function application and invisible operators, a full stop or comma at the end
dissolved   rows in rows and alignments: their members take their place; fences stand in the row they are in
alike       limits and scripts; signs with several characters for the same thing; upright letters and others
put right   (a+b)^2, whose square the converter gives to the bracket alone; x_i^2, which is {x_i}^2

Every item has a code, and two items say the same if their codes are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqkin.trees.mathml import Node, number_nodes

_DISSOLVED_TAGS = frozenset({"mrow", "mstyle", "mpadded", "math", "maction"})
_ONE_ROW_TAGS = frozenset({"msqrt", "menclose", "merror", "mtd"})  # their children are members of one row
_BLANK_TAGS = frozenset({"mspace", "mphantom", "maligngroup", "malignmark"})
_INVISIBLE_TEXTS = frozenset({"", "\u200b", "\u2061", "\u2062", "\u2063", "\u2064"})
_SCRIPT_TAGS = {"munder": "msub", "mover": "msup", "munderover": "msubsup"}
_DOUBLE_SCRIPT_TAGS = {"msubsup": "msub", "munderover": "munder"}  # and what is left without the upper one
_EQUIVALENT_TEXTS = {"-": "−", "*": "∗", "|": "∣", "‖": "∥", "〈": "⟨", "〉": "⟩", "·": "⋅", "⋯": "…", "'": "′"}  # noqa: RUF001
_SIGNS_AS_LETTERS = frozenset("∣∥/.!")  # which the converter takes for letters at times
_OPENING, _CLOSING, _BARS = frozenset("([{⟨⌊⌈"), frozenset(")]}⟩⌋⌉"), frozenset("∣∥")
_FINAL_PUNCTUATION = frozenset(".,;")
_ELLIPSES = frozenset("…⋯⋮⋱")
_SIGNS = frozenset("+−±∓")  # noqa: RUF001
_RELATIONS = frozenset("=≠<>≤≥⩽⩾≪≫≡∼≃≈≅∝≺≻≔←→↔⇐⇒⇔↦↪⟵⟶⟷⟸⟹⟺⟼")  # noqa: RUF001
_INFIX = _RELATIONS | _SIGNS | frozenset("∈∉∋⊂⊆⊊⊃⊇∣∤∥⟂⊥⊢⊨:,;×⋅÷∗∘∧∨∪∩∖⊕⊗⊙/")  # noqa: RUF001


@dataclass(frozen=True, eq=False)
class RowItem:
    """A member of a row."""

    code: int  # the same for items that say the same
    tag: str
    text: str
    slots: tuple[ItemRow, ...]  # what it holds in fixed places
    node: Node | None  # where it comes from; None for a sign that the tree only implies
    number: int  # of that node, breadth first; -1 for none
    covers: tuple[int, ...]  # numbers of the nodes it consists of, without those below them

    @property
    def is_operator(self) -> bool:
        """Whether it only joins others."""
        return self.tag == "mo" and self.text not in _ELLIPSES

    @property
    def is_relation(self) -> bool:
        """Whether it makes a statement of two expressions."""
        return self.tag == "mo" and self.text in _RELATIONS

    @property
    def needs_before(self) -> bool:
        """Whether something has to stand before it; signs may come first."""
        return self.tag == "mo" and self.text in _INFIX - _SIGNS

    @property
    def needs_after(self) -> bool:
        """Whether something has to stand after it."""
        return self.tag == "mo" and self.text in _INFIX

    def to_node(self) -> Node:
        """It as a tree of its own."""
        if self.node is None or not self.slots:
            return self.node or Node(self.tag, text=self.text)
        tag, slots, attributes = self.node.tag, self.slots, dict(self.node.attributes)
        if tag in _DOUBLE_SCRIPT_TAGS and self.tag == "msub":
            tag = _DOUBLE_SCRIPT_TAGS[tag]
        elif tag in _DOUBLE_SCRIPT_TAGS:
            slots = (*slots[0].items[0].slots, slots[1])
        return Node(tag, attributes, "", [slot.to_node() for slot in slots])


@dataclass(frozen=True, eq=False)
class ItemRow:
    """Members side by side; what stands in a slot is a row, be it of one."""

    items: tuple[RowItem, ...]

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """What it says."""
        return tuple(item.code for item in self.items)

    @cached_property
    def partners(self) -> tuple[int, ...]:
        """For a bracket that is closed in this row, or closes one, the place of the other; else its own."""
        return _match_brackets(self.items)

    def to_node(self) -> Node:
        """It as a tree of its own."""
        return build_node(self.items)


def build_node(items: Sequence[RowItem]) -> Node:
    """A run of items as a tree of its own."""
    return items[0].to_node() if len(items) == 1 else Node("mrow", children=[item.to_node() for item in items])


class RowReader:
    """Reads trees as rows; items of all trees it has read can be compared by their codes."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str, str, tuple[tuple[int, ...], ...]], int] = {}
        self._numbers: dict[int, int] = {}

    def copy(self) -> RowReader:
        """A reader that goes on from here, and leaves this one as it is."""
        copied = RowReader()
        copied._codes = dict(self._codes)
        return copied

    def read(self, root: Node) -> ItemRow:
        """A tree as a row."""
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
        if tag in _BLANK_TAGS or (not node.children and tag not in ("mn", "mi", "mo", "ms", "mtext")):
            return []
        if tag in _DISSOLVED_TAGS:
            return [item for child in node.children for item in self._read_items(child)]
        if tag == "mfenced":
            return self._read_fenced(node)
        if tag == "mtable" and _is_alignment(node):
            cells = [cell for line in node.children for cell in (line.children or [line])]
            return [item for cell in cells for child in cell.children or [cell] for item in self._read_items(child)]
        if node.children:
            held = [node.children] if tag in _ONE_ROW_TAGS else [[child] for child in node.children]
            return [self._make_item(tag, "", tuple(self._read_row(nodes) for nodes in held), node)]
        text = " ".join(node.text.split())
        text = _EQUIVALENT_TEXTS.get(text, text)
        if text in _INVISIBLE_TEXTS or (tag == "mtext" and not text.strip()):
            return []
        return [self._make_item("mo" if tag == "mi" and text in _SIGNS_AS_LETTERS else tag, text, (), node)]

    def _make_item(
        self, tag: str, text: str, slots: tuple[ItemRow, ...], node: Node | None, covers: tuple[int, ...] = ()
    ) -> RowItem:
        tag = _SCRIPT_TAGS.get(tag, tag)
        if tag == "msubsup":
            tag, slots = "msup", (ItemRow((self._make_item("msub", "", slots[:2], node, covers),)), slots[2])
        variant = node.attributes.get("mathvariant", "") if node is not None and tag != "mo" else ""
        key = tag, text, "" if variant == "normal" else variant, tuple(slot.codes for slot in slots)
        number = self._numbers[id(node)] if node is not None else -1
        code = self._codes.setdefault(key, len(self._codes))
        return RowItem(code, tag, text, slots, node, number, covers or ((number,) if number >= 0 else ()))

    def _read_fenced(self, node: Node) -> list[RowItem]:
        separators = node.attributes.get("separators", ",").replace(" ", "")
        items = [self._make_item("mo", node.attributes.get("open", "("), (), None)]
        for place, child in enumerate(node.children):
            if place and separators:
                items.append(self._make_item("mo", separators[min(place, len(separators)) - 1], (), None))
            items += self._read_items(child)
        return [*items, self._make_item("mo", node.attributes.get("close", ")"), (), None)]

    def _attach_scripts(self, items: list[RowItem]) -> list[RowItem]:
        """Give scripts of a closing bracket to all that is in the brackets."""
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
            stack.pop()  # a bar that stood for itself
        if stack:
            partners[place] = stack.pop()
            partners[partners[place]] = place
    return tuple(partners)


def _is_alignment(table: Node) -> bool:
    """Whether a table is lines of an equation, not a matrix or cases."""
    columns = table.attributes.get("columnalign", "").split()
    spacing = table.attributes.get("columnspacing", "").split()
    lines = columns[:1] == ["right"] and not spacing  # one column
    return lines or columns == ["right", "center", "left"] or spacing[:1] == ["0em"]
