r"""One paper's files to its text: find the main file, put includes in place, gather styles and bibliography."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

import orjson

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS, Limits
from eqkin.sources.attachments import read_bibliography, read_local_styles
from eqkin.sources.includes import (
    STYLE_SUFFIXES,
    TEX_SUFFIXES,
    Include,
    IncludeExpander,
    iter_includes,
    list_candidate_paths,
)
from eqkin.sources.paper import Paper
from eqkin.sources.text import decode_text, refuse_binary

_CLASS = re.compile(
    rb"^[^%\n\r]*\\document(class|style)(?![a-zA-Z])(?:\s*\[[^\]]{0,2000}\])?\s*\{?([^}\s]{0,60})", re.M
)
_BEGIN = re.compile(rb"^[^%\n\r]*\\begin\s*\{document\}", re.M)
_COMMAND = re.compile(rb"\\[a-zA-Z]{2,}|\$")
_TEXT_COMMAND = re.compile(r"\\[a-zA-Z]{2,}|\$")
_PLAIN_END = re.compile(rb"\\bye\b|\\end\b(?!\s*\{)")
_USUAL_MAIN_NAMES = ("main", "paper", "ms", "article", "manuscript", "root", "thesis", "draft")
_NOT_MAIN = (*STYLE_SUFFIXES, ".bbl", ".bib", ".bst", ".txt", ".md", ".cfg", ".xxx", ".json", ".yaml", ".yml", ".html")


def is_main_file(raw: bytes) -> bool:
    r"""Whether a file is a complete document: `\documentclass` or `\documentstyle`, outside of comments."""
    return _CLASS.search(raw) is not None


def list_includes(text: str) -> list[Include]:
    r"""The files `text` asks for with `\input` and its kin."""
    return [token for token in iter_includes(text) if isinstance(token, Include)]


def choose_main_file(files: Mapping[str, bytes], name: str) -> str:
    """Path of the main file among one paper's files; raises `BadInput` if none holds TeX.

    A complete document first; among several the one a `00README` names, then one with a usual name, the one that
    includes most, the one highest in the folders, the largest. Without any: the largest that no other includes.
    """
    texts = [path for path in files if path.lower().endswith(TEX_SUFFIXES) and files[path].strip()]
    if not any(is_main_file(files[path]) for path in texts):
        texts += [path for path in files if path not in texts and _may_be_tex(path, files[path])]
    if not texts:
        raise BadInput(f"{name}: holds no TeX file")
    if len(texts) == 1:
        return texts[0]
    included = _find_included_files(files, texts)
    preferred = _read_toplevel_names(files)
    return max(texts, key=lambda path: _rank_main_file(path, files[path], path in preferred, path in included))


def _may_be_tex(path: str, raw: bytes) -> bool:
    return not path.lower().endswith(_NOT_MAIN) and _COMMAND.search(raw) is not None


def _rank_main_file(path: str, raw: bytes, preferred: bool, included: bool) -> tuple[object, ...]:
    declared = _CLASS.search(raw)
    class_name = declared.group(2) if declared else b""
    complete = declared is not None and class_name not in (b"standalone", b"subfiles", b"subfile")
    begins = _BEGIN.search(raw) is not None
    stem = posixpath.splitext(posixpath.basename(path))[0].lower()
    named = len(_USUAL_MAIN_NAMES) - _USUAL_MAIN_NAMES.index(stem) if stem in _USUAL_MAIN_NAMES else 0
    if not named and stem.startswith(_USUAL_MAIN_NAMES):
        named = 1
    includes = len(list_includes(decode_text(raw))) if complete and len(raw) < 5_000_000 else 0
    whole = begins or _PLAIN_END.search(raw) is not None
    inverted = tuple(-ord(c) for c in path)  # the last tie-break: the first in the alphabet
    return (
        preferred,
        complete and begins,
        complete,
        not included,
        named,
        whole,
        includes,
        -path.count("/"),
        len(raw),
        inverted,
    )


def _read_toplevel_names(files: Mapping[str, bytes]) -> set[str]:
    """Main files as arXiv's `00README.XXX` or `00README.json` names them."""
    found: set[str] = set()
    for path in files:
        base = posixpath.basename(path).lower()
        if base.startswith("00readme") and len(files[path]) < 1_000_000:
            text = decode_text(files[path])
            found |= _parse_readme_json(text) if base.endswith(".json") else _parse_readme_lines(text)
    return found


def _parse_readme_lines(text: str) -> set[str]:
    words = (line.split(None, 2) for line in text.split("\n"))
    return {first for first, *rest in words if rest and rest[0] == "toplevelfile"} if "toplevelfile" in text else set()


def _parse_readme_json(text: str) -> set[str]:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return set()
    sources = record.get("sources") if isinstance(record, dict) else None
    entries = [entry for entry in sources if isinstance(entry, dict)] if isinstance(sources, list) else []
    return {name for e in entries if e.get("usage") == "toplevel" and isinstance(name := e.get("filename"), str)}


def _find_included_files(files: Mapping[str, bytes], paths: Iterable[str]) -> set[str]:
    included: set[str] = set()
    for path in paths:
        for include in list_includes(decode_text(files[path])):
            folders = (posixpath.dirname(path), "")
            found = [p for p in list_candidate_paths(include.file, folders) if p in files and p != path]
            included.update(found[:1])
    return included


def read_project(
    files: Mapping[str, bytes],
    *,
    key: str,
    origin: str,
    main: str | None = None,
    stray: bool = True,
    limits: Limits = LIMITS,
) -> Paper:
    """The paper made of `files`.

    Args:
        files: bytes by path; a lazy mapping will do, only what the paper needs is looked up if `main` is given.
        key: key of the paper.
        origin: what a person would call it.
        main: path of the main file; chosen among `files` by default.
        stray: take bibliographies the main file does not name (right for an archive of one paper).
        limits: caps on the include depth, the number of includes and the length of the text.

    Raises:
        BadInput: no TeX in it, or nothing but a withdrawal notice.
        LimitReached: the includes are too deep, too many, or add up to too much.
    """
    if main is None:
        main = choose_main_file(files, origin)
    refuse_binary(files[main], origin)
    expander = IncludeExpander(files, limits)
    try:
        text = expander.expand(main)
    except LimitReached as error:
        raise LimitReached(f"{origin}: {error}") from error
    if stray and _TEXT_COMMAND.search(text) is None:
        withdrawn = "auto-ignore" in text[:1000]
        raise BadInput(f"{origin}: " + ("was withdrawn: holds no paper" if withdrawn else "holds no TeX"))
    styles = expander.preambles + read_local_styles(files, main, text, expander.loaded)
    bibliographies = read_bibliography(files, main, text, expander.used, stray=stray)
    return Paper(key, text, origin, styles=styles, bibliography=bibliographies, notes=expander.notes)
