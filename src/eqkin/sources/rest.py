r"""reStructuredText, and docstrings of an installed Python package, to LaTeX-like text; code is dropped.

`.. math::` and `:math:` become math, headings sections. A package is read without importing it: one paper per module
that has math.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from eqkin.errors import BadInput, EqkinError
from eqkin.latex.titles import find_year
from eqkin.limits import LIMITS
from eqkin.sources.files import display_path, read_capped
from eqkin.sources.markdown import MarkdownConverter
from eqkin.sources.paper import (
    Paper,
    SourceItem,
    clean_text,
    decode_text,
    escape_percent,
    format_display_math,
    format_heading,
    hash_parts,
    make_failed_item,
)

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{1,}[ \t]*\Z")
_DIRECTIVE = re.compile(r"[ \t]*\.\.[ \t]+(?:\|[^|\n]{1,100}\|[ \t]+)?([A-Za-z][\w:.+-]{0,60})::[ \t]*(.*)\Z")
_OPTION = re.compile(r"[ \t]*:([A-Za-z][\w -]{0,40}):[ \t]*(.*)\Z")
_COMMENT = re.compile(r"[ \t]*\.\.(?:[ \t]|\Z)")
_TARGET = re.compile(r"[ \t]*\.\.[ \t]+(?:_|\[)")
_DROPPED_DIRECTIVES = frozenset(
    "code code-block sourcecode highlight literalinclude include doctest testcode testsetup testcleanup testoutput "
    "ipython plot jupyter-execute image figure raw toctree autosummary automodule autoclass autofunction index "
    "parsed-literal productionlist prompt graphviz digraph mermaid only-html currentmodule module csv-table "
    "math-macro bibliography meta tikz".split()
)
_DOCUMENT_FIELD = re.compile(r"^:(Authors?|Date|Year):[ \t]+(\S.*)$", re.MULTILINE | re.IGNORECASE)
_MAX_HEADER_CHARS = 3_000
_ROLE_MATH = re.compile(r":math:`((?:[^`\\]|\\[\s\S]){1,5000})`|`((?:[^`\\]|\\[\s\S]){1,5000})`:math:")
_LITERAL = re.compile(r"``[^`\n]{0,500}``")
_ROLE = re.compile(r":[a-zA-Z][\w:+.-]{0,60}:`([^`]{0,1000})`")
_LINK = re.compile(r"`([^`<]{1,500}?)\s*<[^`<>]{1,1000}>`__?")
_INLINE_PIECES = re.compile(rf"{_ROLE_MATH.pattern}|{_LITERAL.pattern}|{_ROLE.pattern}|{_LINK.pattern}|(\\.)|([%$])")


def read_rest(raw: bytes, key: str, origin: str) -> Paper:
    """Return the paper in a reStructuredText file; any text is accepted."""
    converter = RestConverter(decode_text(raw))
    text = converter.convert()
    paper = Paper(key, text, origin, kind="rst", title=converter.first_heading)
    for name, value in _DOCUMENT_FIELD.findall(text[:_MAX_HEADER_CHARS]):
        if name.lower() in ("date", "year"):
            paper.year = paper.year or find_year(value)
        else:
            paper.authors.append(value)
    return paper


class RestConverter:
    """Converts one reStructuredText to LaTeX; `first_heading` is known after `convert`.

    Args:
        text: what to convert.
        top_level: level of its highest heading; 1 is a section.
    """

    def __init__(self, text: str, top_level: int = 1) -> None:
        self.first_heading = ""
        self._lines = [line.expandtabs(8).rstrip() for line in clean_text(text).split("\n")]
        self._top = top_level
        self._styles: list[str] = []
        self._out: list[str] = []
        self._prose: list[str] = []
        self._at = 0

    def convert(self) -> str:
        """Return the text as LaTeX."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            directive = _DIRECTIVE.match(line)
            if directive:
                self._handle_directive(directive)
            elif _TARGET.match(line):
                self._at += 1
            elif _COMMENT.match(line):
                self._flush_prose()
                self._take_block()
            elif not self._try_heading():
                self._handle_line(line)
        self._flush_prose()
        return "".join(self._out)

    def _flush_prose(self) -> None:
        if self._prose:
            self._out.append(_convert_inline("\n".join(self._prose)) + "\n")
            self._prose = []

    def _handle_line(self, line: str) -> None:
        """Handle a line of prose; skip the code after a `::` or a prompt."""
        if line.lstrip().startswith((">>> ", "... ")):
            while self._at < len(self._lines) and self._lines[self._at]:
                self._at += 1
            return
        if line.endswith("::"):
            self._prose.append(line[:-1])
            self._flush_prose()
            self._take_block()
            return
        self._prose.append(line)
        if not line:
            self._flush_prose()
        self._at += 1

    def _take_block(self) -> list[str]:
        """Consume the current line and the deeper indented lines below it; return the latter."""
        indent = _measure_indent(self._lines[self._at])
        start = self._at + 1
        end = start
        while end < len(self._lines) and (not self._lines[end] or _measure_indent(self._lines[end]) > indent):
            end += 1
        self._at = end
        return self._lines[start:end]

    def _handle_directive(self, match: re.Match[str]) -> None:
        name = match.group(1).lower().rpartition(":")[2]
        self._flush_prose()
        if name == "math":
            self._append_math(match.group(2), self._take_block())
        elif name in _DROPPED_DIRECTIVES:
            block = self._take_block()
            if name == "raw" and match.group(2).strip() == "latex":
                self._out.append("\n".join(block) + "\n")
        else:
            # A note or a theorem: its content is ordinary text.
            self._prose.append(match.group(2))
            self._at += 1
            while self._at < len(self._lines) and _OPTION.match(self._lines[self._at]):
                self._at += 1
            self._flush_prose()

    def _append_math(self, argument: str, block: list[str]) -> None:
        """Append the equations of one directive, separated by blank lines; with `:nowrap:` its content as it is."""
        first = next((i for i, line in enumerate(block) if not line), len(block))
        options = [option for line in block[:first] if (option := _OPTION.match(line))]
        label = next((o.group(2).strip() for o in options if o.group(1).lower() in ("label", "name")), "")
        raw = any(option.group(1).lower() in ("nowrap", "no-wrap") for option in options)
        kept = [line for line in block[:first] if not _OPTION.match(line)]
        content = "\n".join([argument, *kept, *block[first:]])
        if raw:
            self._out.append("\n" + "\n".join(line for line in content.split("\n") if line) + "\n")
            return
        for equation in re.split(r"\n[ \t]*\n", content):
            body = equation.strip()
            if _needs_alignment(body):
                body = rf"\begin{{aligned}}{body}\end{{aligned}}"
            if label and body:
                body += rf" \label{{{label}}}"
                label = ""
            self._out.append(format_display_math(body))

    def _try_heading(self) -> bool:
        """Append the heading that starts at the current line; return False if there is none."""
        lines = self._lines
        at = self._at
        over = _ADORNMENT.match(lines[at]) if lines[at] and at + 2 < len(lines) else None
        if over and lines[at + 2] == lines[at] and lines[at + 1].strip() and not _ADORNMENT.match(lines[at + 1]):
            self._append_heading(over.group(1) * 2, lines[at + 1])
            self._at += 3
            return True
        under = _ADORNMENT.match(lines[at + 1]) if at + 1 < len(lines) else None
        title = lines[at]
        if not under or not title or self._prose or _ADORNMENT.match(title):
            return False
        # A short line of signs under a long title is not its adornment.
        if len(lines[at + 1].strip()) < min(len(title.strip()), 4) or _measure_indent(title) != _measure_indent(
            lines[at + 1]
        ):
            return False
        self._append_heading(under.group(1), title)
        self._at += 2
        return True

    def _append_heading(self, style: str, title: str) -> None:
        self._flush_prose()
        if style not in self._styles:
            self._styles.append(style)
        title = _convert_inline(title.strip())
        self.first_heading = self.first_heading or title
        self._out.append(format_heading(self._top + self._styles.index(style), title))


