"""Open sources: one table says which reader reads which file; folders are walked with it.

A new format needs a reader `(raw, key, origin) -> Paper` in `DOCUMENT_READERS` and its suffixes in `_FORMATS`.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from eqkin.atlas import list_articles
from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.latex.titles import parse_arxiv_id, parse_file_name
from eqkin.limits import LIMITS
from eqkin.sources.arxiv import ArxivClient, make_arxiv_item
from eqkin.sources.eprints import MetadataLookup, is_bulk_tar, iter_bulk_items, make_eprint_item
from eqkin.sources.files import (
    SkipCallback,
    detect_kind,
    display_path,
    hash_source_file,
    make_file_key,
    read_capped,
    read_head,
)
from eqkin.sources.html import read_html
from eqkin.sources.markdown import read_markdown
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.notebook import read_notebook
from eqkin.sources.paper import Paper, SourceItem, decode_text, hash_parts, make_failed_item, refuse_binary
from eqkin.sources.project import find_included_files, read_project
from eqkin.sources.records import iter_record_items
from eqkin.sources.references import ZOTERO_DATABASE, iter_reference_items, make_pdf_item
from eqkin.sources.rest import iter_package_items, read_module, read_rest

PANDOC_FORMATS = {"docx": (".docx",), "org": (".org",), "typst": (".typ",)}
# Time that one document may take.
_PANDOC_SECONDS = 60.0
_PANDOC_HEAP = "1g"


def read_with_pandoc(raw: bytes, key: str, origin: str, format_name: str) -> Paper:
    """Convert a Word, Org or Typst document to LaTeX.

    pandoc runs in its sandbox, so that the document cannot make it read anything else.

    Raises `BadInput` if pandoc is missing or cannot read it, `LimitReached` if it takes too long.
    """
    try:
        import pypandoc  # type: ignore[import-untyped]
    except ImportError as error:
        raise BadInput(f"{origin}: reading .{format_name} needs pandoc: pip install 'eqkin[documents]'") from error
    options = ["--sandbox", "--standalone", "--from", format_name, "--to", "latex", "--wrap", "preserve"]
    command = [pypandoc.get_pandoc_path(), *options, "+RTS", f"-M{_PANDOC_HEAP}", "-RTS"]
    try:
        done = subprocess.run(command, input=raw, capture_output=True, timeout=_PANDOC_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise LimitReached(f"{origin}: pandoc takes longer than {_PANDOC_SECONDS:.0f} seconds") from error
    if done.returncode:
        reason = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        raise BadInput(f"{origin}: pandoc cannot read it ({reason or f'status {done.returncode}'})")
    return Paper(key, decode_text(done.stdout), origin, kind=format_name)


# Takes the raw content, the key and the origin.
DocumentReader = Callable[[bytes, str, str], Paper]

DOCUMENT_READERS: dict[str, DocumentReader] = {
    "md": read_markdown,
    "ipynb": read_notebook,
    "rst": read_rest,
    "html": read_html,
    "python": read_module,
    **{name: partial(read_with_pandoc, format_name=name) for name in PANDOC_FORMATS},
}
# Suffixes of each format; the longest that fits counts.
_FORMATS = {
    "tex": (".tex", ".ltx", ".latex"),
    "md": (".md", ".markdown", ".qmd", ".rmd"),
    "ipynb": (".ipynb",),
    "rst": (".rst",),
    "html": (".html", ".htm", ".xhtml"),
    "python": (".py",),
    "records": (".jsonl", ".jsonl.zst", ".jsonl.gz", ".ndjson"),
    "archive": (".tar", ".gz", ".tgz", ".zip"),
    "references": (".bib", ".ris"),
    "pdf": (".pdf",),
    **PANDOC_FORMATS,
}
_FORMAT_BY_SUFFIX = {suffix: name for name, suffixes in _FORMATS.items() for suffix in suffixes}
_READABLE = (
    "a folder; .tex, .md, .qmd, .Rmd, .ipynb, .rst, .html, .py; .docx, .org, .typ; .jsonl (also .zst "
    "or .gz); an e-print (.tex, .gz, .tar, .tar.gz, .zip) or a bulk tar of them; .pdf, .bib, .ris, CSL .json and "
    "zotero: (whose sources --fetch gets from arXiv); arxiv:ID; python:PACKAGE; atlas: (bundled with eqkin)"
)
_UNREADABLE_KINDS = {"empty": "is empty", "binary": "unknown binary data"}
# Files in a folder that a user may expect to be read.
_UNREAD_DOCUMENTS = {
    **dict.fromkeys((".djvu", ".ps", ".dvi"), "only drawings of formulas; give the LaTeX source"),
    **dict.fromkeys(
        (".doc", ".odt", ".rtf", ".tm", ".epub", ".pptx", ".nb", ".mw", ".lyx", ".ptx"),
        "cannot be read; convert to LaTeX, Markdown or HTML",
    ),
}
_LOOKS = (
    ("ipynb", rb'\A\s*\{[\s\S]*"cells"'),
    ("html", rb"<(?:!doctype html|html|math)\b"),
    ("tex", rb"\\(?:document(?:class|style)|(?:sub)?section|begin\s*\{|input\b|def\b|newcommand)"),
    ("rst", rb"\.\. math::|:math:`"),
    ("md", rb"\$|^#+ |^---\s*$"),
)
_NOT_A_DOCUMENT = "not a document"
_IGNORED_FOLDERS = {"node_modules", "__pycache__", "__MACOSX", "venv", "site-packages", "_minted", "build", "dist"}
_IGNORED_FOLDER_SUFFIXES = (".egg-info", ".dist-info")
# The beginning of a file whose suffix says nothing shows its format.
_SNIFFED_BYTES = 4096


def open_source(
    spec: str,
    *,
    metadata: MetadataSnapshot | None = None,
    arxiv: ArxivClient | None = None,
    fetch: bool = False,
    on_skip: SkipCallback | None = None,
) -> Iterator[SourceItem]:
    """Return the papers behind one argument of a user, in a fixed order.

    Iterating raises `BadInput` where a bulk tar or a record file is damaged, after all items before the damage; within
    a folder that is an item that fails instead.

    Args:
        spec: `arxiv:ID` or an address of arxiv.org, `python:PACKAGE`, `atlas:`, or a path of a file or folder.
        metadata: where titles, authors and categories of e-prints in files are looked up.
        arxiv: how to download; with the usual settings by default.
        fetch: whether the sources of PDFs and references may be downloaded.
        on_skip: called with what was left out (PDF members, links) and why.

    Raises:
        BadInput: the source does not exist, or is of a kind that cannot be read.
    """
    client = arxiv or ArxivClient()
    if spec.lower().startswith("arxiv:") or re.match(r"https?://", spec, re.IGNORECASE):
        return iter([make_arxiv_item(spec, client)])
    if spec == "atlas:":
        return _iter_atlas_items()
    if spec.startswith("python:"):
        return iter_package_items(spec.removeprefix("python:"))
    if spec.startswith("zotero:"):
        spec = spec.removeprefix("zotero:") or str(Path.home() / ZOTERO_DATABASE)
    try:
        path = Path(spec).expanduser().resolve()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{spec!r}: is not a path ({error})") from error
    if not exists:
        hint = f"; for the arXiv paper write arxiv:{spec}" if parse_arxiv_id(spec) else ""
        hint = "; the atlas is added as a whole: write atlas:" if spec.startswith("atlas:") else hint
        raise BadInput(f"{display_path(spec)}: no such file or folder{hint}")
    opener = _FileOpener(metadata.get if metadata else None, replace(client, is_offline=not fetch), on_skip)
    return opener.open_folder(path) if path.is_dir() else opener.open_file(path)


@dataclass(frozen=True)
class _FileOpener:
    """Opens files and folders."""

    look_up: MetadataLookup | None
    client: ArxivClient  # for PDFs and references
    on_skip: SkipCallback | None

    def open_file(self, path: Path) -> Iterator[SourceItem]:
        """Open one file; raise `BadInput` if it cannot be read."""
        head = read_head(path, _SNIFFED_BYTES)
        format_name = _detect_format(path, head)
        if format_name is None:
            why = "neither its name nor its content shows its format"
            if (kind := detect_kind(head)) != "text":
                why = _UNREADABLE_KINDS.get(kind, f"a {kind} file")
            raise BadInput(f"{display_path(path)}: {why}; what can be read: {_READABLE}")
        return self._open_as(format_name, path, path.parent)

    def open_folder(self, root: Path) -> Iterator[SourceItem]:
        """Open every document under `root`; one that cannot be read is an item that fails."""
        tex: list[Path] = []
        for path in walk_folder(root, self.on_skip):
            format_name = find_format(path.name)
            if format_name == "tex":
                tex.append(path)
                continue
            is_eprint = parse_file_name(path.name) is not None
            if why := _find_reason_to_skip(path, format_name, is_eprint):
                if why != _NOT_A_DOCUMENT:
                    _report_skipped(self.on_skip, path, why)
                continue
            try:
                # A file of unknown kind is read only if it is an archive, a PDF, or named after an identifier.
                if format_name in (None, "archive"):
                    kind = detect_kind(read_head(path))
                    format_name = "pdf" if kind == "pdf" else "eprint" if is_eprint else None
                    if kind in ("tar", "gzip", "zip"):
                        format_name = "archive"
                if format_name is None:
                    continue
                yield from self._open_as(format_name, path, root)
            except EqkinError as error:
                yield make_failed_item(make_file_key(path), display_path(path), error)
        for path in _select_main_files(root, tex):
            yield from self._open_as("tex", path, root)

    def _open_as(self, format_name: str, path: Path, root: Path) -> Iterator[SourceItem]:
        """Open a file as a document, or as "tex", "records", "archive" (a bulk tar or an e-print) or "eprint"."""
        if format_name == "records":
            return iter_record_items(path)
        if format_name == "references":
            return iter_reference_items(path, self.client)
        if format_name == "pdf":
            return iter([make_pdf_item(path, self.client)])
        if format_name == "archive" and is_bulk_tar(path):
            return iter_bulk_items(path, self.look_up, self.on_skip)
        if format_name in ("archive", "eprint"):
            return iter([make_eprint_item(path, self.look_up)])
        key = make_file_key(path)
        origin = display_path(path)
        # Its digest is known only once all that it includes is loaded.
        if format_name == "tex":
            return iter([SourceItem(key, origin, load=partial(load_tex, str(path), str(root)))])
        load = partial(load_document, str(path), format_name)
        return iter([SourceItem(key, origin, load=load, digest=hash_source_file(path))])


def _find_reason_to_skip(path: Path, format_name: str | None, is_eprint: bool) -> str:
    """Return why a file of a folder is not read, "" if it is."""
    if format_name == "references":
        return "references (to add their papers, give the file itself)"
    if format_name == "pdf" and path.with_suffix(".tex").exists():
        return "PDF of a .tex file beside it"
    if format_name != "python" and (format_name is not None or is_eprint):
        return ""
    why = _UNREAD_DOCUMENTS.get(path.suffix.lower())
    return f"{path.suffix[1:].upper()} file: {why}" if why else _NOT_A_DOCUMENT


def find_format(name: str) -> str | None:
    """Return the format of a file by its suffix, None if it is unknown."""
    low = name.lower()
    dot = low.find(".")
    while dot >= 0:
        if low[dot:] in _FORMAT_BY_SUFFIX:
            return _FORMAT_BY_SUFFIX[low[dot:]]
        dot = low.find(".", dot + 1)
    return None


def _detect_format(path: Path, head: bytes) -> str | None:
    """Return the format of a file by its first bytes if it is an archive, else by its suffix, else by its text."""
    kind = detect_kind(head)
    format_name = find_format(path.name)
    if kind == "pdf":
        return "pdf"
    # Some formats are archives, or databases, themselves.
    if format_name in PANDOC_FORMATS or path.suffix == ".sqlite":
        return format_name or "references"
    if format_name == "records" and kind in ("gzip", "zstd"):
        return format_name
    if kind in ("tar", "gzip", "zip"):
        return "archive"
    if kind != "text":
        return None
    if format_name not in DOCUMENT_READERS and re.match(rb'\s*\{\s*"(?:doc_id|id|latex|text)"\s*:', head):
        return "records"
    if format_name is None and path.suffix.lower() == ".json" and b'"title"' in head and b'"cells"' not in head:
        return "references"
    if format_name in (None, "archive"):
        return "eprint" if parse_file_name(path.name) else _guess_text_format(head)
    return format_name


def _guess_text_format(head: bytes) -> str | None:
    """Return the format that a text of unknown suffix looks like."""
    return next((name for name, looks in _LOOKS if re.search(looks, head, re.IGNORECASE | re.MULTILINE)), None)


def load_document(path: str, format_name: str) -> Paper:
    """Read one file with a reader of `DOCUMENT_READERS`; raises `BadInput` or `LimitReached`."""
    limit = min(LIMITS.python_bytes if format_name == "python" else LIMITS.document_bytes, LIMITS.file_bytes)
    raw = read_capped(path, limit)
    if format_name != "docx":
        refuse_binary(raw, display_path(path))
    return DOCUMENT_READERS[format_name](raw, make_file_key(path), display_path(path))


def load_tex(path: str, root: str) -> Paper:
    """Read the paper whose main file is `path`, with what it includes from under `root`.

    Raises `BadInput` or `LimitReached`.
    """
    name = Path(os.path.realpath(path)).relative_to(os.path.realpath(root)).as_posix()
    files = FolderFiles(Path(root))
    if name not in files:
        raise BadInput(f"{display_path(path)}: is gone or not a regular file") from FileNotFoundError(
            errno.ENOENT, path
        )
    return read_project(files, key=make_file_key(path), origin=display_path(path), main=name, stray=False)


class FolderFiles(Mapping[str, bytes]):
    """The files under `root` as a mapping from relative path to bytes, read only when looked up.

    A file that is missing, not regular, or leads out of `root` (also through a link) is not in it. A file above
    `LIMITS.file_bytes` raises `LimitReached` when it is looked up.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def _resolve(self, name: object) -> str | None:
        if not isinstance(name, str) or "\0" in name:
            return None
        path = os.path.realpath(os.path.join(self._root, name))
        within = path.startswith(self._root.rstrip(os.sep) + os.sep)
        try:
            return path if within and os.path.isfile(path) else None
        except (OSError, ValueError):
            return None

    def __contains__(self, name: object) -> bool:
        return self._resolve(name) is not None

    def __getitem__(self, name: str) -> bytes:
        path = self._resolve(name)
        if path is None:
            raise KeyError(name)
        return read_capped(path, LIMITS.file_bytes)

    def __iter__(self) -> Iterator[str]:
        for path in walk_folder(Path(self._root)):
            yield path.relative_to(self._root).as_posix()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def walk_folder(root: Path, on_skip: SkipCallback | None = None) -> Iterator[Path]:
    """Yield the files under `root` in a fixed order, without hidden files, links, and folders of tools."""
    stack = [root]
    while stack:
        folder = stack.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            _report_skipped(on_skip, folder, f"cannot be listed ({error.strerror})")
            continue
        below: list[Path] = []
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith(".") or entry.name.endswith(_IGNORED_FOLDER_SUFFIXES):
                continue
            if entry.is_symlink():
                _report_skipped(on_skip, path, "symbolic link")
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in _IGNORED_FOLDERS and not (path / "pyvenv.cfg").exists():
                    below.append(path)
            elif entry.is_file(follow_symlinks=False):
                yield path
        stack += reversed(below)


