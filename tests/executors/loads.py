"""Papers whose reading misbehaves in a real way on the workers of a Ray cluster; but for that, they are alike."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

from eqkin.sources.paper import Paper, SourceItem
from tests.library.conftest import ARTICLE


def article(number: int) -> Paper:
    """The article with this number."""
    text = ARTICLE % {"name": f"subject{number}", "number": number}
    return Paper(f"test:{number}", text, f"test {number}")


def item(number: int, load: object = article, *arguments: object) -> SourceItem:
    """The article as an item; `load` is one of the functions here."""
    return SourceItem(f"test:{number}", f"test {number}", partial(load, number, *arguments))


def waiting(number: int, folder: str) -> Paper:
    """Say in a file which process on which node this is, and wait until there is a file `go`."""
    import ray

    note = Path(folder, f"{number}.{os.getpid()}.{ray.get_runtime_context().get_node_id()}")
    note.touch()
    end = time.monotonic() + 60
    while not Path(folder, "go").exists() and time.monotonic() < end:
        time.sleep(0.05)
    return article(number)


def crashing(number: int) -> Paper:
    """End the process as a fault in native code does."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return article(number)


def full_disk(number: int, folder: str) -> Paper:
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
    return article(number)
