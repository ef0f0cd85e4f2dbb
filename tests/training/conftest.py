from __future__ import annotations

from collections.abc import Iterator

import pytest

from eqkin.api import Library
from eqkin.training.data import Corpus


@pytest.fixture(scope="session")
def atlas_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The trees of the atlas: 28 articles, each a work of its own."""
    with Library.open(tmp_path_factory.mktemp("atlas") / "library", create=True) as library:
        library.add("atlas:")
        return Corpus.from_library(library)


@pytest.fixture(scope="module")
def fast_neighbours() -> Iterator[None]:
    """Search structural neighbours in an eighth of the dimensions: less accurate, but five times faster."""
    from eqkin.training import sampling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "PROJECTION_DIMENSIONS", 64)
        yield
