"""How hypothesis searches: the same examples every time where CI runs, more with EQKIN_THOROUGH=1, random otherwise."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=3_000, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "thorough" if os.environ.get("EQKIN_THOROUGH") else "default")
