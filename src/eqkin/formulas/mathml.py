"""Trees as objects, and presentation MathML as their text form.

MathML is read with expat: declarations are refused, a stack replaces recursion, depth and size are bounded.
`<semantics>` and `<math>` wrappers and annotations are dropped; the tree starts below them. Unknown elements count as
`mrow`. Only presentation attributes that a formula needs are kept, so that the MathML written from a tree can be shown
on a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html.entities import html5
from itertools import chain
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, LimitReached
from eqkin.formulas.forest import Forest, accumulate
from eqkin.limits import LIMITS

# Rows, which mean nothing inside each other.
ROW_TAGS = frozenset({"mrow", "mstyle", "mpadded", "math"})
# Elements whose children are one row.
HORIZONTAL_TAGS = ROW_TAGS | {"mtd", "msqrt", "menclose", "merror", "mphantom"}
MATHML_TAGS = frozenset(
    "mi mn mo ms mtext mspace mrow mfrac msqrt mroot mstyle merror mpadded mphantom mfenced menclose msub msup"
    " msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr mtd mlabeledtr maligngroup malignmark"
    " maction mglyph".split()
)
MATHML_ATTRIBUTES = frozenset(
    "accent accentunder align bevelled close columnalign columnlines columnspacing columnspan columnwidth depth"
    " displaystyle equalcolumns equalrows fence form frame framespacing height largeop linebreak linethickness lquote"
    " lspace mathbackground mathcolor mathsize mathvariant maxsize minlabelspacing minsize movablelimits notation"
    " numalign denomalign open rowalign rowlines rowspacing rowspan rquote rspace scriptlevel scriptminsize"
    " scriptsizemultiplier separator separators side stretchy subscriptshift superscriptshift symmetric voffset"
    " width".split()
)
_LEAF_TAGS = frozenset("mi mn mo ms mtext mspace".split())
# Spaces that mean nothing if they are alone in a row.
_SMALL_SPACES = "\u2004\u2005\u2006\u2009\u200a\u2063"
_BLANKS = re.compile(r"[ \t\r\n]+")
_DROPPED_TAGS = frozenset("annotation annotation-xml".split())
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]*);")
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
# Characters that no XML document may contain.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNSAFE_VALUE = re.compile(r"[<>&\"'`\x00-\x1f\ud800-\udfff\ufffe\uffff]|url\(|javascript:|expression\(", re.IGNORECASE)


@dataclass(slots=True)
class Node:
    """One element of presentation MathML."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """The nodes of a tree, breadth first, as columns: many times faster to read from a forest than `Node`."""

    tags: list[str]
    # A line `name=value` for each.
    attributes: list[str]
    texts: list[str]
    # Number of children.
    counts: list[int]

    @classmethod
    def read(cls, forest: Forest, index: int) -> NodeColumns:
        """Read the tree at `index` of a forest."""
        nodes = slice(int(forest.offsets[index]), int(forest.offsets[index + 1]))
        strings = (forest.tags, forest.tag), (forest.attributes, forest.attribute), (forest.texts, forest.text)
        tags, attributes, texts = (list(map(known.__getitem__, at[nodes].tolist())) for known, at in strings)
        return cls(tags, attributes, texts, forest.n_children[nodes].tolist())

    @classmethod
    def from_node(cls, root: Node) -> NodeColumns:
        """List the nodes of a tree."""
        nodes = list_nodes(root)
        attributes = ["\n".join(f"{name}={value}" for name, value in sorted(node.attributes.items())) for node in nodes]
        counts = [len(node.children) for node in nodes]
        return cls([node.tag for node in nodes], attributes, [node.text for node in nodes], counts)


def join_columns(trees: Sequence[NodeColumns]) -> Forest:
    """Return a forest of some trees."""
    tags, tag = _number_strings(chain.from_iterable(tree.tags for tree in trees))
    attributes, attribute = _number_strings(chain.from_iterable(tree.attributes for tree in trees))
    texts, text = _number_strings(chain.from_iterable(tree.texts for tree in trees))
    sizes = [len(tree.tags) for tree in trees]
    return Forest(
        tags=tags,
        attributes=attributes,
        texts=texts,
        tag=tag,
        attribute=attribute,
        text=text,
        n_children=np.array(list(chain.from_iterable(tree.counts for tree in trees)), np.int64),
        offsets=accumulate(np.array(sizes, np.int64)),
    )


def _number_strings(strings: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct strings, and the number of each string among them."""
    every = list(strings)
    distinct = list(dict.fromkeys(every))
    # Compiled loops: a search joins some thousands of nodes.
    numbers = dict(zip(distinct, range(len(distinct)), strict=True))
    return distinct, np.fromiter(map(numbers.__getitem__, every), np.int64, len(every))


class _MathmlReader:
    def __init__(self) -> None:
        self.nodes = 0
        # How many elements are open that are dropped.
        self.skipping = 0
        self.root = Node("math")
        self.stack = [self.root]

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2].rpartition("}")[2].lower()
        if self.skipping or name in _DROPPED_TAGS:
            self.skipping += 1
            return
        self.nodes += 1
        if self.nodes > LIMITS.tree_nodes:
            raise LimitReached(f"MathML with more than {LIMITS.tree_nodes} elements")
        if len(self.stack) > LIMITS.tree_depth:
            raise LimitReached(f"MathML nested deeper than {LIMITS.tree_depth}")
        if name in ("math", "semantics"):
            node = Node("math")
        else:
            kept = {k: v for k, v in attributes.items() if len(v) < 100 and _is_allowed(k, v)}
            node = Node(name if name in MATHML_TAGS else "mrow", kept)
        self.stack[-1].children.append(node)
        self.stack.append(node)

    def end_element(self, name: str) -> None:
        if self.skipping:
            self.skipping -= 1
            return
        node = self.stack.pop()
        if node.children and node.tag in _LEAF_TAGS:
            # A leaf contains only text; KaTeX puts whole expressions into <mo>.
            node.tag = "mrow"
        node.text = _BLANKS.sub(" ", node.text).strip(" ") if node.tag in _LEAF_TAGS else ""
        if node.tag == "mtext" and node.text and not node.text.strip(_SMALL_SPACES):
            if self.stack[-1].tag in HORIZONTAL_TAGS:
                self.stack[-1].children.pop()
        if len(node.text) > LIMITS.leaf_chars:
            raise LimitReached(f"MathML text longer than {LIMITS.leaf_chars} characters")

    def add_text(self, text: str) -> None:
        if not self.skipping:
            self.stack[-1].text += text

    def refuse_declaration(self, *_: object) -> int:
        raise BadInput("MathML with a document type or entity declaration is refused")


