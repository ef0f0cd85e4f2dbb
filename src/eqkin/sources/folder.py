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
from eqkin.sources.archive import LookUp, Shard, eprint_item, is_bulk
from eqkin.sources.arxiv_ids import id_of_file
from eqkin.sources.documents import SUFFIXES, document_item
from eqkin.sources.files import OnSkip, failed_item, file_key, head_of, kind_of, read_capped, shown
from eqkin.sources.includes import TEX_SUFFIXES, candidates
from eqkin.sources.paper import Item, Paper
from eqkin.sources.project import included_files, read_project
from eqkin.sources.records import record_items
from eqkin.sources.text import decode

_JUNK = {"node_modules", "__pycache__", "__MACOSX", "venv", "site-packages", "_minted", "build", "dist"}
_JUNK_SUFFIXES = (".egg-info", ".dist-info")
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

    def _path(self, name: object) -> str | None:
        if not isinstance(name, str) or "\0" in name:
            return None
        path = os.path.realpath(os.path.join(self._root, name))
        within = path.startswith(self._root.rstrip(os.sep) + os.sep)
        try:
            return path if within and os.path.isfile(path) else None
        except (OSError, ValueError):
            return None

    def __contains__(self, name: object) -> bool:
        return self._path(name) is not None

    def __getitem__(self, name: str) -> bytes:
        path = self._path(name)
        if path is None:
            raise KeyError(name)
        return read_capped(path, self._limits.file_bytes)

    def __iter__(self) -> Iterator[str]:
        for path in walk(Path(self._root)):
            yield path.relative_to(self._root).as_posix()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def walk(root: Path, on_skip: OnSkip | None = None) -> Iterator[Path]:
    """Files under `root` in a fixed order, without hidden ones, the usual junk folders, and links."""
    stack = [root]
    while stack:
        folder = stack.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            _skip(on_skip, folder, f"cannot be listed ({error.strerror})")
            continue
        below: list[Path] = []
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith(".") or entry.name.endswith(_JUNK_SUFFIXES):
                continue
            if entry.is_symlink():
                _skip(on_skip, path, "symbolic link")
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in _JUNK and not (path / "pyvenv.cfg").exists():
                    below.append(path)
            elif entry.is_file(follow_symlinks=False):
                yield path
        stack += reversed(below)


def folder_items(
    root: Path, limits: Limits = LIMITS, look_up: LookUp | None = None, on_skip: OnSkip | None = None
) -> Iterator[Item | Shard]:
    """Every document under `root`; what cannot be read is an item that fails, never the end of the walk."""
    root = root.resolve()
    tex: list[Path] = []
    for path in walk(root, on_skip):
        low = path.name.lower()
        if low.endswith(TEX_SUFFIXES):
            tex.append(path)
        else:
            yield from _guarded(_other_items(path, low, limits, look_up, on_skip), path)
    yield from _tex_items(root, tex, limits)


def _other_items(
    path: Path, low: str, limits: Limits, look_up: LookUp | None, on_skip: OnSkip | None
) -> Iterator[Item | Shard]:
    if low.endswith(RECORD_SUFFIXES):
        yield from record_items(path, limits)
    elif low.endswith(tuple(SUFFIXES)) and not low.endswith(".py"):
        yield document_item(path, SUFFIXES[os.path.splitext(low)[1]], limits)
    elif low.endswith(_ARCHIVE_SUFFIXES) or id_of_file(path.name):
        kind = kind_of(head_of(path))
        if kind == "pdf":
            _skip(on_skip, path, "PDF only")
        elif kind in ("tar", "gzip", "zip"):
            if is_bulk(path, limits):
                yield Shard(path, limits, look_up, in_folder=True)
            else:
                yield eprint_item(path, limits, look_up)
        elif id_of_file(path.name):
            yield eprint_item(path, limits, look_up)


def _guarded(items: Iterator[Item | Shard], path: Path) -> Iterator[Item | Shard]:
    """`items`, and where they end in an error an item that fails with it."""
    try:
        yield from items
    except EqkinError as error:
        yield failed_item(file_key(path), shown(path), error)


def _tex_items(root: Path, paths: list[Path], limits: Limits) -> Iterator[Item]:
    """One item for each `.tex` file that no other one includes; of files that include each other the first."""
    names = {path.relative_to(root).as_posix(): path for path in paths}
    includes = {name: _included(name, path, names, limits) for name, path in names.items()}
    included = set().union(*includes.values())
    roots = [name for name in names if name not in included]
    reached: set[str] = set()
    for name in [*roots, *names]:
        if name in reached:
            continue
        yield tex_item(names[name], root, limits)
        queue = [name]
        while queue:
            reached.add(current := queue.pop())
            queue += includes[current] - reached


def _included(name: str, path: Path, names: Mapping[str, Path], limits: Limits) -> set[str]:
    """Those of `names` that the file `name` includes itself."""
    try:
        text = decode(read_capped(path, limits.file_bytes))
    except EqkinError:
        return set()  # its own item will fail with the reason
    found: set[str] = set()
    folders = _folders_up(name)
    for include in included_files(text):
        looked_in = tuple(posixpath.join(f, include.folder) for f in folders) if include.folder else folders
        first = next((p for p in candidates(include.file, looked_in) if p in names and p != name), None)
        if first is not None:
            found.add(first)
    return found


def _folders_up(name: str) -> tuple[str, ...]:
    """Folder of a file and those above it, up to the root."""
    folders = [posixpath.dirname(name)]
    while folders[-1]:
        folders.append(posixpath.dirname(folders[-1]))
    return tuple(folders)


def tex_item(path: Path, root: Path, limits: Limits = LIMITS) -> Item:
    """One `.tex` file with what it includes from under `root`; its digest is known only once all of that is loaded."""
    return Item(file_key(path), shown(path), partial(load_tex, str(path), str(root), limits))


def load_tex(path: str, root: str, limits: Limits) -> Paper:
    """The paper whose main file is `path`; raises `BadInput` or `LimitReached`."""
    name = Path(os.path.realpath(path)).relative_to(os.path.realpath(root)).as_posix()
    files = FolderFiles(Path(root), limits)
    if name not in files:
        raise BadInput(f"{shown(path)}: is gone or not a regular file") from FileNotFoundError(errno.ENOENT, path)
    return read_project(files, key=file_key(path), origin=shown(path), main=name, stray=False, limits=limits)


def _skip(on_skip: OnSkip | None, path: Path, why: str) -> None:
    if on_skip is not None:
        on_skip(shown(path), why)
