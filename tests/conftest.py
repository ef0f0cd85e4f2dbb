"""Configuration of all tests.

Hypothesis tries the same examples every time in continuous integration, more with EQKIN_THOROUGH=1, random ones otherwise.
Numerical libraries use one thread: tests run in several processes, and threads that wait for each other on a busy core
make torch twenty times slower. Tests that share a server or a cluster run in one process, which starts it once.
"""

import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=3_000, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "thorough" if os.environ.get("EQKIN_THOROUGH") else "default")

SHARED_SERVERS = {  # prefix of a test's id -> name of the process's group
    "tests/backends/milvus/": "milvus",
    "tests/search/test_stores.py": "milvus",
    "tests/executors/test_ray": "ray",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each free process one test at a time, but tests that share a server to the same process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((name for start, name in SHARED_SERVERS.items() if nodeid.startswith(start)), nodeid)

    return Scheduling(config, log)
