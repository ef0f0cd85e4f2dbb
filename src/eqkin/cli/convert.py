"""`eqkin convert`: LaTeX formulas to MathML or trees."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Annotated

import orjson
import typer

from eqkin.cli.console import guard_output
from eqkin.errors import strip_control_chars


class OutputForm(StrEnum):
    """Output format for each formula."""

    mathml = "mathml"
    operators = "operators"
    json = "json"


def convert(
    formulas: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LATEX]...", help="Formulas; by default lines of standard input.", show_default=False),
    ] = None,
    form: Annotated[
        OutputForm,
        typer.Option(
            "--to",
            help="mathml; operators: what the formula says, the same for equivalent notations, as nested JSON; json: "
            "latex, mathml, degraded, repaired, error.",
        ),
    ] = OutputForm.mathml,
) -> None:
    r"""Convert LaTeX formulas, one per line, to MathML or to trees as JSON, one per line.

    A formula may be written in `$...$`, `\[...\]` or an environment. One that fails gives an empty line (with `--to
    json`: an object with its error), a message on standard error, and exit code 1 at the end.

    **Examples**

        eqkin convert 'E = mc^2'

        eqkin convert --to operators 'a > b/2' 'a > \frac{b}{2}'

        eqkin convert --to json < formulas.txt
    """
    failures = 0
    lines = formulas if formulas else _read_lines()
    with guard_output():
        for line, error in _convert_lines(lines, form):
            typer.echo(line)
            if error:
                failures += 1
                typer.secho(strip_control_chars(error, lines=True), err=True)
    if failures:
        raise typer.Exit(1)


def _read_lines() -> Iterator[str]:
    """Yield the lines of standard input; of one that is too long no more than shows that it is."""
    from eqkin.limits import LIMITS

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    limit = LIMITS.latex_chars + 2
    while line := sys.stdin.readline(limit):
        yield line.rstrip("\r\n")
        while line and not line.endswith("\n"):
            line = sys.stdin.readline(limit)


def _convert_lines(lines: Iterable[str], form: OutputForm) -> Iterator[tuple[str, str]]:
    """Yield what to print for each formula, and an error or ""."""
    from eqkin.formulas.conversion import convert_formulas
    from eqkin.formulas.engine import Failure, borrow_engine
    from eqkin.formulas.mathml import to_mathml, to_node
    from eqkin.latex.typed import clean_typed_formula

    numbered = enumerate(lines, 1)
    while batch := list(islice(numbered, 64)):
        with borrow_engine() as engine:
            conversion = convert_formulas(engine, [clean_typed_formula(text) for _, text in batch])
        for (number, text), outcome in zip(batch, conversion.outcomes, strict=True):
            failure = outcome.failure
            # bytes that are not UTF-8
            if not text.isascii() and re.search("[\ud800-\udfff]", text):
                text = text.encode("utf-8", "replace").decode()
                failure = Failure("not UTF-8", "the formula is not UTF-8")
            if failure is not None:
                where = f" at character {failure.position + 1}" if failure.position >= 0 else ""
                error = f"line {number}: {failure.message}{where}"
                record = orjson.dumps({"latex": text, "error": failure.message}).decode()
                yield record if form is OutputForm.json else "", error
                continue
            node = to_node(conversion.forest, outcome.tree)
            if form is OutputForm.mathml:
                yield to_mathml(node), ""
            elif form is OutputForm.operators:
                yield json.dumps(conversion.operators.to_json(outcome.tree), ensure_ascii=False), ""
            else:
                fields = {"latex": text, "mathml": to_mathml(node), "degraded": list(outcome.unknown)}
                yield orjson.dumps(fields | {"repaired": outcome.repaired}).decode(), ""
