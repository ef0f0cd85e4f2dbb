"""Statistics, figures and exports of a library."""

from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library
from eqkin.errors import BadInput
from eqkin.formulas.mathml import parse_mathml, to_mathml, to_node
from eqkin.library.queries import compute_statistics
from eqkin.library.records import export_equations
from tests.library.conftest import write_article


def test_export_gives_each_equation_with_its_context(library: Library) -> None:
    lines = [line for line in export_equations(library) if not line["whole"]]
    assert len(lines) == 6
    first = lines[0]
    assert first["title"] == "On subject1"
    assert first["section"] == "First"
    assert first["before"].endswith("Energy of subject1 is conserved.")
    assert r"\half m v^2" in first["latex"]
    assert parse_mathml(first["mathml"]).tag == "mrow"
    failed = [line for line in export_equations(library, failed=True) if line["status"] == "failed"]
    assert len(failed) == 3
    assert all(line["reason"] for line in failed)


def test_get_trees_returns_trees_in_the_order_asked_for(library: Library, tmp_path: Path) -> None:
    library.add(write_article(tmp_path / "more", 4))
    numbers = library.list_tree_keys()
    assert len(numbers) == 16
    for chosen in (numbers, numbers[::-1], numbers[[5, 0, 7, 5]], numbers[:0]):
        forest = library.get_trees(chosen)
        assert [to_mathml(to_node(forest, at)) for at in range(len(forest))] == [
            to_mathml(nodes) for nodes in library.get_nodes(chosen.tolist())
        ]
    with pytest.raises(BadInput, match="no tree 999"):
        library.get_trees(np.array([numbers[0], 999]))


def test_empty_library_has_zero_statistics_and_no_equations(tmp_path: Path) -> None:
    library = Library.open(tmp_path / "empty", create=True)
    numbers = compute_statistics(library)
    assert numbers["papers"] == numbers["equations"]["found"] == 0
    assert list(export_equations(library)) == []
