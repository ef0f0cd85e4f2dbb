"""Configuration of all tests.

Hypothesis tries the same examples every time in continuous integration, else a few random ones, many with
EQKIN_THOROUGH=1.
Numerical libraries use one thread: tests run in several processes, and threads that wait for each other on a busy core
make torch twenty times slower.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import settings

if TYPE_CHECKING:
    from eqkin import Encoder

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ci", derandomize=True, max_examples=20, deadline=None)
settings.register_profile("thorough", max_examples=3_000, deadline=None)
settings.register_profile("default", max_examples=20, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "thorough" if os.environ.get("EQKIN_THOROUGH") else "default")

COMPILED_MODULES = (
    "eqkin.encoder.cpu_kernels",
    "eqkin.index.kernels",
    "eqkin.formulas.kernels",
)
# What tests need besides the extra `test`: without it, they are left out. Single tests that need more skip themselves.
NEEDED_BY = {
    "torch": ("learning", "research", "evaluation", "benchmarks", "encoder"),
    "ray": ("cluster/test_ray.py",),
    "pymilvus": ("cluster/test_milvus.py",),
}
MISSING = [module for module in NEEDED_BY if find_spec(module) is None]
collect_ignore = [name for module in MISSING for name in NEEDED_BY[module]]
LONG_FILES = (  # begin first, so that no process waits for another one at the end
    "tests/cluster/",
    "tests/learning/",
    "tests/research/",
    "tests/index/test_durability.py",
    "tests/library/test_durability.py",
    "tests/benchmarks/",
    "tests/encoder/",
    "tests/test_documentation.py",
    "tests/web/",
)


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """Load the bundled network."""
    from eqkin import Encoder

    return Encoder.load()


@pytest.fixture(scope="session")
def atlas_library(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder, request: pytest.FixtureRequest) -> Path:
    """Build a library of the atlas with its index, once for all processes of a run; for reading, or to be copied."""
    from eqkin import Library
    from eqkin.index.update import update_index

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base  # all processes of xdist have this one
    with FileLock(shared / "atlas.lock"):
        if not (shared / "atlas").exists():
            with Library.open(shared / "atlas.part", create=True) as library:
                library.add("atlas:", formulas="displays")
                update_index(library, encoder)
            (shared / "atlas.part").rename(shared / "atlas")
    return shared / "atlas"


@pytest.fixture(scope="session")
def unindexed_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a library of four articles of the atlas without an index; to be copied."""
    from eqkin import Library
    from eqkin.atlas import list_articles

    folder = tmp_path_factory.mktemp("unindexed")
    (folder / "articles").mkdir()
    for article in list(list_articles())[:4]:
        (folder / "articles" / article.name).write_bytes(article.read_bytes())
    with Library.open(folder / "library", create=True) as library:
        library.add(folder / "articles", formulas="displays")
        return library.folder


@pytest.fixture(scope="module")
def fast_neighbours() -> Iterator[None]:
    """Search structural neighbours in an eighth of the dimensions: less accurate, but five times faster."""
    from eqkin.learning import sampling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "PROJECTION_DIMENSIONS", 64)
        yield


def pytest_report_header():
    """Say which tests are left out because something is not installed."""
    return [f"without {module}: no tests in {', '.join(NEEDED_BY[module])}" for module in MISSING]


def pytest_configure(config):
    """Compile the compiled loops once, if several processes would do so: they load them from the cache afterwards."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        for name in COMPILED_MODULES:
            import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exempt imported modules from garbage collection: with torch among them, each pass takes a third of a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    """Put long files first."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each free process a whole file, so that its fixtures are made once."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # keep the order of the files
    return Scheduling(config, log)
