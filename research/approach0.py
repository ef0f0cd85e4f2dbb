"""approach0 (Zhong and Zanibbi 2019): a structural search engine for LaTeX, by the paths of operator trees.

Its native code prints and may crash, so it runs in a process of its own: `python -m research.approach0` reads one
request as JSON and prints the answer as its last line.

pya0 0.3.7 answers some long queries wrongly: formulas before the first one that has all paths of the query are returned
under the name of that first one, so `P(s|d) = P(d|s) P(s) / P(d)` finds itself as something else. Documents with the
queries, indexed before the formulas, prevent that; they hardly change the frequencies of paths.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.errors import BadInput, LimitReached
from eqkin.evaluation import System
from eqkin.evaluation.systems import Float32s, FormulaSet

_BASE_SECONDS = 600.0
_SECONDS_PER_FORMULA = 0.5
_SECONDS_PER_QUERY = 60.0
# approach0's own scores are positive.
_MISSING_SCORE = -1.0
_QUERIES_PER_DOCUMENT = 200


class Approach0(System):
    """The engine of pya0 over an index of the formulas to rank; every call of `rank` builds a new index.

    Args:
        depth: Maximum number of formulas per query. More take longer and change little.
    """

    name = "approach0"
    title = "approach0"
    needs_latex = True

    def __init__(self, depth: int = 1_000) -> None:
        self._depth = depth

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Return approach0's scores; -1 for formulas that it does not find.

        Raises:
            BadInput: There is no LaTeX, pya0 is not installed, or it failed.
            LimitReached: It did not answer in time.
        """
        if queries.latex is None or formulas.latex is None:
            raise BadInput(f"{self.name} needs LaTeX, and these formulas are trees only")
        if find_spec("pya0") is None:
            raise BadInput("pya0 is not installed (it needs Linux on x86-64); `pip install 'eqkin[eval]'`")
        scores = np.full((len(queries), len(formulas)), _MISSING_SCORE, np.float32)
        limit = _BASE_SECONDS + _SECONDS_PER_FORMULA * len(formulas) + _SECONDS_PER_QUERY * len(queries)
        # The index consists of many small files: shared memory is several times faster than a disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="eqkin-approach0-", dir=memory) as folder:
            request = {"queries": list(queries.latex), "formulas": list(formulas.latex), "depth": self._depth}
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "research.approach0"],
                    input=json.dumps(request | {"folder": folder}).encode(), cwd=Path(__file__).parents[1],
                    capture_output=True, timeout=limit, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                raise LimitReached(f"approach0 took more than {limit:,.0f} seconds; rank fewer formulas") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").splitlines()[-1:]
            raise BadInput(f"approach0 stopped (exit status {done.returncode}): {' '.join(said)}")
        for row, (places, found) in zip(scores, json.loads(done.stdout.splitlines()[-1]), strict=True):
            row[places] = found
        return scores


def rank_formulas(request: dict[str, Any]) -> list[tuple[list[int], list[float]]]:
    """Index the formulas of a request in its folder and search for its queries; returns places and scores."""
    import pya0

    def can_read(latex: str) -> bool:
        return bool(latex) and pya0.parse(latex)[0] == "OK"

    queries, formulas = (list(map(_clean, request[name])) for name in ("queries", "formulas"))
    index = pya0.index_open(request["folder"], option="w")
    writer = pya0.index_writer(index)
    leading = 0
    for start in range(0, len(queries), _QUERIES_PER_DOCUMENT):
        some = queries[start : start + _QUERIES_PER_DOCUMENT]
        pya0.writer_add_doc(writer, content=" ".join(f"[imath]{latex}[/imath]" for latex in some if can_read(latex)))
        leading += 1
    places = {
        pya0.writer_add_doc(writer, content=f"[imath]{latex}[/imath]"): number for number, latex in enumerate(formulas)
    }
    pya0.writer_flush(writer)
    pya0.writer_close(writer)
    pya0.index_close(index)
    index = pya0.index_open(request["folder"], option="r")
    found: list[tuple[list[int], list[float]]] = []
    for latex in queries:
        hits: list[dict[str, Any]] = []
        if can_read(latex):
            asked = [{"str": latex, "type": "tex", "field": "content"}]
            answer = json.loads(pya0.search(index, asked, verbose=False, topk=request["depth"] + leading))
            hits = [hit for hit in answer.get("hits", []) if hit["docid"] in places][: request["depth"]]
        found.append(([places[hit["docid"]] for hit in hits], [hit["score"] for hit in hits]))
    return found


def _clean(latex: str) -> str:
    """Put a formula on one line, as approach0 needs it, and remove approach0's own brackets."""
    return " ".join(latex.replace("[/imath]", " ").replace("[imath]", " ").replace("\0", " ").split())


if __name__ == "__main__":
    # What approach0 prints is discarded: standard output is redirected before it starts.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        print(json.dumps(rank_formulas(json.load(sys.stdin.buffer))), file=answers)  # noqa: T201
