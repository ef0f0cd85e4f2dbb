"""The empty page: what this is, and formulas to begin with."""

from __future__ import annotations

from urllib.parse import quote

from eqkin.markup import SafeHtml, tag
from eqkin.search.engine import SearchEngine
from eqkin.web.layout import join_items
from eqkin.web.result_view import get_search_url

_UNQUOTED_CHARS = "!*'()"  # what encodeURIComponent leaves as it is, besides letters and digits
EXAMPLES = {
    "Bayes' law": r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "Ising model": r"E = -\sum_{i<j} J_{ij} s_i s_j",
    "Heat equation": r"\frac{\partial u}{\partial t} = \alpha \nabla^2 u",
    "Entropy": r"H = -\sum_i p_i \log p_i",
    "Fourier transform": r"\hat f(\omega) = \int_{-\infty}^{\infty} f(t)\, e^{-i\omega t}\, dt",
    "Boltzmann weights": r"p_i = \frac{e^{-E_i/kT}}{\sum_j e^{-E_j/kT}}",
    "Logistic growth": r"\frac{dN}{dt} = r N \left(1 - \frac{N}{K}\right)",
    "Gradient descent": r"x_{t+1} = x_t - \eta \nabla f(x_t)",
    "Euler-Lagrange equation": r"\frac{d}{dt} \frac{\partial L}{\partial \dot q} = \frac{\partial L}{\partial q}",
    "Cauchy-Schwarz inequality": r"|\langle x, y \rangle|^2 \le \langle x, x \rangle \langle y, y \rangle",
    "Commutator": r"[\hat x, \hat p] = i \hbar",
    "With wildcards": r"\frac{?a}{?a + ?b}",
}


def render_example_cards(engine: SearchEngine) -> list[SafeHtml]:
    """The examples, each a link to its results."""
    cards = []
    for name, latex in EXAMPLES.items():
        mathml = engine.preview(latex).mathml
        link = tag("a", tag("span", name, class_="name"), SafeHtml(mathml), href=get_search_url(latex), data_swap=True)
        cards.append(tag("li", link))
    return cards


def render_home(engine: SearchEngine, cards: list[SafeHtml]) -> SafeHtml:
    """The body of the empty page."""
    fields, _ = engine.count_facets()
    chips = [
        tag("a", name, tag("span", f" {count:,}", class_="quiet"), href="/map#" + quote(name, safe=_UNQUOTED_CHARS))
        for name, count in fields.items()
    ]
    lead = tag(
        "p",
        "Give it a formula; it finds formulas that say something similar, in whatever notation or field, "
        "and the papers they stand in.",
        class_="lead",
    )
    by_field = tag("section", tag("h2", "In this library"), tag("p", join_items(chips[:40])), class_="library")
    return tag(
        "div",
        tag("h1", "Find the kin of an equation"),
        lead,
        tag("h2", "Try one of these"),
        tag("ul", cards, class_="examples"),
        by_field if chips else tag("p", "This library is empty: add papers with ", tag("code", "eqkin add PATH"), "."),
        class_="home",
    )
