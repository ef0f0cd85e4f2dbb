"""Whole answers of searches of all kinds, which no part of the ranking can change unnoticed.

After a change that is meant, `EQKIN_RECORD=1 pytest tests/search/test_answers.py` writes them again: read what differs.
"""

import json
import os
from pathlib import Path

import pytest

from eqkin.search import Filters

_ANSWERS = Path(__file__).with_name("answers.json")
_SEARCHES = {
    "part of a formula": (r"\sqrt{b^2 - 4ac}", {}),
    "renamed": (r"P(u \mid v) = \frac{P(v \mid u) P(u)}{P(v)}", {}),
    "solved for another letter": (r"c^2 = \frac{E}{m}", {}),
    "long": (r"i \hbar \frac{\partial}{\partial t} \psi = -\frac{\hbar^2}{2m} \nabla^2 \psi + V \psi", {}),
    "one letter": ("x", {}),
    "typed": ("sum_(i=1)^n x_i / n", {}),
    "name": ("Bayes' theorem", {}),
    "words": ("conservation of energy", {}),
    "words of a heading": ("drum membranes of a quokka", {}),
    "words and formula": ("Ising model -J sum_(i,j) s_i s_j", {}),
    "formula with text": ("E = m", {"text": "relativistic energy"}),
    "wildcards": ("?a^2 + ?b^2 = ?c^2", {}),
    "filtered": (r"P(a|b) = c", {"filters": Filters(papers=("atlas:statistics", "atlas:probability"))}),
    "not folded": (r"\Box \Phi_{\mu} = \kappa \Phi_{\mu}", {"fold": False, "group": False}),
}


def describe(results):
    return [
        [hit.equation.id, hit.relation, *(round(score, 3) for score in (hit.score, hit.similarity, hit.text_score))]
        for hit in results.hits
    ]


@pytest.fixture(scope="module")
def answers(engine):
    """The best hits of each search."""
    answers = {name: describe(engine.search(query, k=9, **options)) for name, (query, options) in _SEARCHES.items()}
    if os.environ.get("EQKIN_RECORD"):
        lines = [f"{json.dumps(name)}: {json.dumps(answer[:4])}" for name, answer in answers.items()]
        _ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return answers


@pytest.mark.parametrize("name", _SEARCHES)
def test_answers_are_those_that_were_recorded(answers, name):
    recorded = json.loads(_ANSWERS.read_text("utf-8"))[name]
    assert answers[name][0][0] == recorded[0][0]
    # Another machine may swap two hits whose scores are nearly the same.
    found = {equation: about for equation, *about in answers[name]}
    for equation, relation, *scores in recorded:
        assert found[equation][0] == relation
        assert found[equation][1:] == pytest.approx(scores, abs=0.004)
