"""The notebook of the documentation has the cells it is built from, and the outputs that they give now."""

import ast
import json
import runpy
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def run_cell(source: str, names: dict[str, object]) -> object:
    """Execute a cell as a notebook does, and return the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def test_notebook_is_current(atlas_library, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas", reason="pandas is not installed: pip install 'eqkin[notebook]'")
    cells = json.loads((DOCS / "notebook.ipynb").read_text("utf-8"))["cells"]
    built = runpy.run_path(str(DOCS / "build_notebook.py"))["CELLS"]
    assert ["".join(cell["source"]) for cell in cells] == built
    shutil.copytree(atlas_library, tmp_path / "atlas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        value = run_cell("".join(cell["source"]), names)
        shown = {"text/plain": repr(value)} if value is not None else {}
        if hasattr(value, "_repr_html_"):
            shown = {"text/html": value._repr_html_()}
        printed = capsys.readouterr().out
        data = [output["data"] for output in cell["outputs"] if "data" in output]
        texts = ["".join(output["text"]) for output in cell["outputs"] if "text" in output]
        assert "".join(texts) == printed, f"run docs/build_notebook.py: the cell {cell['id']} prints something else"
        assert [{kind: "".join(one[kind]) for kind in shown} for one in data] == [shown] * bool(shown)
    names["library"].close()
