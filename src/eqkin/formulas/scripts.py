"""The bundled scripts: KaTeX, and our ES modules joined into one script.

The embedded engine runs scripts, not modules. Names at the top of our modules are therefore unique, so that modules can
follow one another, each after those that it imports.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import orjson

from eqkin.errors import CorruptData

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[\w./]+\.mjs)";\n', re.MULTILINE)
_DECLARATION = re.compile(r"^(export )?((?:const|let|class|function\*?) +)([\w$]+)", re.MULTILINE)


@dataclass(frozen=True)
class ConverterIdentity:
    """The converter that made a tree; stored in every library, never mixed within one."""

    name: str
    version: str
    sha256: str


@cache
def load_katex() -> tuple[ConverterIdentity, str]:
    """Return name, version and hash of the bundled KaTeX, and its script."""
    package = resources.files("eqkin.formulas")
    try:
        about = orjson.loads(package.joinpath("katex.json").read_bytes())
        script = package.joinpath("katex.min.js").read_bytes()
    except FileNotFoundError as error:
        raise CorruptData(
            f"eqkin was installed without its converter ({error.filename}); install it again with pip"
        ) from error
    if hashlib.sha256(script).hexdigest() != about["sha256"]:
        raise CorruptData("the bundled KaTeX script does not match its recorded hash; install eqkin again")
    return ConverterIdentity(about["name"], about["version"], about["sha256"]), script.decode()


def get_converter_identity() -> ConverterIdentity:
    """Return name, version and hash of the bundled converter."""
    return load_katex()[0]


@cache
def join_modules(entry: str) -> str:
    """Return a script that declares what a module exports, with everything that it imports inside.

    Args:
        entry: Path of the module in the package, such as "formulas/js/engine.mjs".

    Raises:
        ValueError: Two modules declare the same name, or import each other.
    """
    package = resources.files("eqkin")
    joined: list[str] = []
    state: dict[str, str] = {}
    owners: dict[str, str] = {}

    def add(name: str) -> list[str]:
        """Add a module after those that it imports; return what it exports."""
        if state.get(name) == "open":
            raise ValueError(f"{name} imports itself through other modules")
        state[name] = "open"
        source = package.joinpath(name).read_text("utf-8")
        for path in _IMPORT.findall(source):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            if imported not in state or state[imported] == "open":
                add(imported)
        for _, _, declared in _DECLARATION.findall(source):
            if declared in owners:
                raise ValueError(f"{name} and {owners[declared]} both declare {declared}")
            owners[declared] = name
        state[name] = "added"
        joined.append(_DECLARATION.sub(r"\2\3", _IMPORT.sub("", source)))
        return [declared for export, _, declared in _DECLARATION.findall(source) if export]

    names = ", ".join(add(entry))
    body = "\n".join(joined)
    return f'const {{ {names} }} = (() => {{\n"use strict";\n{body}\nreturn {{ {names} }};\n}})();'
