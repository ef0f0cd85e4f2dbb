"""How the tests run.

Hypothesis tries the same examples every time where CI runs, more with EQKIN_THOROUGH=1, random ones otherwise. Numbers
are crunched with one thread: tests run in several processes, and threads that wait for each other on a busy core make
torch twenty times slower.
"""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=3_000, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "thorough" if os.environ.get("EQKIN_THOROUGH") else "default")
