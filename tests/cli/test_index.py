"""`eqkin index`, and what `eqkin add` does of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from eqkin import Library
from eqkin.cli import app
from eqkin.files import WriterLock
from eqkin.index.index import Index
from eqkin.index.manifest import load_encoder

runner = CliRunner()


def _eqkin(*arguments: object) -> Any:
    result = runner.invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _note(tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.md"
    path.write_text(f"# {name}\n\nPythagoras says\n\n$$ a^2 + b^2 = c^2 $$\n")
    return path


def test_add_makes_papers_searchable(tmp_path: Path) -> None:
    library = tmp_path / "library"
    indexed = _eqkin("add", _note(tmp_path, "one"), "-l", library)["index"]
    assert (indexed["indexed"], indexed["equations"], indexed["papers"]) == (1, 1, 1)
    assert _eqkin("index", "-l", library)["indexed"] == 0
    assert _eqkin("index", "-l", library, "--rebuild")["indexed"] == 1
    assert not _eqkin("verify", "-l", library)["problems"]


def test_index_completes_add_without_index(tmp_path: Path) -> None:
    library = tmp_path / "library"
    assert "index" not in _eqkin("add", _note(tmp_path, "one"), "-l", library, "--no-index")
    assert not (library / "index").exists()
    assert _eqkin("index", "-l", library)["indexed"] == 1
    shown = runner.invoke(app, ["index", "-l", str(library)])
    assert "1 equations can be searched" in shown.stdout
    assert "bytes per equation" in shown.stdout


def test_index_reports_sizes(tmp_path: Path) -> None:
    library = tmp_path / "library"
    _eqkin("add", _note(tmp_path, "one"), "-l", library, "--no-index")
    assert _eqkin("stats", "-l", library)["index"] == {}
    sizes = _eqkin("index", "-l", library)["bytes"]
    assert min(sizes.values()) > 0
    assert _eqkin("stats", "-l", library)["index"] == sizes


def test_index_with_torch_stores_the_vectors_of_numpy(unindexed_library: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="--device needs torch: pip install 'eqkin[train]'")
    library, vectors = shutil.copytree(unindexed_library, tmp_path / "library"), []
    for options in ((), ("--device", "cpu")):
        assert _eqkin("index", "-l", library, "--rebuild", "-j", 1, *options)["indexed"] > 150
        with Library.open(library) as opened:
            index = Index.open(opened, load_encoder(library).digest)
            vectors.append(index.get_vectors(index.keys))
    assert np.abs(vectors[0] - vectors[1]).max() < 5e-3  # both are rounded to 8 bits


def test_index_rejects_unknown_device(unindexed_library: Path) -> None:
    pytest.importorskip("torch", reason="--device needs torch: pip install 'eqkin[train]'")
    result = runner.invoke(app, ["index", "-l", str(unindexed_library), "--device", "abacus"])
    assert "no device 'abacus'" in str(result.exception)


def test_papers_are_added_while_another_process_updates_the_index(tmp_path: Path) -> None:
    library = tmp_path / "library"
    _eqkin("add", _note(tmp_path, "one"), "-l", library)
    with WriterLock(library / "index"):
        added = runner.invoke(app, ["add", str(_note(tmp_path, "two")), "-l", str(library)])
    assert added.exit_code == 0
    assert "1 paper added" in added.stdout
    assert "cannot be searched yet" in added.stderr
    assert _eqkin("index", "-l", library)["indexed"] == 1


def test_remove_deletes_text_from_the_index(tmp_path: Path) -> None:
    library = tmp_path / "library"
    _eqkin("add", _note(tmp_path, "one"), _note(tmp_path, "two"), "-l", library)
    assert _eqkin("add", "--remove", tmp_path / "one.md", "-l", library) == {"removed": 1}
    assert _eqkin("index", "-l", library)["equations"] == 1
    verdict = _eqkin("verify", "-l", library)
    assert not verdict["problems"] + verdict["notes"]
