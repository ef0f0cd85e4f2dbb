"""The process that runs approach0's native code: reads one request as JSON, and prints what it does, then its answer.

What approach0 prints is discarded: standard output is redirected before it starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

_FORMULAS_PER_STEP = 200


def rank_formulas(request: dict[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
    """Index formulas and search for queries.

    Args:
        request: "folder" of the index, "formulas", "queries" and the "depth" of the lists.
        report: Called with each step before it is done.

    Returns:
        "refused": formulas and queries that could not be read; "found": indices and scores of formulas, by query.
    """
    import pya0

    def can_read(latex: str) -> bool:
        return bool(latex) and pya0.parse(latex)[0] == "OK"

    queries, formulas = (list(map(_clean, request[name])) for name in ("queries", "formulas"))
    report("reading queries")
    index = pya0.index_open(request["folder"], option="w")
    writer = pya0.index_writer(index)
    leading = 0  # documents with queries before the formulas, which are never returned
    for start in range(0, len(queries), _FORMULAS_PER_STEP):
        read = [f"[imath]{latex}[/imath]" for latex in queries[start : start + _FORMULAS_PER_STEP] if can_read(latex)]
        if read:
            pya0.writer_add_doc(writer, content=" ".join(read))
            leading += 1
    places: dict[int, int] = {}  # by approach0's number of a document
    for number, latex in enumerate(formulas):
        if number % _FORMULAS_PER_STEP == 0:
            report(f"indexing formulas {number} to {min(number + _FORMULAS_PER_STEP, len(formulas)) - 1}")
        places[pya0.writer_add_doc(writer, content=f"[imath]{latex}[/imath]")] = number
    report("writing the index")
    pya0.writer_flush(writer)
    pya0.writer_close(writer)
    pya0.index_close(index)
    index, found, depth = pya0.index_open(request["folder"], option="r"), [], request["depth"]
    for latex in queries:
        hits: list[dict[str, Any]] = []
        if can_read(latex):
            report(f"searching for {latex[:200]!r}")
            asked = [{"str": latex, "type": "tex", "field": "content"}]
            answer = pya0.search(index, asked, verbose=False, topk=depth + leading)
            hits = [hit for hit in json.loads(answer).get("hits", []) if hit["docid"] in places][:depth]
        found.append([[places[hit["docid"]] for hit in hits], [hit["score"] for hit in hits]])
    unread = [sum(not can_read(latex) for latex in some) for some in (formulas, queries)]
    return {"refused": dict(zip(("formulas", "queries"), unread, strict=True)), "found": found}


def _clean(latex: str) -> str:
    """Put a formula on one line, as approach0 needs it, and remove approach0's own brackets."""
    return " ".join(latex.replace("[/imath]", " ").replace("[imath]", " ").replace("\0", " ").split())


def main() -> None:
    """Answer one request."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        try:
            answer = rank_formulas(json.load(sys.stdin.buffer), lambda step: print(step, file=answers, flush=True))
        except Exception as error:  # reported to the caller, which raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
