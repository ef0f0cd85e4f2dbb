"""MathML text <-> tree.

Reading: expat with declarations refused, an explicit stack instead of recursion, bounded depth and size; `<semantics>`
and `<math>` wrappers and annotations are dropped, the tree starts below them. Unknown elements are taken as `mrow`;
only attributes of presentation MathML that a formula needs are kept, so what is written again can be shown on a page
as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.entities import html5
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS, Limits
from eqkin.trees.forest import Forest, ForestBuilder

MATHML_TAGS = frozenset(
    "mi mn mo ms mtext mspace mrow mfrac msqrt mroot mstyle merror mpadded mphantom mfenced menclose msub msup"
    " msubsup munder mover"
    " munderover mmultiscripts mprescripts none mtable mtr mtd mlabeledtr maligngroup malignmark maction mglyph".split()
)
MATHML_ATTRIBUTES = frozenset(
    "accent accentunder align bevelled close columnalign columnlines columnspacing columnspan columnwidth depth"
    " displaystyle equalcolumns"
    " equalrows fence form frame framespacing height largeop linebreak linethickness lquote lspace"
    " mathbackground mathcolor mathsize"
    " mathvariant maxsize minlabelspacing minsize movablelimits notation numalign denomalign open rowalign"
    " rowlines rowspacing rowspan"
    " rquote rspace scriptlevel scriptminsize scriptsizemultiplier separator separators side stretchy"
    " subscriptshift superscriptshift"
    " symmetric voffset width".split()
)
_LEAF_TAGS = frozenset("mi mn mo ms mtext mspace".split())
_ROW_LIKE_TAGS = frozenset("mrow mtd mstyle mpadded mphantom menclose msqrt merror math".split())
_SMALL_SPACES = "\u2004\u2005\u2006\u2009\u200a\u2063"  # in a row of their own they mean nothing
_BLANKS = re.compile(r"[ \t\r\n]+")
_DROPPED_TAGS = frozenset("annotation annotation-xml".split())
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]*);")
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
_UNSAFE_VALUE = re.compile(r"[<>&\"'`\x00-\x1f]|url\(|javascript:|expression\(", re.IGNORECASE)


@dataclass
class Node:
    """One element of presentation MathML."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Node] = field(default_factory=list)


class _MathmlReader:
    def __init__(self, limits: Limits) -> None:
        self.limits, self.nodes, self.skipping = limits, 0, 0
        self.root = Node("math")
        self.stack = [self.root]

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2].rpartition("}")[2].lower()
        if self.skipping or name in _DROPPED_TAGS:
            self.skipping += 1
            return
        self.nodes += 1
        if self.nodes > self.limits.tree_nodes:
            raise LimitReached(f"MathML with more than {self.limits.tree_nodes} elements")
        if len(self.stack) > self.limits.tree_depth:
            raise LimitReached(f"MathML nested deeper than {self.limits.tree_depth}")
        transparent = name in ("math", "semantics")
        kept = {
            k: v
            for k, v in attributes.items()
            if k in MATHML_ATTRIBUTES and len(v) < 100 and not _UNSAFE_VALUE.search(v)
        }
        node = Node(name if name in MATHML_TAGS else "mrow", {} if transparent else kept)
        if transparent:
            node.tag = "math"
        self.stack[-1].children.append(node)
        self.stack.append(node)

    def end_element(self, name: str) -> None:
        if self.skipping:
            self.skipping -= 1
            return
        node = self.stack.pop()
        if node.children and node.tag in _LEAF_TAGS:
            node.tag = "mrow"  # a token holds text alone; KaTeX puts whole expressions into <mo>
        node.text = _BLANKS.sub(" ", node.text).strip(" ") if node.tag in _LEAF_TAGS else ""
        if (
            node.tag == "mtext"
            and node.text
            and self.stack[-1].tag in _ROW_LIKE_TAGS
            and not node.text.strip(_SMALL_SPACES)
        ):
            self.stack[-1].children.pop()
        if len(node.text) > self.limits.leaf_chars:
            raise LimitReached(f"MathML text longer than {self.limits.leaf_chars} characters")

    def add_text(self, text: str) -> None:
        if not self.skipping:
            self.stack[-1].text += text

    def refuse_declaration(self, *_: object) -> int:
        raise BadInput("MathML with a document type or entity declaration is refused")


