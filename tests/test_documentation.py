"""The documents name every command, setting, variable, route and package, and their links lead somewhere."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from eqkin import Library
from eqkin.cli import app
from eqkin.encoder.architecture import Architecture
from eqkin.training.config import Recipe

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "eqkin"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def read_document(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def read_sources(folder: str = "") -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((PACKAGE / folder).rglob("*.py")))


def list_commands(command, name: str) -> list[str]:
    children = getattr(command, "commands", {}).values()
    return [path for child in children for path in list_commands(child, f"{name} {child.name}")] or [name]


def test_every_command_is_in_the_reference():
    reference = read_document("docs/reference.md")
    commands = list_commands(typer.main.get_command(app), "eqkin")
    assert len(commands) > 10
    assert [command for command in commands if f"`{command}`" not in reference] == []


def test_every_setting_of_a_recipe_is_in_the_reference():
    reference = read_document("docs/reference.md")
    settings = [field.name for kind in (Recipe, Architecture) for field in dataclasses.fields(kind)]
    settings = [name for name in settings if name not in ("name", "architecture")]
    assert len(settings) > 20
    assert [name for name in settings if f"| `{name}` |" not in reference] == []


def test_every_environment_variable_is_in_the_reference():
    reference = read_document("docs/reference.md")
    variables = set(re.findall(r'["$](EQKIN_[A-Z]+(?:_[A-Z]+)*)', read_sources()))
    assert "EQKIN_LIBRARY" in variables
    assert [name for name in sorted(variables) if f"`{name}`" not in reference] == []


def test_every_route_is_in_the_reference():
    reference = read_document("docs/reference.md")
    routes = set(re.findall(r'router\.(?:get|post)\(\s*"(/[^"]*)"', read_sources("web")))
    assert "/api/search" in routes
    assert [route for route in sorted(routes) if f"`{route.replace(':path', '')}`" not in reference] == []


def test_every_package_is_in_the_architecture():
    architecture = read_document("docs/architecture.md")
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert len(packages) > 10
    assert [name for name in packages if f"`{name}`" not in architecture] == []


def test_modules_named_in_the_architecture_exist():
    named = re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", read_document("docs/architecture.md"))
    assert len(named) > 20
    assert [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    text = document.read_text("utf-8")
    links = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_search_of_the_readme_has_the_hits_it_shows(atlas_library):
    ((query, shown),) = re.findall(r"\$ eqkin search '(.*?)' -k 4\n(.*?)```", read_document("README.md"), re.DOTALL)
    with Library.open(atlas_library) as library:
        hits = library.search(query, k=4).hits
    assert [hit.equation.id for hit in hits] == re.findall(r"atlas:[\w-]+#\d+", shown)
    assert [f"{hit.score:.3f}" for hit in hits] == re.findall(r"^ \d  (0\.\d{3}) ", shown, re.MULTILINE)


def test_python_examples_run(tmp_path, monkeypatch, capsys):
    text = r"\title{Spins} \section{Energy} A softmax. \[ E = -\sum_{i<j} J_{ij} s_i s_j \] \[ p = \frac{a}{a + b} \]"
    (tmp_path / "papers").mkdir()
    for path in (tmp_path / "papers" / "ising.tex", tmp_path / "draft.tex"):
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for document in ("README.md", "docs/guide.md"):
        (example,) = re.findall(r"```python\n(.*?)```", read_document(document), re.DOTALL)
        exec(compile(example, document, "exec"), names)
    assert capsys.readouterr().out.startswith("1 papers, 2 equations\n")
    assert [hit.equation.latex for hit in names["results"].hits][0].strip() == r"p = \frac{a}{a + b}"
    assert names["vectors"].shape == (2, 128)


def test_readme_is_short():
    assert len(read_document("README.md").splitlines()) <= 200