def _is_allowed(name: str, value: str) -> bool:
    return name in MATHML_ATTRIBUTES and not _UNSAFE_VALUE.search(value)


def parse_mathml(markup: str) -> Node:
    """Return the tree of a `<math>` element given as text. Raises `BadInput` or `LimitReached`."""
    if len(markup) > LIMITS.mathml_chars:
        raise LimitReached(f"MathML longer than {LIMITS.mathml_chars} characters")
    markup = _ENTITY.sub(lambda m: m[0] if m[1] in _XML_ENTITIES else escape(html5.get(m[1] + ";", "?")), markup)
    reader = _MathmlReader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start_element
    parser.EndElementHandler = reader.end_element
    parser.CharacterDataHandler = reader.add_text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = reader.refuse_declaration
    parser.ExternalEntityRefHandler = reader.refuse_declaration
    parser.buffer_text = True
    try:
        parser.Parse(markup.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise BadInput(f"not well-formed MathML: {error}") from error
    children = reader.root.children
    while len(children) == 1 and children[0].tag == "math":
        children = children[0].children
    flat = [inner for child in children for inner in (child.children if child.tag == "math" else [child])]
    if not flat:
        raise BadInput("MathML without content")
    root = flat[0] if len(flat) == 1 else Node("mrow", children=flat)
    for node in list_nodes(root):
        # A <math> may be deep inside, as in <mi><math>.
        node.tag = "mrow" if node.tag == "math" else node.tag
    return root


def to_mathml(tree: Node | NodeColumns, *, display: bool = True, classes: Mapping[int, str] | None = None) -> str:
    """Return a `<math>` element that contains a tree: known elements and attributes only, all text escaped.

    Args:
        tree: The tree.
        display: Whether it is shown on a line of its own.
        classes: If given, every node carries its breadth-first number as `data-node`, and those in `classes` their
            class, which needs no escapes.
    """
    columns = NodeColumns.from_node(tree) if isinstance(tree, Node) else tree
    return _write_math(_write_nodes(columns, classes)[0], display)


def write_parts(tree: NodeColumns, parts: Sequence[Sequence[int]]) -> list[str]:
    """Return a `<math>` element for each of some parts of a tree, given by the numbers of their topmost nodes."""
    written = _write_nodes(tree, None) if parts else []
    inside = ("".join(map(written.__getitem__, part)) for part in parts)
    return [
        _write_math(inner if len(part) == 1 else f"<mrow>{inner}</mrow>", display=False)
        for part, inner in zip(parts, inside, strict=True)
    ]


def _write_math(inside: str, display: bool) -> str:
    block = ' display="block"' if display else ""
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}>{inside}</math>'


def _write_nodes(columns: NodeColumns, classes: Mapping[int, str] | None) -> list[str]:
    """Return the markup of each node and its descendants."""
    following = len(columns.tags)
    written = [""] * following
    backwards = map(reversed, (range(following), columns.tags, columns.attributes, columns.texts, columns.counts))
    # Backwards, so that children come before their parents.
    for number, tag, extra, text, count in zip(*backwards, strict=True):
        opening, inside, closing = _write_ends(tag, extra, text)
        if count:
            following -= count
            inside += "".join(written[following : following + count])
        if classes is not None:
            shade = f' class="{classes[number]}"' if number in classes else ""
            opening += f' data-node="{number}"{shade}'
        written[number] = f"{opening}>{inside}{closing}"
    return written


@lru_cache(20_000)
def _write_ends(tag: str, attributes: str, text: str) -> tuple[str, str, str]:
    """Return the start of an element up to its attributes, its text, and its end."""
    known = tag if tag in MATHML_TAGS else "mrow"
    pairs = _read_attributes(attributes)
    allowed = "".join(f" {name}={quoteattr(value)}" for name, value in pairs if _is_allowed(name, value))
    return f"<{known}{allowed}", escape(NOT_XML.sub("", text)), f"</{known}>"


def to_forest(root: Node) -> Forest:
    """Return a forest of this one tree."""
    return join_columns([NodeColumns.from_node(root)])


@lru_cache(1_000)
def _read_attributes(lines: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition("=") for line in lines.split("\n") if line)]


def to_node(forest: Forest, index: int) -> Node:
    """Return the tree at `index` of a forest as nodes."""
    columns = NodeColumns.read(forest, index)
    nodes = [
        Node(tag, dict(_read_attributes(lines)), text)
        for tag, lines, text in zip(columns.tags, columns.attributes, columns.texts, strict=True)
    ]
    following = 1
    for node, count in zip(nodes, columns.counts, strict=True):
        if count:
            node.children = nodes[following : following + count]
            following += count
    return nodes[0]


def list_nodes(root: Node) -> list[Node]:
    """Return the nodes of a tree, breadth first."""
    nodes = [root]
    for node in nodes:
        nodes.extend(node.children)
    return nodes
