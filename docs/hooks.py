"""Steps of `mkdocs build`: reference pages generated from the code, formulas as MathML, and links that leave docs/.

Pages of the repository's root become pages of the site, and files that a page links to (a Dockerfile, a model card) are
published with it, so that the site stands alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import griffe
import typer
from fastapi import FastAPI
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import eqkin
import eqkin.evaluation
from eqkin.cli import app
from eqkin.encoder.model import Architecture
from eqkin.formulas.prose import render_prose
from eqkin.learning.config import RECIPES, Recipe
from eqkin.limits import Limits
from eqkin.version import __version__
from eqkin.web import api

ROOT = Path(__file__).parents[1]
FONT = ROOT / "src/eqkin/web/static/vendor/stix-two-math.woff2"
ROOT_PAGES = {  # pages of the repository's root, and where they are on the site
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
_FORMULA = re.compile(r"^```math\n(?P<display>.*?)\n```$|\$`(?P<inline>[^`]+)`\$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the pages of the root, the font of formulas, and what pages link to."""
    pages = {
        "reference/commands.md": describe_commands(),
        "reference/python.md": list_objects(),
        "reference/http.md": describe_routes(),
        "reference/settings.md": describe_settings(),
        "notebook.md": render_notebook(json.loads((ROOT / "docs/notebook.ipynb").read_text("utf-8"))),
    }
    pages |= {uri: (ROOT / name).read_text("utf-8") for name, uri in ROOT_PAGES.items() if uri != "index.md"}
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    files.append(File.generated(config, "pictures/math.woff2", abs_src_path=str(FONT)))
    for page in list(files.documentation_pages()):
        for target in map(lambda link: _resolve(link[1], page.src_uri), _LINK.findall(page.content_string)):
            uri = _locate(target)
            if uri.startswith("repository/") and (ROOT / target).is_file() and uri not in files.src_uris:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links of the repository at the site, and render formulas."""
    here = page.file.src_uri

    def point(match: re.Match[str]) -> str:
        target = _resolve(match[2], here)
        if not (ROOT / target).exists():
            return match[0]
        return match[1] + posixpath.relpath(_locate(target), posixpath.dirname(here) or ".") + match[3]

    return _FORMULA.sub(_render_formula, _LINK.sub(point, markdown))


def _resolve(link: str, uri: str) -> str:
    """Return the path in the repository that a link of a page means."""
    if uri.startswith("repository/"):
        folder = posixpath.dirname(uri.removeprefix("repository/"))
    else:
        folder = "" if uri in ROOT_PAGES.values() and uri != "index.md" else posixpath.dirname(f"docs/{uri}")
    return posixpath.normpath(posixpath.join(folder, link))


def _locate(target: str) -> str:
    """Return where the site has a file of the repository."""
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    if target == "docs/notebook.ipynb":
        return "notebook.md"
    return target.removeprefix("docs/") if target.startswith("docs/") else f"repository/{target}"


def _render_formula(match: re.Match[str]) -> str:
    latex = match["inline"] or match["display"]
    (segment,) = render_prose(f"\\({latex}\\)")
    if not segment.mathml:
        raise ValueError(f"a formula of the documentation cannot be read: {latex}")
    if match["inline"]:
        return segment.mathml
    mathml = segment.mathml.replace("<math", '<math display="block"', 1)
    return f'<div class="formula">{mathml}</div>'


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _make_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def describe_commands() -> str:
    """Return the page of commands, from the parser's own help."""
    group = typer.main.get_command(app)
    about = f"{group.help}\n\n{group.epilog}"
    parts = ["# Commands\n", re.sub(r"(?m)^(Exit codes|Environment variables):\s*", r"## \1\n\n", about), ""]
    for name, command in _iter_commands(group, "eqkin"):
        context = typer.Context(command, info_name=name)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        help_text = re.sub(
            r"(?m)^( {4}.*\n)\n(?= {4})", r"\1", inspect.cleandoc(command.help or "")
        )  # code in one block
        parts += [f"## {name}\n", f"```text\n{usage}\n```\n", help_text, ""]
        records = [record for param in command.params if (record := param.get_help_record(context))]
        rows = [(f"`{names}`", _escape_cell(meaning)) for names, meaning in records]
        parts += [_make_table(("argument or option", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def _iter_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for child_name, child in getattr(command, "commands", {}).items():
        if hasattr(child, "commands"):
            yield from _iter_commands(child, f"{name} {child_name}")
        else:
            yield f"{name} {child_name}", child


def describe_routes() -> str:
    """Return the page of the HTTP interface, from its OpenAPI document."""
    application = FastAPI(title="eqkin", version=__version__)
    application.include_router(api.router)
    document = application.openapi()
    parts = ["# HTTP interface\n"]
    parts.append(
        "How to use it is in [the guide](../http.md). `eqkin serve` has this list at `/api`, and for programs "
    )
    parts.append("as OpenAPI at `/openapi.json`. Errors are problem details (RFC 9457): `title`, `status`, `code`, ")
    parts.append("`detail` and `position`, the position of the wrong character from 1, if it is known.\n")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += [f"## {method.upper()} {path}\n", operation.get("description", operation["summary"]), ""]
            rows = [
                (f"`{parameter['name']}`", *_describe_schema(parameter["schema"], parameter.get("description", "")))
                for parameter in operation.get("parameters", ())
            ]
            for name, content in operation.get("requestBody", {}).get("content", {}).items():
                parts.append(f"The body is `{name}`.\n")
                schema = _follow(document, content["schema"])
                rows += [
                    (f"`{field}`", *_describe_schema(value, value.get("description", "")))
                    for field, value in schema.get("properties", {}).items()
                ]
            parts += [_make_table(("parameter", "type", "meaning"), rows)] if rows else []
            answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
            fields = _follow(document, answer or {}).get("properties", {})
            parts += [f"The answer has {', '.join(f'`{name}`' for name in fields)}.\n"] if fields else []
    return "\n".join(parts)


def _follow(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"][name] if name else schema
    return found


def _describe_schema(schema: dict[str, Any], description: str) -> tuple[str, str]:
    kinds = [one.get("type") or one.get("$ref", "").rpartition("/")[2] for one in schema.get("anyOf", (schema,))]
    default = schema.get("default")
    note = f" (by default {json.dumps(default)})" if default not in (None, "", [], False) else ""
    return ", ".join(kind for kind in kinds if kind and kind != "null"), _escape_cell(description) + note


def list_objects() -> str:
    """Return the page of Python objects; mkdocstrings fills it from their docstrings."""
    names = [name for name in eqkin.__all__ if not name.startswith("_")]
    errors = [name for name in names if issubclass(getattr(eqkin, name), Exception)]
    first = ["Library", "SearchOptions", "Filters", "Results", "Hit", "Encoder"]
    classes = first + [name for name in names if name not in (*first, *errors)]
    below = "    options:\n      heading_level: 3\n"
    parts = [
        "# Python\n",
        "Import these from `eqkin`. [Python and notebooks](../notebooks.md) shows how they are used.\n",
    ]
    parts += [f"::: eqkin.{name}\n" for name in classes]
    parts += ["## Errors\n", *(f"::: eqkin.errors.{name}\n{below}" for name in errors)]
    research = [f"eqkin.evaluation.{name}" for name in sorted(eqkin.evaluation.__all__)]
    parts += ["## For research\n", "Import these from their own modules.\n"]
    parts += [f"::: {name}\n{below}" for name in research]
    return "\n".join(parts)


def describe_settings() -> str:
    """Return the page of a recipe's settings and of limits, from the comments of their fields."""
    parts = [
        "# Settings and limits\n",
        "For environment variables see [commands](commands.md#environment-variables).\n",
    ]
    parts += [
        "## Settings of a recipe\n",
        "For `eqkin train --set NAME=VALUE`; see [Train your own model](../training.md).\n",
    ]
    rows: list[tuple[str, ...]] = []
    for kind, values in (
        (Architecture, [recipe.architecture for recipe in RECIPES.values()]),
        (Recipe, [*RECIPES.values()]),
    ):
        for name, comment in read_comments(kind).items():
            if name not in ("name", "architecture"):
                cells = (_format_value(getattr(value, name)) for value in values)
                rows.append((f"`{name}`", _escape_cell(comment), *cells))
    parts.append(_make_table(("setting", "meaning", *(f"`{name}`" for name in RECIPES)), rows))
    parts += [
        "## Limits\n",
        "What one input may cost. They keep a hostile file or request from taking all memory or time.\n",
    ]
    rows = [
        (f"`{name}`", _format_value(getattr(Limits(), name)), _escape_cell(text))
        for name, text in read_comments(Limits).items()
    ]
    parts.append(_make_table(("limit", "value", "of what"), rows))
    return "\n".join(parts)


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def read_comments(kind: type) -> dict[str, str]:
    """Return the fields of a data class with the comments behind them."""
    lines = inspect.getsource(kind).splitlines()
    names = {field.name for field in dataclasses.fields(kind)}
    return {
        name: line.partition("  # ")[2]
        for line in lines
        if (name := line.strip().partition(":")[0]) in names and line.startswith("    ") and line[4] != " "
    }


class FieldComments(griffe.Extension):
    """Take the comment behind a field for its description."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **arguments: Any) -> None:
        """Describe an attribute that has no docstring."""
        if attr.docstring is None:
            comment = "\n".join(attr.lines).partition("  # ")[2].partition("\n")[0]
            attr.docstring = griffe.Docstring(comment, parent=attr) if comment else None


def render_notebook(notebook: dict[str, Any]) -> str:
    """Return an executed notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in data:
                table = " ".join("".join(data["text/html"]).split())  # one line: a blank one would end the block
                parts.append(f'<div class="output">{table}</div>')
            elif "image/png" in data:
                parts.append(f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">')
            else:
                parts.append(f"```text\n{''.join(data['text/plain'])}\n```")
    return "\n\n".join(parts)
