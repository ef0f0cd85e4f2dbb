from __future__ import annotations

from pathlib import Path

import pytest

from eqkin.api import Library


@pytest.fixture(scope="session")
def atlas_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a library with the atlas, indexed."""
    with Library.open(tmp_path_factory.mktemp("atlas") / "library") as library:
        library.add("atlas:")
        library.open_engine()
        return library.folder
