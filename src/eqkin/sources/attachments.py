r"""What stands beside a paper's text: local style files it loads, and its bibliography."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from eqkin.sources.includes import STYLE_SUFFIXES, Include, iter_includes, list_candidate_paths
from eqkin.sources.text import decode_text

_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*+%")
_MAX_LINE_CHARS = 2_000  # characters of a line in front of a command in which a comment is looked for
_LOAD = re.compile(
    r"\\(?:usepackage|RequirePackage(?:WithOptions)?|documentclass|documentstyle|LoadClass(?:WithOptions)?)\s{0,20}"
    r"(?:\[(?P<options>[^\]]{0,2000})\]\s{0,20})?\{(?P<names>[^{}]{1,2000})\}"
)
_BIBLIOGRAPHY = re.compile(
    r"\\(?:bibliography|addbibresource|addglobalbib|nobibliography)\*?\s{0,20}(?:\[[^\]]{0,200}\])?\{([^{}]{1,2000})\}"
)
_CITE = re.compile(
    r"\\(?=[a-zA-Z]{0,20}?cite)[a-zA-Z]++\*?+\s{0,20}+(?:\[[^\]]{0,500}+\]\s{0,20}+){0,2}+\{([^{}]{1,5000}+)\}"
)
_ENTRY = re.compile(r"^[ \t]*@[ \t]*([A-Za-z]{1,30})\s{0,20}[{(]\s{0,20}([^\s,{}()=\"]{0,300})", re.MULTILINE)


def iter_uncommented_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    r"""Matches of `pattern` that do not stand in a comment; `\%` is none. The text is not copied for it."""
    for match in pattern.finditer(text):
        low = max(match.start() - _MAX_LINE_CHARS, 0)
        line = text[max(text.rfind("\n", low, match.start()) + 1, low) : match.start()]
        if not _COMMENT.search(line):
            yield match


def read_local_styles(files: Mapping[str, bytes], main: str, text: str, loaded: Iterable[str] = ()) -> list[str]:
    """Texts of the local style and class files `text` loads, and of those they load, each once.

    Args:
        files: the paper's files by path.
        main: path of the main file; style files are looked for beside it and at the root.
        text: the paper's text.
        loaded: paths of style files already known to be loaded.
    """
    folders = (posixpath.dirname(main), "")
    queue = [*loaded, *_find_styles(text, folders, files)]
    seen: set[str] = set()
    styles: list[str] = []
    while queue:
        path = queue.pop(0)
        if path in seen:
            continue
        seen.add(path)
        style = decode_text(files[path])
        styles.append(style)
        queue += _find_styles(style, (posixpath.dirname(path), *folders), files)
        for token in iter_includes(style):
            if isinstance(token, Include):
                queue += [
                    p for p in list_candidate_paths(token.file, (posixpath.dirname(path), *folders)) if p in files
                ][:1]
    return styles


def _find_styles(text: str, folders: tuple[str, ...], files: Mapping[str, bytes]) -> list[str]:
    found: list[str] = []
    for match in iter_uncommented_matches(_LOAD, text):
        for name in f"{match['names']},{match['options'] or ''}".split(","):
            name = name.strip()
            if not name or "=" in name:
                continue
            stems = [name] if name.lower().endswith(STYLE_SUFFIXES) else [name + ".sty", name + ".cls"]
            paths = [path for stem in stems for path in list_candidate_paths(stem, folders)]
            found += [path for path in paths if path.lower().endswith(STYLE_SUFFIXES) and path in files][:1]
    return found


def read_bibliography(files: Mapping[str, bytes], main: str, text: str, used: set[str], *, stray: bool) -> list[str]:
    r"""Texts of the paper's `.bbl` and of what it cites from its `.bib` files.

    The `.bbl` is the one named like the main file; with `stray`, if there is none, all in the archive. Files in `used`
    stand in the text already. Of a `.bib` only the cited entries are kept, all with `\nocite{*}`.
    """
    stem = posixpath.splitext(main)[0]
    names = [stem + ".bbl"] if stem + ".bbl" in files else []
    if not names and stray:
        names = sorted(name for name in files if name.lower().endswith(".bbl"))
    texts = [decode_text(files[name]) for name in names if name not in used]
    folders = (posixpath.dirname(main), "")
    asked = [
        name.strip() for match in iter_uncommented_matches(_BIBLIOGRAPHY, text) for name in match.group(1).split(",")
    ]
    paths = [_find_bib_file(name, folders, files) for name in asked if name]
    bibs = [path for path in dict.fromkeys(paths) if path]
    if stray and not asked and not texts:
        bibs = sorted(name for name in files if name.lower().endswith(".bib"))
    cited = {key.strip() for match in iter_uncommented_matches(_CITE, text) for key in match.group(1).split(",")}
    texts += [select_cited_entries(decode_text(files[path]), cited) for path in bibs]
    return [t for t in texts if t.strip()]


def _find_bib_file(name: str, folders: tuple[str, ...], files: Mapping[str, bytes]) -> str | None:
    stem = name if name.lower().endswith(".bib") else name + ".bib"
    return next((path for path in list_candidate_paths(stem, folders) if path in files), None)


def select_cited_entries(bib: str, cited: set[str]) -> str:
    """The entries of a BibTeX file with a key in `cited`, and the strings and entries they refer to."""
    if "*" in cited:
        return bib
    starts = list(_ENTRY.finditer(bib))
    kept = [
        bib[match.start() : following.start() if following else len(bib)]
        for match, following in zip_longest(starts, starts[1:])
        if match.group(2) in cited or match.group(1).lower() == "string"
    ]
    return "".join(kept)
