"""How much of the package one search runs: a stranger should be able to walk the whole path."""

import sys
from pathlib import Path

import eqkin
from eqkin import Library

BAYES = r"P(A|B)=\frac{P(B|A)P(A)}{P(B)}"
PACKAGE = Path(eqkin.__file__).parent
MAX_FUNCTIONS = 174
MAX_FILES = 33


def test_one_search_runs_few_functions_in_few_files(atlas_library):
    ran = set()

    def notice(frame, event, _):
        code = frame.f_code
        if event == "call" and Path(code.co_filename).is_relative_to(PACKAGE) and not code.co_name.startswith("<"):
            ran.add((code.co_filename, code.co_qualname))

    with Library.open(atlas_library) as library:
        library.search(BAYES + " ", k=10, explain=True)
        sys.setprofile(notice)
        try:
            assert library.search(BAYES, k=10, explain=True).hits
        finally:
            sys.setprofile(None)
    listed = "\n".join(f"{Path(file).relative_to(PACKAGE)}: {name}" for file, name in sorted(ran))
    assert len(ran) <= MAX_FUNCTIONS, listed
    assert len({file for file, _ in ran}) <= MAX_FILES, listed
