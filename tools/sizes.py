"""Print how much there is to understand in each package, beside its aim; `make lint` runs it.

Size is counted in nodes of Python's syntax trees, so that comments, docstrings, annotations, blank lines and one
thought per statement cost nothing. JavaScript is counted in words and signs. The aims are in `pyproject.toml`
(`[tool.eqkin.sizes]`): whoever exceeds one says in the change what it buys.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNCOUNTED = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.Module, ast.arguments)
FETCHED = ("vendor", "katex.min.js")
JAVASCRIPT = "javascript"
OUTSIDE = ("research benchmarks", "tests")


def main() -> None:
    """Print one line per group of packages."""
    groups: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["eqkin"]["sizes"]
    nodes, words = count_sizes()
    total = Counter[str]()
    sys.stdout.write(f"{'syntax nodes':<40}{'now':>9}{'aim':>9}\n")
    for paths, aim in groups.items():
        size = words if paths == JAVASCRIPT else sum(nodes[path] for path in paths.split())
        mark = "  over its aim" if size > aim else ""
        sys.stdout.write(f"{paths:<40}{size:>9,}{aim:>9,}{mark}\n")
        if paths != JAVASCRIPT and paths not in OUTSIDE:
            total["now"] += size
            total["aim"] += aim
    named = {path for paths in groups for path in paths.split()}
    forgotten = sorted(nodes.keys() - named)
    sys.stdout.write(f"{'the package':<40}{total['now']:>9,}{total['aim']:>9,}\n")
    if forgotten:
        sys.exit(f"pyproject.toml, [tool.eqkin.sizes]: name an aim for {', '.join(forgotten)}")


def count_sizes() -> tuple[Counter[str], int]:
    """Return the syntax nodes of each package or folder, and the words of the package's JavaScript."""
    nodes = Counter[str]()
    words = 0
    for path in iter_files():
        parts = path.relative_to(ROOT).parts
        text = path.read_text("utf-8")
        if path.suffix == ".py":
            in_package = parts[:2] == ("src", "eqkin")
            inner = parts[2:] if in_package else parts
            nodes[inner[0] if len(inner) > 1 or not in_package else "modules"] += count_nodes(ast.parse(text))
        elif parts[0] == "src":
            code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
            words += len(re.findall(r"\w+|[^\w\s]", code))
    return nodes, words


def iter_files() -> Iterator[Path]:
    """Yield our own Python and JavaScript files."""
    for folder in ("src/eqkin", "research", "benchmarks", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            is_fetched = any(name in path.parts for name in FETCHED)
            if path.suffix in (".py", ".js", ".mjs") and not is_fetched:
                yield path


def count_nodes(tree: ast.AST) -> int:
    """Count the nodes of a syntax tree without docstrings, annotations and operators."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, None)
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and is_docstring(body[0]):
            del body[0]
    return sum(not isinstance(node, UNCOUNTED) for node in ast.walk(tree))


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is a text alone."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return False
    return isinstance(statement.value.value, str)


if __name__ == "__main__":
    main()
