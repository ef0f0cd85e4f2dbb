"""Runs commands as `eqkin` does, errors and exit codes included, without starting a process for each."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

import orjson

from eqkin.cli import main


class Ended(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output; nothing else was printed."""
        assert self.code == 0, self.err
        assert self.err == ""
        return orjson.loads(self.out)


def eqkin(*arguments: object) -> Ended:
    """Run a command of eqkin."""
    return run_main(main, *arguments)


def run_main(function: Callable[[], None], *arguments: object) -> Ended:
    """Run the main function of a program with arguments."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", ["eqkin", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            function()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Ended(code, out.getvalue(), err.getvalue())
