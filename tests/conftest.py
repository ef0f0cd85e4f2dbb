"""How the tests run.

Hypothesis tries the same examples every time where CI runs, more with EQKIN_THOROUGH=1, random ones otherwise. Numbers
are crunched with one thread: tests run in several processes, and threads that wait for each other on a busy core make
torch twenty times slower. Tests that share a server or a cluster run in the same process, which starts it once.
"""

import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=3_000, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "thorough" if os.environ.get("EQKIN_THOROUGH") else "default")

_TOGETHER = {
    "tests/backends/milvus/": "milvus",
    "tests/search/test_stores.py": "milvus",
    "tests/executors/test_ray": "ray",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One test at a time to whoever is free, but those that belong together to the same process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((name for start, name in _TOGETHER.items() if nodeid.startswith(start)), nodeid)

    return Scheduling(config, log)
