"""Docstrings of an installed Python package, read without importing it: one paper per module that has math."""

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
from eqkin.limits import LIMITS
from eqkin.sources.files import display_path, read_capped
from eqkin.sources.markdown import MarkdownConverter
from eqkin.sources.paper import Paper, SourceItem, hash_parts, make_failed_item
from eqkin.sources.rest import RestConverter
from eqkin.sources.text import clean_text, format_heading

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
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        roots = [Path(location).joinpath(*rest) for location in spec.submodule_search_locations]
    else:
        roots = [Path(spec.origin)] if spec.origin and not rest else []
    found = [root for root in roots if root.is_dir() or (root.is_file() and root.suffix == ".py")]
    return found or [root.with_suffix(".py") for root in roots if rest and root.with_suffix(".py").is_file()]


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
