from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library
from eqkin.learning.data import Corpus


@pytest.fixture(scope="session")
def atlas_corpus(atlas_library: Path) -> Corpus:
    """The trees of the atlas: 28 articles, each a work of its own."""
    with Library.open(atlas_library) as library:
        return Corpus.from_library(library)


@pytest.fixture(scope="session")
def corpus(atlas_corpus: Corpus) -> Corpus:
    """The trees of eight articles of the atlas."""
    return atlas_corpus.select(np.arange(8))
