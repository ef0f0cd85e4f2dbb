"""Papers whose loading fails on the workers of a Ray cluster in real ways."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

from eqkin.sources.paper import Paper, SourceItem
from tests.library.conftest import ARTICLE


def load_article(number: int) -> Paper:
    """Return the article with this number."""
    text = ARTICLE % {"name": f"subject{number}", "number": number}
    return Paper(f"test:{number}", text, f"test {number}")


def make_item(number: int, load: object = load_article, *arguments: object) -> SourceItem:
    """Return the article as an item; `load` is one of the functions of this module."""
    return SourceItem(f"test:{number}", f"test {number}", partial(load, number, *arguments))


def wait_for_go(number: int, folder: str) -> Paper:
    """Note the process and node in the name of a file, and wait until there is a file `go`."""
    import ray

    note = Path(folder, f"{number}.{os.getpid()}.{ray.get_runtime_context().get_node_id()}")
    note.touch()
    end = time.monotonic() + 60
    while not Path(folder, "go").exists() and time.monotonic() < end:
        time.sleep(0.05)
    return load_article(number)


def crash(number: int) -> Paper:
    """End the process as a fault in native code does."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return load_article(number)


def fill_disk(number: int, folder: str) -> Paper:
    """Write to a full disk on the node that tries first, and on every node as long as there is a file `all`."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    first = Path(folder, "first")
    try:
        with first.open("x") as file:
            file.write(node)
    except FileExistsError:
        pass
    if first.read_text() in ("", node) or Path(folder, "all").exists():
        with open("/dev/full", "wb", buffering=0) as disk:
            disk.write(b"x")
    return load_article(number)


def fill_other_disks(number: int, node: str) -> Paper:
    """Write to a full disk on every node but one."""
    import ray

    if ray.get_runtime_context().get_node_id() != node:
        with open("/dev/full", "wb", buffering=0) as disk:
            disk.write(b"x")
    return load_article(number)
