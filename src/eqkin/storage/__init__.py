"""Storage that knows nothing of equations: atomic files, locks, checksummed JSON and append-only segment files."""

from eqkin.storage.files import (
    WriterLock,
    delete_unused_files,
    find_unknown_files,
    format_checked_json,
    hash_file,
    is_process_running,
    load_checked_json,
    make_folder,
    parse_checked_json,
    read_file,
    replace_file,
    sync_folder,
    write_atomically,
    write_file,
    write_stream,
)

__all__ = [
    "WriterLock",
    "delete_unused_files",
    "find_unknown_files",
    "format_checked_json",
    "hash_file",
    "is_process_running",
    "load_checked_json",
    "make_folder",
    "parse_checked_json",
    "read_file",
    "replace_file",
    "sync_folder",
    "write_atomically",
    "write_file",
    "write_stream",
]
