"""`atlas:`, the articles bundled with eqkin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eqkin.atlas import articles
from eqkin.sources.paper import Item, Paper, digest_of


def atlas_items() -> Iterator[Item]:
    """One item an article; its field is its name."""
    for article in articles():
        field = article.name.removesuffix(".tex")
        text = article.read_text("utf-8")
        yield Item(f"atlas:{field}", f"atlas/{article.name}", partial(_load, field, text), digest_of(text))


def _load(field: str, text: str) -> Paper:
    return Paper(
        f"atlas:{field}",
        text,
        f"atlas/{field}.tex",
        authors=["The eqkin atlas"],
        fields=[field],
        lang="en",
        license="MIT",
    )
