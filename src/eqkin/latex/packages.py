"""What LaTeX packages define, as far as formulas need it.

Each file of `preludes/` is one package's commands written as ordinary definitions in terms of what KaTeX knows; a
paper gets those of the packages it loads. `latex` is always there. Where a paper's preamble is unknown or incomplete,
`provider` tells which package would have defined a command.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from eqkin.latex.macros import Macro, find_definitions
from eqkin.latex.scan import strip_comments


def _load_preludes() -> dict[str, dict[str, Macro]]:
    preludes: dict[str, dict[str, Macro]] = {}
    folder = resources.files("eqkin.latex").joinpath("preludes")
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".tex"):
            found = find_definitions(strip_comments(entry.read_text("utf-8")))
            preludes[entry.name.removesuffix(".tex")] = {
                d.value.name: d.value for d in found if isinstance(d.value, Macro)
            }
    return preludes


PRELUDES = _load_preludes()
_LAST_RESORTS = frozenset({"conventions", "peeters_macros"})  # asked after the packages proper


@cache
def find_providers() -> dict[str, str]:
    """For every command some prelude defines: the package to take it from when none was loaded (`latex` excluded)."""
    order = sorted(PRELUDES, key=lambda package: (package in _LAST_RESORTS, package), reverse=True)
    return {name: package for package in order if package != "latex" for name in PRELUDES[package]}
