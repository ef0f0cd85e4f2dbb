r"""Puts `\input`, `\include`, `\subfile`, `\import` and their kin in place, within one paper's files only."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqkin.errors import LimitReached
from eqkin.limits import LIMITS, Limits
from eqkin.sources.tar import normalize_member_path
from eqkin.sources.text import decode_text

STYLE_SUFFIXES = (".sty", ".cls", ".def", ".clo", ".rtx")
TEX_SUFFIXES = (".tex", ".ltx", ".latex")

_VERBATIM = r"verbatim\*?|Verbatim\*?|BVerbatim|lstlisting|minted|comment|filecontents\*?"
_TOKEN = re.compile(
    rf"""
      \\begin\s{{0,20}}\{{(?P<verbatim>{_VERBATIM})\}}
    | \\(?:verb|lstinline)\*?(?P<verb>[^\sa-zA-Z*\\{{\[])
    | \\(?P<include>input|include|subfile|subfileinclude)(?![a-zA-Z@])
    | \\(?P<import>(?:sub)?(?:import|inputfrom|includefrom))(?![a-zA-Z@])\*?
    | (?P<end>\\endinput(?![a-zA-Z@])|\\end\s{{0,20}}\{{document\}})
    | \\[^a-zA-Z]
    | %[^\n]*
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
_MAX_VERB_CHARS = 2_000  # a mark of \verb whose partner is further away is none
_DOCUMENT = re.compile(r"\\begin\s{0,20}\{document\}")
_CLASS = re.compile(r"\\document(?:class|style)(?![a-zA-Z])")


@dataclass(frozen=True)
class Include:
    """One command that asks for another file: its place in the text, the file, and the folder it is looked for in."""

    start: int
    end: int
    file: str
    folder: str | None = None  # of `\\import`; None for `\\input`, which looks where the paper is
    relative: bool = False  # the folder is relative to the including file


def iter_includes(text: str) -> Iterator[Include | int]:
    r"""Includes of `text` in order, those in comments and verbatim left out.

    A last integer is the place of `\endinput` or `\end{document}`, where reading stops.
    """
    closed: dict[str, bool] = {}
    position = 0
    while match := _TOKEN.search(text, position):
        position = match.end()
        if name := match["verbatim"]:
            position = _skip_past(text, rf"\end{{{name}}}", position, closed)
        elif mark := match["verb"]:
            line_end = text.find("\n", position, position + _MAX_VERB_CHARS)
            found = text.find(mark, position, line_end if line_end >= 0 else position + _MAX_VERB_CHARS)
            position = found + 1 if found >= 0 else position
        elif match["end"]:
            yield match.start()
            return
        elif (include := _parse_include(text, match)) is not None:
            position = include.end
            yield include


def _skip_past(text: str, mark: str, position: int, closed: dict[str, bool]) -> int:
    """End of the next `mark`, or `position` if there is none; looks for a missing one only once."""
    if not closed.get(mark, True):
        return position
    found = text.find(mark, position)
    closed[mark] = found >= 0
    return found + len(mark) if found >= 0 else position


def _parse_include(text: str, match: re.Match[str]) -> Include | None:
    if match["import"]:
        two = _IMPORT_ARGUMENTS.match(text, match.end())
        if two is None:
            return None
        relative = match["import"].startswith("sub")
        return Include(match.start(), two.end(), two["file"].strip(), two["dir"].strip(), relative)
    if match["include"]:
        one = _BRACED_ARGUMENT.match(text, match.end()) or (
            _BARE_ARGUMENT.match(text, match.end()) if match["include"] == "input" else None
        )
        if one is not None:
            groups = one.groupdict()
            file = groups.get("braced") or groups.get("quoted") or groups.get("bare") or ""
            return Include(match.start(), one.end(), file.strip())
    return None


def list_candidate_paths(file: str, folders: tuple[str, ...]) -> list[str]:
    """Paths a file may have, best first; empty if its name leads out of the source or is made by a macro."""
    if "\\" in file or "#" in file:
        return []
    names = [file, file + ".tex"] if file.lower().endswith(TEX_SUFFIXES + STYLE_SUFFIXES) else [file + ".tex", file]
    found: list[str] = []
    for folder in dict.fromkeys(folders):
        for name in names:
            path = normalize_member_path(posixpath.join(folder, name)) if is_relative_path(file) else None
            if path is not None and path not in found:
                found.append(path)
    return found


def is_relative_path(file: str) -> bool:
    """Whether a name can be a path relative to a folder: not absolute, no pipe, no home folder, no drive."""
    return not file.startswith(("/", "~", "|")) and not re.match(r"[A-Za-z]:", file) and "\0" not in file


class IncludeExpander:
    r"""One paper's text with all its includes in place.

    Args:
        files: the paper's files by path; nothing else is opened.
        limits: `LimitReached` is raised above `include_depth`, `includes` and, for the whole text, `file_bytes`.

    After `expand`: `used` are the paths put in place, `loaded` the style files asked for by `\input`, `preambles` those
    of included complete documents, `notes` what was missing, refused or cut.
    """

    def __init__(self, files: Mapping[str, bytes], limits: Limits = LIMITS) -> None:
        self.used: set[str] = set()
        self.loaded: list[str] = []
        self.preambles: list[str] = []
        self.notes: list[str] = []
        self._files = files
        self._limits = limits
        self._bodies: dict[str, str] = {}  # what an included file puts in place, up to where its reading stops
        self._pieces: list[str] = []
        self._size = 0
        self._count = 0

    def expand(self, main: str) -> str:
        """Text of `main` with everything it includes; raises `LimitReached`."""
        self._main_folder = posixpath.dirname(main)
        self._expand_file(main, decode_text(self._files[main]), self._main_folder, (main,))
        return "".join(self._pieces)

    def _append(self, piece: str) -> None:
        self._size += sys.getsizeof(piece)  # one character outside of Latin-1 doubles or quadruples it
        if self._size > self._limits.file_bytes * 11 // 10:
            raise LimitReached(f"with its includes the paper takes more than {self._limits.file_bytes:,} bytes")
        self._pieces.append(piece)

    def _expand_file(self, path: str, text: str, folder: str, stack: tuple[str, ...]) -> None:
        self.used.add(path)
        position = 0
        for token in iter_includes(text):
            if isinstance(token, int):
                self._append(text[position:token])
                if path in self._bodies:
                    self._bodies[path] = text[:token]
                return
            self._append(text[position : token.start])
            position = token.end
            self._expand_include(token, path, folder, stack)
        self._append(text[position:])

    def _expand_include(self, include: Include, path: str, folder: str, stack: tuple[str, ...]) -> None:
        self._count += 1
        if self._count > self._limits.includes:
            raise LimitReached(f"the paper includes more than {self._limits.includes:,} files")
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
        elif len(stack) > self._limits.include_depth:
            raise LimitReached(f"includes are nested more than {self._limits.include_depth} deep")
        else:
            below = posixpath.normpath(folders[0]) if include.folder is not None else folder
            self._expand_file(found, self._read_body(found), below, (*stack, found))
            self._append("\n")

    def _read_body(self, path: str) -> str:
        """Text of an included file; of a complete document only its body, its preamble is kept apart."""
        if path in self._bodies:
            return self._bodies[path]
        text = decode_text(self._files[path])
        begin = _DOCUMENT.search(text)
        if begin is not None and _CLASS.search(text, 0, begin.start()):
            preamble = text[: begin.start()]
            if preamble not in self.preambles:
                self.preambles.append(preamble)
            text = text[begin.end() :]
        self._bodies[path] = text
        return text

    def _add_note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < 100:
            self.notes.append(note)