def _measure_indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _needs_alignment(body: str) -> bool:
    r"""Return whether `&` or `\\` occurs in `body` outside of all environments, so that it must be an alignment."""
    depth = 0
    for match in re.finditer(r"\\begin\s?\{|\\end\s?\{|\\\\|\\.|&", body):
        token = match.group()
        if token.startswith("\\begin"):
            depth += 1
        elif token.startswith("\\end"):
            depth -= 1
        elif depth == 0 and (token == "&" or (token == "\\\\" and body[match.end() :].strip())):
            return True
    return False


def _convert_inline(text: str) -> str:
    r"""Convert prose: `:math:` becomes `$...$`, other roles and links their words; literals are dropped."""

    def convert(match: re.Match[str]) -> str:
        math = match.group(1) or match.group(2)
        if math:
            return f"${' '.join(math.split())}$"
        words = match.group(3) if match.group(3) is not None else match.group(4)
        if words is not None:
            return escape_percent(re.sub(r"\s*<[^<>]*>\Z", "", words).lstrip("~!").replace("$", r"\$"))
        if match.group(5):
            return match.group(5)
        return "\\" + match.group(6) if match.group(6) else ""

    return _INLINE_PIECES.sub(convert, text)


_MATH = re.compile(rb"\.\. math::|:math:`|\$\$|\\begin\{")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def iter_package_items(name: str) -> Iterator[SourceItem]:
    """Return the modules of the installed package or module `name` (`scipy`, `scipy.stats`) that have math.

    Raises `BadInput` if there is no such package, or it has no Python source.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(f"python:{name}: is not the name of a package; write for example python:scipy.stats")
    roots = _find_locations(name)
    if not roots:
        raise BadInput(f"python:{name}: no such package with Python source is installed here")
    return _iter_module_items(name, roots)


def _find_locations(name: str) -> list[Path]:
    """Return the folders or the file of a package; no code of the package is run."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return []
    places = spec.submodule_search_locations or [spec.origin or "no file"]
    roots = [Path(place).joinpath(*rest) for place in places]
    folders = [root for root in roots if root.is_dir()]
    return folders or [path for root in roots if (path := root.with_suffix(".py")).is_file()]


