"""A folder of papers, notes, notebooks, pages and archives: one item for each document in it."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from eqkin.errors import BadInput, EqkinError
from eqkin.limits import LIMITS, Limits
from eqkin.sources.archive import MetadataLookup, Shard, is_bulk_tar, make_eprint_item
from eqkin.sources.arxiv_ids import parse_file_name
from eqkin.sources.documents import DOCUMENT_SUFFIXES, make_document_item
from eqkin.sources.files import (
    SkipCallback,
    detect_kind,
    display_path,
    make_failed_item,
    make_file_key,
    read_capped,
    read_head,
)
from eqkin.sources.includes import TEX_SUFFIXES, list_candidate_paths
from eqkin.sources.paper import Paper, SourceItem
from eqkin.sources.project import list_includes, read_project
from eqkin.sources.records import iter_record_items
from eqkin.sources.text import decode_text

_IGNORED_FOLDERS = {"node_modules", "__pycache__", "__MACOSX", "venv", "site-packages", "_minted", "build", "dist"}
_IGNORED_FOLDER_SUFFIXES = (".egg-info", ".dist-info")
_ARCHIVE_SUFFIXES = (".tar", ".gz", ".tgz", ".zip")
RECORD_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz", ".ndjson")


class FolderFiles(Mapping[str, bytes]):
    """The files under `root` as a mapping from relative path to bytes, opened only when looked up.

    What is missing, not a regular file, or leads out of `root` (also through a link) is not in it. A file above
    `limits.file_bytes` raises `LimitReached` when it is looked up.
    """

    def __init__(self, root: Path, limits: Limits = LIMITS) -> None:
        self._root = os.path.realpath(root)
        self._limits = limits

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
        return read_capped(path, self._limits.file_bytes)

    def __iter__(self) -> Iterator[str]:
        for path in walk_folder(Path(self._root)):
            yield path.relative_to(self._root).as_posix()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def walk_folder(root: Path, on_skip: SkipCallback | None = None) -> Iterator[Path]:
    """Files under `root` in a fixed order, without hidden ones, the usual junk folders, and links."""
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


def iter_folder_items(
    root: Path, limits: Limits = LIMITS, look_up: MetadataLookup | None = None, on_skip: SkipCallback | None = None
) -> Iterator[SourceItem | Shard]:
    """Every document under `root`; what cannot be read is an item that fails, never the end of the walk."""
    root = root.resolve()
    tex: list[Path] = []
    for path in walk_folder(root, on_skip):
        low = path.name.lower()
        if low.endswith(TEX_SUFFIXES):
            tex.append(path)
        else:
            yield from _catch_errors(_iter_file_items(path, low, limits, look_up, on_skip), path)
    yield from _iter_tex_items(root, tex, limits)


def _iter_file_items(
    path: Path, low: str, limits: Limits, look_up: MetadataLookup | None, on_skip: SkipCallback | None
) -> Iterator[SourceItem | Shard]:
    if low.endswith(RECORD_SUFFIXES):
        yield from iter_record_items(path, limits)
    elif low.endswith(tuple(DOCUMENT_SUFFIXES)) and not low.endswith(".py"):
        yield make_document_item(path, DOCUMENT_SUFFIXES[os.path.splitext(low)[1]], limits)
    elif low.endswith(_ARCHIVE_SUFFIXES) or parse_file_name(path.name):
        kind = detect_kind(read_head(path))
        if kind == "pdf":
            _report_skipped(on_skip, path, "PDF only")
        elif kind in ("tar", "gzip", "zip"):
            if is_bulk_tar(path, limits):
                yield Shard(path, limits, look_up, in_folder=True)
            else:
                yield make_eprint_item(path, limits, look_up)
        elif parse_file_name(path.name):
            yield make_eprint_item(path, limits, look_up)


def _catch_errors(items: Iterator[SourceItem | Shard], path: Path) -> Iterator[SourceItem | Shard]:
    """`items`, and where they end in an error an item that fails with it."""
    try:
        yield from items
    except EqkinError as error:
        yield make_failed_item(make_file_key(path), display_path(path), error)


def _iter_tex_items(root: Path, paths: list[Path], limits: Limits) -> Iterator[SourceItem]:
    """One item for each `.tex` file that no other one includes; of files that include each other the first."""
    names = {path.relative_to(root).as_posix(): path for path in paths}
    includes = {name: _find_included_names(name, path, names, limits) for name, path in names.items()}
    included = set().union(*includes.values())
    roots = [name for name in names if name not in included]
    reached: set[str] = set()
    for name in [*roots, *names]:
        if name in reached:
            continue
        yield make_tex_item(names[name], root, limits)
        queue = [name]
        while queue:
            reached.add(current := queue.pop())
            queue += includes[current] - reached


def _find_included_names(name: str, path: Path, names: Mapping[str, Path], limits: Limits) -> set[str]:
    """Those of `names` that the file `name` includes itself."""
    try:
        text = decode_text(read_capped(path, limits.file_bytes))
    except EqkinError:
        return set()  # its own item will fail with the reason
    found: set[str] = set()
    folders = _list_parent_folders(name)
    for include in list_includes(text):
        looked_in = tuple(posixpath.join(f, include.folder) for f in folders) if include.folder else folders
        first = next((p for p in list_candidate_paths(include.file, looked_in) if p in names and p != name), None)
        if first is not None:
            found.add(first)
    return found


def _list_parent_folders(name: str) -> tuple[str, ...]:
    """Folder of a file and those above it, up to the root."""
    folders = [posixpath.dirname(name)]
    while folders[-1]:
        folders.append(posixpath.dirname(folders[-1]))
    return tuple(folders)


def make_tex_item(path: Path, root: Path, limits: Limits = LIMITS) -> SourceItem:
    """One `.tex` file with what it includes from under `root`; its digest is known only once all of that is loaded."""
    return SourceItem(make_file_key(path), display_path(path), partial(load_tex, str(path), str(root), limits))


def load_tex(path: str, root: str, limits: Limits) -> Paper:
    """The paper whose main file is `path`; raises `BadInput` or `LimitReached`."""
    name = Path(os.path.realpath(path)).relative_to(os.path.realpath(root)).as_posix()
    files = FolderFiles(Path(root), limits)
    if name not in files:
        raise BadInput(f"{display_path(path)}: is gone or not a regular file") from FileNotFoundError(
            errno.ENOENT, path
        )
    return read_project(
        files, key=make_file_key(path), origin=display_path(path), main=name, stray=False, limits=limits
    )


def _report_skipped(on_skip: SkipCallback | None, path: Path, why: str) -> None:
    if on_skip is not None:
        on_skip(display_path(path), why)
