"""`atlas:`, the articles bundled with eqkin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eqkin.atlas import list_articles
from eqkin.sources.paper import Paper, SourceItem, hash_parts


def iter_atlas_items() -> Iterator[SourceItem]:
    """One item an article; its field is its name."""
    for article in list_articles():
        field = article.name.removesuffix(".tex")
        text = article.read_text("utf-8")
        yield SourceItem(
            f"atlas:{field}", f"atlas/{article.name}", partial(_load_article, field, text), hash_parts(text)
        )


def _load_article(field: str, text: str) -> Paper:
    return Paper(
        f"atlas:{field}",
        text,
        f"atlas/{field}.tex",
        authors=["The eqkin atlas"],
        fields=[field],
        lang="en",
        license="MIT",
    )
