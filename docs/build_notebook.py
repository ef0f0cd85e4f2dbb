"""Write `docs/notebook.ipynb`: the cells below, executed in an empty folder. Run `python docs/build_notebook.py`.

Needs `pip install 'eqkin[notebook]'`. A test checks that the stored outputs are current.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

NOTEBOOK = Path(__file__).with_name("notebook.ipynb")
CELLS = [
    """# eqkin in a notebook

`Library` is a folder of papers that can be searched, `Encoder` turns formulas into vectors. Here the library is the
bundled atlas, 1,401 equations of many fields; `library.add("papers/")` reads your own.""",
    """from eqkin import Encoder, Library

library = Library.open("atlas", create=True)
library.add("atlas:", formulas="displays")
print(len(library.list_papers()), "articles")""",
    """## Search

A query is LaTeX, Unicode, a name, or words. Results are a sequence of hits; as the value of a cell they are a table
with the formulas. With `explain=True` the parts that match are marked.""",
    """results = library.search(r"\\sum_{i<j} J_{ij} s_i s_j", k=3, explain=True)
results""",
    """for hit in results:
    print(f"{hit.score:.2f}  {hit.relation:9}  {hit.name}, in {hit.equation.paper.title}")""",
    "A name works, too, and filters are given by name.",
    """for hit in library.search("Bayes' theorem", k=3, paper="atlas:probability"):
    print(hit.equation.id, hit.equation.latex.strip())""",
    "## Tables",
    """found = library.search(r"\\frac{?a}{?a + ?b}", k=5).to_dataframe()
found[["id", "relation", "latex"]]""",
    "## Related papers",
    """for paper in library.similar_papers("atlas:probability", k=3):
    print(f"{paper.score:.2f}  {paper.paper.title}")""",
    """## Vectors

`Encoder` has the methods of sentence-transformers.""",
    """encoder = Encoder.load()
vectors = encoder.encode([r"a^2 + b^2 = c^2", r"x^2 + y^2 = z^2", r"\\int_0^1 f(x)\\,dx"])
encoder.similarity(vectors, vectors).round(1)""",
]


def build_notebook() -> None:
    """Execute the cells and write the notebook; cells that start like prose are Markdown."""
    import nbformat
    from nbclient import NotebookClient

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    for number, text in enumerate(CELLS):
        if text.startswith(("#", "A name")):
            notebook.cells.append(nbformat.v4.new_markdown_cell(text, id=f"cell-{number}"))
        else:
            notebook.cells.append(nbformat.v4.new_code_cell(text, id=f"cell-{number}"))
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
    notebook.metadata.pop("language_info", None)  # names the version of Python
    NOTEBOOK.write_text(nbformat.writes(notebook) + "\n", "utf-8")


if __name__ == "__main__":
    build_notebook()
