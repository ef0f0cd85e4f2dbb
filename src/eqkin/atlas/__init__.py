"""The atlas: articles by field, written for eqkin, and groups of related equations in them (`kin.json`).

It is the library of `eqkin demo` and a labelled set for evaluation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable


@dataclass(frozen=True)
class EquationGroup:
    """Equations of several fields that express one idea; members are named `field:label`."""

    id: str
    name: str
    idea: str
    equations: tuple[str, ...]


def list_articles() -> list[Traversable]:
    """Return the LaTeX files of the articles, one per field, in alphabetical order."""
    folder = resources.files("eqkin.atlas")
    return sorted((entry for entry in folder.iterdir() if entry.name.endswith(".tex")), key=lambda entry: entry.name)


def load_equation_groups() -> list[EquationGroup]:
    """Return the groups of related equations."""
    data = json.loads(resources.files("eqkin.atlas").joinpath("kin.json").read_text("utf-8"))
    return [EquationGroup(g["id"], g["name"], g["idea"], tuple(g["equations"])) for g in data["groups"]]
