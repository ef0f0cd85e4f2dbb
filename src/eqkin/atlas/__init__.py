"""The atlas: articles by field, written for eqkin, the names of their equations, and groups of related equations.

It is the library of `eqkin demo`, a labelled set for evaluation (`kin.json`), and a list of known laws (`names.json`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
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


@cache
def load_names() -> dict[str, tuple[str, ...]]:
    """Return the names of the equations, best known first, by `field:label`."""
    fields = json.loads(resources.files("eqkin.atlas").joinpath("names.json").read_text("utf-8"))
    return {f"{field}:{label}": tuple(names) for field, labels in fields.items() for label, names in labels.items()}


@cache
def read_formula(member: str) -> str:
    """Return the LaTeX of the equation `field:label`; of several rows, with their environment."""
    field, _, label = member.partition(":")
    article = resources.files("eqkin.atlas").joinpath(f"{field}.tex").read_text("utf-8")
    pattern = rf"\\begin\{{(\w+)\}}\\label\{{{re.escape(label)}\}}(.*?)\\end\{{\1\}}"
    match = re.search(pattern, article, re.DOTALL)
    if match is None:
        raise KeyError(member)
    body = match[2].strip()
    return body if match[1] == "equation" else rf"\begin{{{match[1]}}} {body} \end{{{match[1]}}}"


def load_forms() -> bytes:
    """Return the hashes of the equations' forms, as `eqkin.search.names` writes them."""
    return resources.files("eqkin.atlas").joinpath("forms.bin").read_bytes()
