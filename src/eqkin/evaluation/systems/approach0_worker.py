"""The process that runs approach0's native code: it answers each line of JSON with another line of JSON.

What approach0 prints is discarded: standard output is redirected before it starts.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class Approach0Worker:
    """An index in a folder: first written, then searched."""

    def __init__(self, folder: str) -> None:
        import pya0

        self._pya0, self._folder = pya0, folder
        self._index = pya0.index_open(folder, option="w")
        self._writer = pya0.index_writer(self._index)
        self._places: dict[int, int] = {}  # by approach0's number of a document
        self._leading = 0  # documents before the formulas

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        if "lead" in question:
            read = [f"[imath]{latex}[/imath]" for latex in map(_clean, question["lead"]) if self._can_read(latex)]
            if read:  # a document with queries before the formulas, which is never returned
                self._pya0.writer_add_doc(self._writer, content=" ".join(read))
                self._leading += 1
            return {}
        if "add" in question:
            return {"refused": sum(not self._add(_clean(latex)) for latex in question["add"])}
        if "finish" in question:
            self._pya0.writer_flush(self._writer)
            self._pya0.writer_close(self._writer)
            self._pya0.index_close(self._index)
            self._index = self._pya0.index_open(self._folder, option="r")
            return {}
        return self._search(_clean(question["search"]), question["depth"])

    def _add(self, latex: str) -> bool:
        number = self._pya0.writer_add_doc(self._writer, content=f"[imath]{latex}[/imath]")
        self._places[number] = len(self._places)
        return self._can_read(latex)

    def _search(self, latex: str, depth: int) -> dict[str, Any]:
        if not self._can_read(latex):
            return {"read": False, "places": [], "scores": []}
        query = [{"str": latex, "type": "tex", "field": "content"}]
        found = self._pya0.search(self._index, query, verbose=False, topk=depth + self._leading)
        hits = [hit for hit in json.loads(found).get("hits", []) if hit["docid"] in self._places][:depth]
        places = [self._places[hit["docid"]] for hit in hits]
        return {"read": True, "places": places, "scores": [hit["score"] for hit in hits]}

    def _can_read(self, latex: str) -> bool:
        return bool(latex) and self._pya0.parse(latex)[0] == "OK"


def _clean(latex: str) -> str:
    """Put a formula on one line, as approach0 needs it, and remove approach0's own brackets."""
    return " ".join(latex.replace("[/imath]", " ").replace("[imath]", " ").replace("\0", " ").split())


def main() -> None:
    """Answer requests until there are no more."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        worker = None
        for line in sys.stdin.buffer:
            try:
                worker = worker or Approach0Worker(sys.argv[1])
                answer = worker.answer(json.loads(line))
            except Exception as error:  # reported to the caller, which raises it
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
