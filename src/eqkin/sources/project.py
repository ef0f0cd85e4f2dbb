r"""The text of one LaTeX paper from its files: main file, includes, local styles and bibliography.

Nothing outside the paper's files is opened.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import orjson

from eqkin.errors import BadInput, LimitReached
from eqkin.latex.scan import strip_comments
from eqkin.limits import LIMITS
from eqkin.sources.paper import Paper, decode_text, refuse_binary

Files = Mapping[str, bytes]  # by path

STYLE_SUFFIXES = (".sty", ".cls", ".def", ".clo", ".rtx")
TEX_SUFFIXES = (".tex", ".ltx", ".latex")
_USUAL_MAIN_NAMES = ("main", "paper", "ms", "article", "manuscript", "root", "thesis", "draft")
_NOT_MAIN = (*STYLE_SUFFIXES, ".bbl", ".bib", ".bst", ".txt", ".md", ".cfg", ".xxx", ".json", ".yaml", ".yml", ".html")
# The includes of a larger file are not counted to rank it.
_MAX_RANKED_BYTES = 5_000_000
_MAX_README_BYTES = 1_000_000
_MAX_NOTES = 100

_DOCUMENT_CLASS = re.compile(
    rb"^[^%\n\r]*\\document(class|style)(?![a-zA-Z])(?:\s*\[[^\]]{0,2000}\])?\s*\{?([^}\s]{0,60})", re.M
)
_BEGIN_DOCUMENT = re.compile(rb"^[^%\n\r]*\\begin\s*\{document\}", re.M)
_PLAIN_TEX_END = re.compile(rb"\\bye\b|\\end\b(?!\s*\{)")
_COMMAND_BYTES = re.compile(rb"\\[a-zA-Z]{2,}|\$")
_COMMAND = re.compile(r"\\[a-zA-Z]{2,}|\$")
_BODY_START = re.compile(r"\\begin\s{0,20}\{document\}")
_CLASS_COMMAND = re.compile(r"\\document(?:class|style)(?![a-zA-Z])")
_INCLUDE_TOKEN = re.compile(
    r"""
      \\(?P<include>input|include|subfile|subfileinclude)(?![a-zA-Z@])
    | \\(?P<import>(?:sub)?(?:import|inputfrom|includefrom))(?![a-zA-Z@])\*?
    | (?P<end>\\endinput(?![a-zA-Z@])|\\end\s{0,20}\{document\})
    | \\[^a-zA-Z]
    """,
    re.VERBOSE,
)
_BRACED_ARGUMENT = re.compile(
    r"""\s{0,50}+(?:\{\s{0,50}+"?+(?P<braced>[^{}\n"]{1,300}+)"?+\s{0,50}+\}|"(?P<quoted>[^"\n]{1,300}+)")"""
)
_BARE_ARGUMENT = re.compile(r"[ \t]{1,50}(?P<bare>[^\s{}%\\\"\[\]$]{1,300})")
_IMPORT_ARGUMENTS = re.compile(
    r"\s{0,50}+\{\s{0,50}+(?P<dir>[^{}\n]{0,300}+)\s{0,50}+\}\s{0,50}+\{\s{0,50}+(?P<file>[^{}\n]{1,300}+)\s{0,50}+\}"
)
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
_BIB_ENTRY = re.compile(r"^[ \t]*@[ \t]*([A-Za-z]{1,30})\s{0,20}[{(]\s{0,20}([^\s,{}()=\"]{0,300})", re.MULTILINE)


def read_project(files: Files, *, key: str, origin: str, main: str | None = None, stray: bool = True) -> Paper:
    """Return the paper that consists of `files`.

    Args:
        files: bytes by path; may be lazy: if `main` is given, only the files that the paper needs are looked up.
        key: key of the paper.
        origin: what a person would call it.
        main: path of the main file; chosen among `files` by default.
        stray: use bibliographies that the main file does not name (right for an archive of one paper).

    Raises:
        BadInput: there is no TeX in it, or only a withdrawal notice.
        LimitReached: the includes are too deep, too many, or too long.
    """
    if main is None:
        main = choose_main_file(files, origin)
    refuse_binary(files[main], origin)
    expander = IncludeExpander(files)
    try:
        text = expander.expand(main)
    except LimitReached as error:
        raise LimitReached(f"{origin}: {error}") from error
    # A paper without a single command was withdrawn, or is none.
    if stray and _COMMAND.search(text) is None:
        withdrawn = b"auto-ignore" in files[main][:1000]
        raise BadInput(f"{origin}: " + ("was withdrawn: holds no paper" if withdrawn else "holds no TeX"))
    styles = expander.preambles + read_local_styles(files, main, text, expander.loaded)
    bibliographies = read_bibliography(files, main, text, expander.used, stray=stray)
    return Paper(key, text, origin, styles=styles, bibliography=bibliographies, notes=expander.notes)


def choose_main_file(files: Files, name: str) -> str:
    """Return the path of the main file among one paper's files; raise `BadInput` if none holds TeX.

    A complete document is preferred; among several the one that a `00README` names, then one with a usual name, the one
    with most includes, the one highest in the folders, the largest. Without any: the largest that no other includes.
    """
    texts = [path for path in files if path.lower().endswith(TEX_SUFFIXES) and files[path].strip()]
    if not any(_DOCUMENT_CLASS.search(files[path]) for path in texts):
        others = (path for path in files if path not in texts and not path.lower().endswith(_NOT_MAIN))
        texts += [path for path in others if _COMMAND_BYTES.search(files[path])]
    if not texts:
        raise BadInput(f"{name}: holds no TeX file")
    if len(texts) == 1:
        return texts[0]
    included = set().union(*(find_included_files(path, files[path], files) for path in texts))
    preferred = _read_toplevel_names(files)
    # Of equals, the first in the alphabet.
    return max(sorted(texts), key=lambda path: _rank_main_file(path, files[path], path in preferred, path in included))


def _rank_main_file(path: str, raw: bytes, preferred: bool, included: bool) -> tuple[float, ...]:
    declared = _DOCUMENT_CLASS.search(raw)
    is_complete = declared is not None and declared.group(2) not in (b"standalone", b"subfiles", b"subfile")
    begins = _BEGIN_DOCUMENT.search(raw) is not None
    is_whole = begins or _PLAIN_TEX_END.search(raw) is not None
    stem = posixpath.splitext(posixpath.basename(path))[0].lower()
    # Earlier names are more usual; one that only begins like them is less so than all.
    usual = next((2 + at for at, name in enumerate(reversed(_USUAL_MAIN_NAMES)) if name == stem), 0)
    usual = usual or stem.startswith(_USUAL_MAIN_NAMES)
    n_includes = len(list_includes(decode_text(raw))) if is_complete and len(raw) < _MAX_RANKED_BYTES else 0
    criteria = (preferred, is_complete and begins, is_complete, not included, usual, is_whole, n_includes)
    return (*criteria, -path.count("/"), len(raw))


def _read_toplevel_names(files: Files) -> set[str]:
    """Return the main files that arXiv's `00README.XXX` or `00README.json` names."""
    found: set[str] = set()
    for path in files:
        base = posixpath.basename(path).lower()
        if not base.startswith("00readme") or len(files[path]) >= _MAX_README_BYTES:
            continue
        text = decode_text(files[path])
        if base.endswith(".json"):
            found |= _parse_readme_json(text)
        elif "toplevelfile" in text:
            words = (line.split(None, 2) for line in text.split("\n"))
            found |= {first for first, *rest in words if rest and rest[0] == "toplevelfile"}
    return found


def _parse_readme_json(text: str) -> set[str]:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return set()
    sources = record.get("sources") if isinstance(record, dict) else None
    entries = [entry for entry in sources if isinstance(entry, dict)] if isinstance(sources, list) else []
    return {name for e in entries if e.get("usage") == "toplevel" and isinstance(name := e.get("filename"), str)}


def find_included_files(path: str, raw: bytes, names: Container[str]) -> set[str]:
    """Return those of `names` that the file `path`, with this content, includes itself."""
    # The folder of the file, and those above up to the root.
    folders = [posixpath.dirname(path)]
    while folders[-1]:
        folders.append(posixpath.dirname(folders[-1]))
    found: set[str] = set()
    for include in list_includes(_read_text(raw)):
        searched = tuple(posixpath.join(folder, include.folder or "") for folder in folders)
        candidates = list_candidate_paths(include.file, searched)
        found.update([name for name in candidates if name in names and name != path][:1])
    return found


@dataclass(frozen=True)
class Include:
    r"""One command that includes another file: its position, the file, and the folder to look in.

    `folder` is that of `\import`, None for `\input`. With `relative` it is relative to the including file.
    """

    start: int
    end: int
    file: str
    folder: str | None = None
    relative: bool = False


def list_includes(text: str) -> list[Include]:
    r"""Return the files that a text without comments includes with `\input` and similar commands."""
    return [token for token in iter_includes(text) if isinstance(token, Include)]


def iter_includes(text: str) -> Iterator[Include | int]:
    r"""Yield the includes of a text without comments, in order.

    A last integer is the position of `\endinput` or `\end{document}`, where reading stops.
    """
    position = 0
    while match := _INCLUDE_TOKEN.search(text, position):
        position = match.end()
        if match["end"]:
            yield match.start()
            return
        if (include := _parse_include(text, match)) is not None:
            position = include.end
            yield include


def _read_text(raw: bytes) -> str:
    """Return the text of a file without comments and verbatim text, which may look like LaTeX."""
    return strip_comments(decode_text(raw))


def _parse_include(text: str, match: re.Match[str]) -> Include | None:
    if match["import"]:
        two = _IMPORT_ARGUMENTS.match(text, match.end())
        if two is None:
            return None
        relative = match["import"].startswith("sub")
        file = two["file"].strip()
        return Include(match.start(), two.end(), file, folder=two["dir"].strip(), relative=relative)
    if match["include"]:
        one = _BRACED_ARGUMENT.match(text, match.end())
        if one is None and match["include"] == "input":
            one = _BARE_ARGUMENT.match(text, match.end())
        if one is not None:
            groups = one.groupdict()
            file = groups.get("braced") or groups.get("quoted") or groups.get("bare") or ""
            return Include(match.start(), one.end(), file.strip())
    return None


def list_candidate_paths(file: str, folders: tuple[str, ...]) -> list[str]:
    """Return the paths that an included file may have, best first.

    There are none if its name leads out of the source (an absolute path, a pipe, a home folder) or contains a macro.
    """
    is_path = not file.startswith(("/", "~", "|")) and not re.match(r"[A-Za-z]:", file) and "\0" not in file
    if "\\" in file or "#" in file or not is_path:
        return []
    names = [file, file + ".tex"] if file.lower().endswith(TEX_SUFFIXES + STYLE_SUFFIXES) else [file + ".tex", file]
    paths = [normalize_member_path(posixpath.join(folder, name)) for folder in dict.fromkeys(folders) for name in names]
    return list(dict.fromkeys(path for path in paths if path is not None))


def normalize_member_path(name: str) -> str | None:
    """Return the path of a member or an include in normal form; None if it leads out of the source or is not a path."""
    name = name.replace("\\", "/").strip()
    if not name or name.startswith(("/", "~", "|")) or "\0" in name or re.match(r"[A-Za-z]:", name):
        return None
    normal = posixpath.normpath(name)
    if normal == ".." or normal.startswith(("../", "/")):
        return None
    return normal


class IncludeExpander:
    r"""Replaces the includes of one paper by the text of the files.

    Nothing but the paper's files is opened. After `expand`: `used` are the paths of included files, `loaded` the style
    files read by `\input`, `preambles` those of included complete documents, `notes` what was missing, refused or cut.
    """

    def __init__(self, files: Files) -> None:
        self.used: set[str] = set()
        self.loaded: list[str] = []
        self.preambles: list[str] = []
        self.notes: list[str] = []
        self._files = files
        self._bodies: dict[str, str] = {}  # text of included files, up to where reading stops
        self._pieces: list[str] = []
        self._size = 0
        self._count = 0

    def expand(self, main: str) -> str:
        """Return the text of `main` with everything it includes; raise `LimitReached`."""
        self._main_folder = posixpath.dirname(main)
        self._expand_file(main, _read_text(self._files[main]), self._main_folder, (main,))
        return "".join(self._pieces)

    def _append(self, piece: str) -> None:
        # One character outside of Latin-1 doubles or quadruples the memory of a text.
        self._size += sys.getsizeof(piece)
        if self._size > LIMITS.file_bytes * 11 // 10:
            raise LimitReached(f"with its includes the paper takes more than {LIMITS.file_bytes:,} bytes")
        self._pieces.append(piece)

    def _expand_file(self, path: str, text: str, folder: str, stack: tuple[str, ...]) -> None:
        self.used.add(path)
        position = 0
        for token in iter_includes(text):
            if isinstance(token, int):
                self._append(text[position:token])
                # A file that is included often is not searched for its end again.
                if path in self._bodies:
                    self._bodies[path] = text[:token]
                return
            self._append(text[position : token.start])
            position = token.end
            self._expand_include(token, path, folder, stack)
        self._append(text[position:])

    def _expand_include(self, include: Include, path: str, folder: str, stack: tuple[str, ...]) -> None:
        self._count += 1
        if self._count > LIMITS.includes:
            raise LimitReached(f"the paper includes more than {LIMITS.includes:,} files")
        own_folder = posixpath.dirname(path)
        if include.folder is not None:
            base = posixpath.join(own_folder if include.relative else self._main_folder, include.folder)
            folders: tuple[str, ...] = (base, posixpath.join(folder, include.folder))
        else:
            folders = (folder, self._main_folder, own_folder)
        paths = list_candidate_paths(include.file, folders)
        if not paths:
            self._add_note(f"include {include.file!r} leads out of the paper's files or is made by a macro: not read")
            return
        found = next((p for p in paths if p in self._files), None)
        if found is None:
            self._add_note(f"include {include.file!r} is missing")
        elif found.lower().endswith(STYLE_SUFFIXES):
            self.loaded.append(found)
        elif found in stack:
            self._add_note(f"include {include.file!r} includes itself: cut")
        elif len(stack) > LIMITS.include_depth:
            raise LimitReached(f"includes are nested more than {LIMITS.include_depth} deep")
        else:
            below = posixpath.normpath(folders[0]) if include.folder is not None else folder
            self._expand_file(found, self._read_body(found), below, (*stack, found))
            self._append("\n")

    def _read_body(self, path: str) -> str:
        """Return the text of an included file; of a complete document only its body, its preamble is kept apart."""
        if path in self._bodies:
            return self._bodies[path]
        text = _read_text(self._files[path])
        begin = _BODY_START.search(text)
        if begin is not None and _CLASS_COMMAND.search(text, 0, begin.start()):
            preamble = text[: begin.start()]
            # Chapters of one work share their preamble.
            if preamble not in self.preambles:
                self.preambles.append(preamble)
            text = text[begin.end() :]
        self._bodies[path] = text
        return text

    def _add_note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(note)


def read_local_styles(files: Files, main: str, text: str, loaded: Iterable[str] = ()) -> list[str]:
    """Return the texts of the local style and class files that `text` loads, and of those that they load, each once.

    Args:
        files: the paper's files by path.
        main: path of the main file; style files are searched for in its folder and at the root.
        text: the paper's text without comments.
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
        style = _read_text(files[path])
        styles.append(style)
        own_folders = (posixpath.dirname(path), *folders)
        queue += _find_styles(style, own_folders, files)
        for include in list_includes(style):
            queue += [p for p in list_candidate_paths(include.file, own_folders) if p in files][:1]
    return styles


def _find_styles(text: str, folders: tuple[str, ...], files: Files) -> list[str]:
    found: list[str] = []
    for match in _LOAD.finditer(text):
        for name in _split_names(f"{match['names']},{match['options'] or ''}"):
            if "=" in name:
                continue
            stems = [name] if name.lower().endswith(STYLE_SUFFIXES) else [name + ".sty", name + ".cls"]
            paths = [path for stem in stems for path in list_candidate_paths(stem, folders)]
            found += [path for path in paths if path.lower().endswith(STYLE_SUFFIXES) and path in files][:1]
    return found


def read_bibliography(files: Files, main: str, text: str, used: set[str], *, stray: bool) -> list[str]:
    r"""Return the texts of the paper's `.bbl` and of the entries it cites from its `.bib` files.

    The `.bbl` is the one named like the main file; if there is none and `stray` is set, all in the archive. Files in
    `used` are part of the text already. Of a `.bib` only the cited entries are kept, all with `\nocite{*}`.
    """

    def find_strays(suffix: str) -> list[str]:
        return sorted(name for name in files if name.lower().endswith(suffix)) if stray else []

    own = posixpath.splitext(main)[0] + ".bbl"
    names = [own] if own in files else find_strays(".bbl")
    texts = [decode_text(files[name]) for name in names if name not in used]
    folders = (posixpath.dirname(main), "")
    asked = [name for match in _BIBLIOGRAPHY.finditer(text) for name in _split_names(match.group(1))]
    bibs: list[str] = []
    for name in asked:
        path = name if name.lower().endswith(".bib") else name + ".bib"
        bibs += [path for path in list_candidate_paths(path, folders) if path in files][:1]
    if not asked and not texts:
        bibs = find_strays(".bib")
    cited = {key for match in _CITE.finditer(text) for key in _split_names(match.group(1))}
    texts += [_select_cited_entries(decode_text(files[path]), cited) for path in dict.fromkeys(bibs)]
    return [text for text in texts if text.strip()]


def _split_names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _select_cited_entries(bib: str, cited: set[str]) -> str:
    """Return the entries of a BibTeX file whose key is in `cited`, and its strings."""
    if "*" in cited:
        return bib
    starts = list(_BIB_ENTRY.finditer(bib))
    kept = [
        bib[match.start() : following.start() if following else len(bib)]
        for match, following in zip_longest(starts, starts[1:])
        if match.group(2) in cited or match.group(1).lower() == "string"
    ]
    return "".join(kept)
