"""approach0 (Zhong and Zanibbi 2019): a structural search engine for LaTeX, by the paths of operator trees.

Its native code prints and may crash, so it runs in a separate process (`approach0_worker`).

pya0 0.3.7 answers some long queries wrongly: formulas before the first one that has all paths of the query are returned
under the name of that first one, so `P(s|d) = P(d|s) P(s) / P(d)` finds itself as something else. Documents with the
queries, indexed before the formulas, prevent that; they hardly change the frequencies of paths.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Any

import numpy as np

from eqkin.errors import BadInput, LimitReached
from eqkin.evaluation.formulas import Float32s, FormulaSet
from eqkin.evaluation.systems.base import System

_WORKER = "eqkin.evaluation.systems.approach0_worker"
_BASE_SECONDS, _SECONDS_PER_FORMULA, _SECONDS_PER_QUERY = 600.0, 0.5, 60.0  # after which it is stopped
_SHARED_MEMORY = "/dev/shm"
_INDEX_BYTES_PER_FORMULA = 100_000
_MISSING_SCORE = -1.0  # of formulas that are not found; approach0's own scores are positive


class Approach0(System):
    """The engine of pya0 over an index of the formulas to rank; every call of `rank` builds a new index.

    Args:
        depth: Maximum number of formulas per query. More take longer and change little.

    Attributes:
        refused: Number of formulas and queries of the last ranking that approach0's parser could not read. They
            match nothing.
    """

    name = "approach0"
    title = "approach0"
    needs_latex = True

    def __init__(self, depth: int = 1_000) -> None:
        self._depth = depth
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
        if scores.size:
            where = _find_roomy_folder(len(formulas))
            with tempfile.TemporaryDirectory(prefix="eqkin-approach0-", dir=where) as folder:
                request = {"queries": list(queries.latex), "formulas": list(formulas.latex), "depth": self._depth}
                answer = _run_worker(request | {"folder": folder})
            self.refused = answer["refused"]
            for row, (places, found) in zip(scores, answer["found"], strict=True):
                row[places] = found
        return scores


def _run_worker(request: dict[str, Any]) -> dict[str, Any]:
    if find_spec("pya0") is None:
        raise BadInput("pya0 is not installed (it needs Linux on x86-64); `pip install 'eqkin[eval]'`")
    command = [sys.executable, "-P", "-m", _WORKER]  # -P: import nothing from the current folder
    limit = (
        _BASE_SECONDS + _SECONDS_PER_FORMULA * len(request["formulas"]) + _SECONDS_PER_QUERY * len(request["queries"])
    )
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), stdout=subprocess.PIPE, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LimitReached(f"approach0 took more than {limit:,.0f} seconds; rank fewer formulas") from error
    *steps, last = done.stdout.decode().splitlines() or ["starting"]
    if done.returncode:
        code = done.returncode
        ended = f"exit status {code}" if code > 0 else signal.Signals(-code).name
        raise BadInput(f"approach0 stopped ({ended}) while {last}; leave these formulas out")
    answer: dict[str, Any] = json.loads(last)
    if "error" in answer:
        raise BadInput(f"approach0 failed while {steps[-1] if steps else 'starting'}: {answer['error']}")
    return answer


def _find_roomy_folder(formulas: int) -> str | None:
    """Return shared memory if an index of these formulas fits there four times, otherwise None."""
    try:
        fits = shutil.disk_usage(_SHARED_MEMORY).free > 4 * formulas * _INDEX_BYTES_PER_FORMULA
    except OSError:
        return None
    return _SHARED_MEMORY if fits and os.access(_SHARED_MEMORY, os.W_OK) else None
