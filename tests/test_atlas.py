"""The bundled atlas: large enough, named throughout, correct in form, and its groups refer to equations that exist."""

from collections import Counter
from functools import cache

from eqkin.atlas import list_articles, load_equation_groups
from eqkin.latex.outline import Document, parse
from eqkin.library.parsing import convert_document


@cache
def _documents() -> dict[str, Document]:
    return {article.name.removesuffix(".tex"): parse(article.read_text("utf-8")) for article in list_articles()}


def test_atlas_has_many_fields_and_equations() -> None:
    assert len(_documents()) >= 20
    assert sum(len(document.equations) for document in _documents().values()) >= 600


def test_every_equation_has_a_unique_label_and_a_section_with_prose() -> None:
    for field, document in _documents().items():
        labels = [equation.label for equation in document.equations]
        assert all(labels), field
        assert len(set(labels)) == len(labels), field
        assert len(document.sections) >= 5, field
        for equation in document.equations:
            section = document.sections[equation.section]
            assert section.title, (field, equation.label)
            assert len(section.text) > 100, (field, equation.label)


def test_every_equation_converts_without_loss() -> None:
    for field, document in _documents().items():
        records, _, _ = convert_document(document)
        assert {(record.status, record.repaired) for record in records} == {("converted", False)}, field


def test_groups_of_related_equations_span_fields_and_name_existing_equations_once() -> None:
    groups = load_equation_groups()
    known = {f"{field}:{equation.label}" for field, document in _documents().items() for equation in document.equations}
    members = Counter(member for group in groups for member in group.equations)
    assert len(groups) >= 60
    assert set(members) <= known
    assert max(members.values()) == 1
    for group in groups:
        assert len(group.equations) >= 3, group.id
        assert len({member.split(":")[0] for member in group.equations}) >= 2, group.id
        assert group.name and group.idea
