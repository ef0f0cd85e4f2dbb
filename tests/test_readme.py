"""The README's map names every file, and nothing that is gone."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "eqkin"


def test_the_map_has_one_true_line_a_module():
    readme = (ROOT / "README.md").read_text("utf-8")
    mapped = dict(re.findall(r"^- `([\w/]+\.py)`: (.*)$", readme, re.MULTILINE))
    mapped.pop("hatch_build.py")
    modules = {
        str(path.relative_to(PACKAGE)): (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]
        for path in PACKAGE.rglob("*.py")
    }
    assert mapped == modules


def test_every_other_file_of_the_package_is_covered():
    readme = (ROOT / "README.md").read_text("utf-8")
    for path in PACKAGE.rglob("*"):
        built = path.name.startswith("katex.") or path.name == "py.typed" or "__pycache__" in path.parts
        if path.is_file() and path.suffix != ".py" and not built:
            relative = path.relative_to(PACKAGE)
            assert f"`{relative}`" in readme or f"`{relative.parent}/*{path.suffix}`" in readme, relative