def parse_mathml(markup: str, limits: Limits = LIMITS) -> Node:
    """The tree of a `<math>` element given as text. Raises `BadInput` or `LimitReached`."""
    if len(markup) > limits.mathml_chars:
        raise LimitReached(f"MathML longer than {limits.mathml_chars} characters")
    markup = _ENTITY.sub(lambda m: m[0] if m[1] in _XML_ENTITIES else escape(html5.get(m[1] + ";", "?")), markup)
    reader = _MathmlReader(limits)
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = (
        reader.start_element,
        reader.end_element,
        reader.add_text,
    )
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = (
        reader.refuse_declaration
    )
    parser.buffer_text = True
    try:
        parser.Parse(markup.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise BadInput(f"not well-formed MathML: {error}") from error
    return _unwrap_math(reader.root)


def _unwrap_math(root: Node) -> Node:
    """The node below `<math>` and `<semantics>`; several become one `mrow`."""
    children = root.children
    while len(children) == 1 and children[0].tag == "math":
        children = children[0].children
    flat: list[Node] = []
    for child in children:
        flat.extend(child.children if child.tag == "math" else [child])
    if not flat:
        raise BadInput("MathML without content")
    return flat[0] if len(flat) == 1 else Node("mrow", children=flat)


def to_forest(root: Node) -> Forest:
    """A forest of this one tree."""
    tags: dict[str, int] = {}
    attributes: dict[str, int] = {}
    texts: dict[str, int] = {}
    columns: tuple[list[int], ...] = ([], [], [], [])
    level = [root]
    while level:
        for node in level:
            joined = "\n".join(f"{name}={value}" for name, value in sorted(node.attributes.items()))
            columns[0].append(tags.setdefault(node.tag, len(tags)))
            columns[1].append(attributes.setdefault(joined, len(attributes)))
            columns[2].append(texts.setdefault(node.text, len(texts)))
            columns[3].append(len(node.children))
        level = [child for node in level for child in node.children]
    builder = ForestBuilder()
    builder.add_batch(list(tags), list(attributes), list(texts), [columns])
    return builder.build()


def to_node(forest: Forest, index: int) -> Node:
    """The tree at `index` of a forest as nodes."""
    start, end = int(forest.offsets[index]), int(forest.offsets[index + 1])
    nodes: list[Node] = []
    for i in range(start, end):
        lines = forest.attributes[int(forest.attribute[i])]
        attributes = dict(line.split("=", 1) for line in lines.split("\n")) if lines else {}
        nodes.append(Node(forest.tags[int(forest.tag[i])], attributes, forest.texts[int(forest.text[i])]))
    following = 1
    for node, count in zip(nodes, forest.n_children[start:end].tolist(), strict=True):
        node.children = nodes[following : following + count]
        following += count
    return nodes[0]


def to_mathml(root: Node, *, display: bool = True, classes: Mapping[int, str] | None = None) -> str:
    """A `<math>` element with the tree in it. Only known elements and attributes come out, all text escaped.

    With `classes`, nodes carry their number, breadth first, as `data-node`, and those named there a class.
    """
    block = ' display="block"' if display else ""
    pieces = [f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}>']
    number = number_nodes(root) if classes is not None else {}
    stack: list[Node | str] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        tag = item.tag if item.tag in MATHML_TAGS else "mrow"
        allowed = {k: v for k, v in item.attributes.items() if k in MATHML_ATTRIBUTES and not _UNSAFE_VALUE.search(v)}
        if classes is not None:
            allowed["data-node"] = str(number[id(item)])
            allowed |= {"class": classes[number[id(item)]]} if number[id(item)] in classes else {}
        pieces.append(
            f"<{tag}"
            + "".join(f" {name}={quoteattr(value)}" for name, value in allowed.items())
            + ">"
            + escape(item.text)
        )
        stack.append(f"</{tag}>")
        stack.extend(reversed(item.children))
    return "".join(pieces) + "</math>"


def number_nodes(root: Node) -> dict[int, int]:
    """Each node's number, breadth first, by its identity."""
    nodes = [root]
    for node in nodes:
        nodes.extend(node.children)
    return {id(node): number for number, node in enumerate(nodes)}


def to_json(root: Node) -> dict[str, object]:
    """The tree as nested dictionaries (tag, attributes, text, children), empty parts left out."""
    out: dict[str, object] = {"tag": root.tag}
    if root.attributes:
        out["attributes"] = root.attributes
    if root.text:
        out["text"] = root.text
    if root.children:
        out["children"] = [to_json(child) for child in root.children]
    return out
