from __future__ import annotations

import pytest

from eqkin.api import Library
from eqkin.training.data import Corpus


@pytest.fixture(scope="session")
def atlas_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The trees of the atlas: 28 articles, each a work of its own."""
    with Library.open(tmp_path_factory.mktemp("atlas") / "library", create=True) as library:
        library.add("atlas:")
        return Corpus.from_library(library)