def _select_main_files(root: Path, paths: list[Path]) -> Iterator[Path]:
    """Yield the `.tex` files that no other file includes; of files that include each other the first."""
    by_name = {path.relative_to(root).as_posix(): path for path in paths}
    includes = {name: _find_included_names(name, path, by_name) for name, path in by_name.items()}
    included = set().union(*includes.values())
    reached: set[str] = set()
    # First the files that nobody includes; then, of those that include each other, the first.
    for name in [*(name for name in by_name if name not in included), *by_name]:
        if name in reached:
            continue
        yield by_name[name]
        queue = [name]
        while queue:
            reached.add(current := queue.pop())
            queue += includes[current] - reached


def _find_included_names(name: str, path: Path, names: Mapping[str, Path]) -> set[str]:
    """Return those of `names` that the file `name` includes itself."""
    try:
        return find_included_files(name, read_capped(path, LIMITS.file_bytes), names)
    except EqkinError:
        # The item of the file itself will fail with the reason.
        return set()


def _report_skipped(on_skip: SkipCallback | None, path: Path, why: str) -> None:
    if on_skip is not None:
        on_skip(display_path(path), why)


def _iter_atlas_items() -> Iterator[SourceItem]:
    """Yield the bundled articles; the field of each is its name."""
    for article in list_articles():
        field = article.name.removesuffix(".tex")
        text = article.read_text("utf-8")
        load = partial(_load_article, field, text)
        yield SourceItem(f"atlas:{field}", f"atlas/{article.name}", load=load, digest=hash_parts(text))


def _load_article(field: str, text: str) -> Paper:
    paper = Paper(f"atlas:{field}", text, f"atlas/{field}.tex", lang="en", license="MIT")
    paper.authors = ["The eqkin atlas"]
    paper.fields = [field]
    return paper
