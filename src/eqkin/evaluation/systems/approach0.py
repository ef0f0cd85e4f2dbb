"""approach0 (Zhong and Zanibbi 2019): a structural search engine for LaTeX, by the paths of operator trees.

Its native code prints and may crash, so it runs in a separate process (`approach0_worker`) that answers each line of
JSON with another line of JSON.

pya0 0.3.7 answers some long queries wrongly: formulas before the first one that has all paths of the query are returned
under the name of that first one, so `P(s|d) = P(d|s) P(s) / P(d)` finds itself as something else. Documents with the
queries, indexed before the formulas, prevent that; they hardly change the frequencies of paths.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from eqkin.errors import BadInput, LimitReached
from eqkin.evaluation.formulas import Float32s, FormulaSet
from eqkin.evaluation.systems.base import System

_WORKER = "eqkin.evaluation.systems.approach0_worker"
_FORMULAS_PER_REQUEST = 200
_TIMEOUT_SECONDS = 600  # per answer
_SHARED_MEMORY = "/dev/shm"
_INDEX_BYTES_PER_FORMULA = 100_000
_MISSING_SCORE = -1.0  # of formulas that are not found; approach0's own scores are positive


class Approach0(System):
    """The engine of pya0 over an index of the formulas to rank; every call of `rank` builds a new index.

    Args:
        depth: Maximum number of formulas per query. More take longer and change little.
        progress: Called now and then with the number of indexed formulas.

    Attributes:
        refused: Number of formulas and queries of the last ranking that approach0's parser could not read. They
            match nothing.
    """

    name = "approach0"
    title = "approach0"
    needs_latex = True

    def __init__(self, depth: int = 1_000, progress: Callable[[int], None] | None = None) -> None:
        self._depth, self._progress = depth, progress
        self.refused = {"formulas": 0, "queries": 0}

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Return approach0's scores; -1 for formulas that it does not find.

        The index consists of many small files, 75 kB per formula. They are in shared memory if it has enough room,
        otherwise in the folder for temporary files, which is several times slower.

        Raises:
            BadInput: There is no LaTeX, pya0 is not installed, or it failed.
            LimitReached: It did not answer in time.
        """
        if queries.latex is None or formulas.latex is None:
            raise BadInput(f"{self.name} needs LaTeX, and these formulas are trees only")
        scores = np.full((len(queries), len(formulas)), _MISSING_SCORE, np.float32)
        self.refused = {"formulas": 0, "queries": 0}
        if not scores.size:
            return scores
        where = _find_roomy_folder(len(formulas))
        with (
            tempfile.TemporaryDirectory(prefix="eqkin-approach0-", dir=where) as folder,
            _Approach0Process(folder) as engine,
        ):
            engine.add_leading_documents(queries.latex)
            self.refused["formulas"] = engine.index_formulas(formulas.latex, self._progress)
            for row, query in zip(scores, queries.latex, strict=True):
                read, places, found = engine.search(query, self._depth)
                self.refused["queries"] += not read
                row[places] = found
        return scores


class _Approach0Process:
    """The process that runs approach0."""

    def __init__(self, folder: str) -> None:
        if find_spec("pya0") is None:
            raise BadInput("pya0 is not installed (it needs Linux on x86-64); `pip install 'eqkin[eval]'`")
        command = [sys.executable, "-P", "-m", _WORKER, folder]  # -P: import nothing from the current folder
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> _Approach0Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def add_leading_documents(self, queries: Sequence[str]) -> None:
        """Index documents with the queries before the formulas."""
        for start in range(0, len(queries), _FORMULAS_PER_REQUEST):
            batch = list(queries[start : start + _FORMULAS_PER_REQUEST])
            self._ask({"lead": batch}, f"reading queries {start} and following")

    def index_formulas(self, latex: Sequence[str], progress: Callable[[int], None] | None) -> int:
        """Index formulas; return how many could not be read."""
        refused = 0
        for start in range(0, len(latex), _FORMULAS_PER_REQUEST):
            batch = list(latex[start : start + _FORMULAS_PER_REQUEST])
            answer = self._ask({"add": batch}, f"indexing formulas {start} to {start + len(batch) - 1}")
            refused += int(answer["refused"])
            if progress:
                progress(start + len(batch))
        self._ask({"finish": True}, "writing the index")
        return refused

    def search(self, latex: str, depth: int) -> tuple[bool, list[int], list[float]]:
        """Return whether a query could be read, the indices of the formulas it finds, and their scores."""
        answer = self._ask({"search": latex, "depth": depth}, f"searching for {latex[:200]!r}")
        return bool(answer["read"]), answer["places"], answer["scores"]

    def _ask(self, question: dict[str, Any], doing: str) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process was started without pipes")
        try:
            stdin.write(json.dumps(question).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended; reading reports it
        if not select.select([stdout], [], [], _TIMEOUT_SECONDS)[0]:
            raise LimitReached(f"approach0 took more than {_TIMEOUT_SECONDS} seconds for {doing}; rank fewer formulas")
        line = stdout.readline()
        if not line:
            code = self._process.wait()
            ended = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
            raise BadInput(f"approach0 stopped ({ended}) while {doing}; leave these formulas out")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BadInput(f"approach0 failed while {doing}: {answer['error']}")
        return answer


def _find_roomy_folder(formulas: int) -> str | None:
    """Return shared memory if an index of these formulas fits there four times, otherwise None."""
    try:
        fits = shutil.disk_usage(_SHARED_MEMORY).free > 4 * formulas * _INDEX_BYTES_PER_FORMULA
    except OSError:
        return None
    return _SHARED_MEMORY if fits and os.access(_SHARED_MEMORY, os.W_OK) else None