def _iter_module_items(name: str, roots: list[Path]) -> Iterator[SourceItem]:
    for root in roots:
        for path in _iter_python_files(root):
            parts = path.relative_to(root).with_suffix("").parts if path != root else ()
            module = ".".join([name, *(parts[:-1] if parts[-1:] == ("__init__",) else parts)])
            key = f"python:{module}"
            try:
                raw = read_capped(path, LIMITS.document_bytes)
            except EqkinError as error:
                yield make_failed_item(key, display_path(path), error)
                continue
            if _MATH.search(raw):
                load = partial(_load_module, str(path), module)
                yield SourceItem(key, display_path(path), load=load, digest=hash_parts(raw))


def _iter_python_files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in ("tests", "test", "__pycache__"))
        yield from (Path(folder, file) for file in sorted(files) if file.endswith(".py"))


def _load_module(path: str, module: str) -> Paper:
    raw = read_capped(path, LIMITS.python_bytes)
    paper = read_module(raw, f"python:{module}", display_path(path), module)
    paper.group = "python:" + module.split(".")[0]
    return paper


def read_module(raw: bytes, key: str, origin: str, module: str = "") -> Paper:
    """Return the docstrings of one module's source as a paper, each in a section with its qualified name.

    Raises `BadInput` if it is not Python.
    """
    module = module or Path(origin).stem
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{origin}: is not Python that can be read ({error})") from error
    texts = []
    for name, doc in _list_docstrings(tree, module):
        # A docstring with directives is reStructuredText, also if it has dollar signs.
        is_markdown = ".. math::" not in doc and ":math:" not in doc and ("$$" in doc or "\\begin{" in doc)
        converter = MarkdownConverter(doc) if is_markdown else RestConverter(doc, 2)
        texts.append(format_heading(1, name.replace("_", r"\_")) + converter.convert())
    return Paper(key, clean_text("\n".join(texts)), origin, kind="python", title=module)


def _list_docstrings(tree: ast.Module, module: str) -> list[tuple[str, str]]:
    """Return qualified names and docstrings in order of appearance."""
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, ast.AST]] = [(module, tree)]
    while stack:
        name, node = stack.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc:
                found.append((name, doc))
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        for child in reversed(inner):
            own = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            stack.append((f"{name}.{child.name}" if own else name, child))  # type: ignore[attr-defined]
    return found
