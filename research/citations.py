"""Citations between the documents of a corpus (paper, section 3.1), as far as they can be resolved.

A document cites another one if its bibliography has the other's arXiv id, which stands in the other's title or path, or
the other's title, which has at least `MIN_TITLE_WORDS` words and belongs to one document only. Titles that are ordinary
headings match by chance now and then.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from eqkin.learning.data import Corpus, Numbers

MIN_TITLE_WORDS = 5
_PREFIX_WORDS = 4
_MAX_BIBLIOGRAPHY = 400_000  # characters
_ARXIV_ID = re.compile(r"(?<![\d.])\d{2}(?:0[1-9]|1[0-2])\.\d{4,5}(?!\d)")
_BIBLIOGRAPHY = re.compile(
    r"\\begin\{thebibliography\}|\\bibitem|@(?:article|book|inproceedings)\{|\\section\*?\{(?:References|Bibliography)\}"
)
_MARKUP = re.compile(r"\\[a-zA-Z]+|[{}$~^_]")


def read_records(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Read documents from files of JSON lines, compressed or not."""
    for path in paths:
        with path.open("rb") as file:
            stream: Any = file
            if path.suffix == ".zst":
                decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
                stream = decompressor.stream_reader(file, read_across_frames=True)
            with io.TextIOWrapper(stream, "utf-8") as lines:
                yield from map(json.loads, lines)


def find_citations(records: Iterable[dict[str, Any]]) -> dict[str, set[tuple[str, str]]]:
    """Find pairs of a citing and a cited document (`doc_id`), by what gave them away: "arXiv id" or "title"."""
    texts: dict[str, str] = {}
    ids, cited_ids, titles = defaultdict[str, set[str]](set), {}, defaultdict[str, set[str]](set)
    for record in records:
        name, latex = record["doc_id"], record["latex"]
        found = _BIBLIOGRAPHY.search(latex)
        if found:
            texts[name] = latex[found.start() : found.start() + _MAX_BIBLIOGRAPHY]
        for one in _ARXIV_ID.findall(f"{record.get('title') or ''} {record.get('path') or ''}"):
            ids[one].add(name)
        cited_ids[name] = {one.partition("v")[0] for one in record.get("arxiv_ids_cited") or ()}
        words = _split_words(record.get("title") or "")
        if len(words) >= MIN_TITLE_WORDS:
            titles[" ".join(words)].add(name)
    prefixes = defaultdict[str, list[list[str]]](list)
    for title, owners in titles.items():
        if len(owners) == 1:
            prefixes[" ".join(title.split()[:_PREFIX_WORDS])].append(title.split())
    edges: dict[str, set[tuple[str, str]]] = {"arXiv id": set(), "title": set()}
    for name, cited in cited_ids.items():
        edges["arXiv id"] |= {(name, other) for one in cited for other in ids.get(one, ()) if other != name}
    for name, text in texts.items():
        words = _split_words(text)
        for start in range(len(words) - _PREFIX_WORDS):
            for parts in prefixes.get(" ".join(words[start : start + _PREFIX_WORDS]), ()):
                (other,) = titles[" ".join(parts)]
                if words[start : start + len(parts)] == parts and other != name:
                    edges["title"].add((name, other))
    return edges


def add_citations(corpus: Corpus, paths: Iterable[Path]) -> Corpus:
    """Add the citations that the documents in some files of JSON lines make known."""
    edges = find_citations(read_records(paths))
    known = {(corpus.papers[one], corpus.papers[other]) for one, other in corpus.citations.tolist()}
    found = {(f"record:{one}", f"record:{other}") for one, other in edges["arXiv id"] | edges["title"]}
    return replace(corpus, citations=number_edges(corpus, known | found))


def number_edges(corpus: Corpus, edges: Iterable[tuple[str, str]]) -> Numbers:
    """Return the citations between papers of a corpus, given by their keys, as `Corpus.citations` has them."""
    number = {paper: index for index, paper in enumerate(corpus.papers)}
    pairs = sorted({(number[one], number[other]) for one, other in edges if one in number and other in number})
    return np.array(pairs, np.int32).reshape(-1, 2)


def _split_words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", _MARKUP.sub(" ", text)).lower()
    return re.findall(r"[a-z0-9]+", plain)
