import json

import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.published import STUDY_QUERIES
from eqkin.evaluation.sets.queries import StudyQuery, compute_queries_digest, load_queries, read_query_formulas

QUERY = {"id": "bayes", "field": "probability", "latex": "P(A|B)", "keywords": ["bayes"]}


@pytest.fixture
def written(tmp_path):
    def write(entries):
        path = tmp_path / "queries.json"
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
        return path

    return write


def test_bundled_queries_are_many_from_many_fields():
    queries = load_queries()
    assert len(queries) >= 70
    assert len({query.field for query in queries}) >= 20
    assert len({query.latex for query in queries}) == len(queries)


def test_every_row_of_the_papers_table_is_there():
    ours = [query for query in load_queries() if query.paper_keywords]
    assert len(ours) == len(STUDY_QUERIES) == 22
    for row in STUDY_QUERIES:
        printed = [word.replace("distr.", "distribution").replace("prog.", "programming")
                   for word in row.title.split(", ") if word not in ("...", "erm", "lima")]  # fmt: skip
        assert [query for query in ours if set(printed) <= set(query.keywords)], row.title


def test_every_formula_can_be_read():
    queries = load_queries()
    read = read_query_formulas(queries)
    assert len(read) == len(queries)
    assert list(read.latex) == [query.latex for query in queries]


def test_a_file_of_ones_own_is_read(written):
    assert load_queries(written([QUERY])) == [StudyQuery("bayes", "probability", "P(A|B)", ("bayes",))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keywords": []}, '"keywords" is missing'),
        ({"keywords": "bayes"}, '"keywords" is missing'),
        ({"keywords": ["erm"]}, "at least 4 characters"),
        ({"keywords": [17]}, "at least 4 characters"),
        ({"keywords": ["Bayes"]}, "'bayes', write it so"),
        ({"keywords": ["two  spaces"]}, "'two spaces'"),
        ({"latex": ""}, '"latex" is missing'),
        ({"paper_keywords": "yes"}, "true or false"),
        ({"keyword": ["bayes"]}, "unknown: keyword"),
    ],
)
def test_what_is_wrong_with_an_entry_is_told(written, change, words):
    with pytest.raises(BadInput, match="query 2") as caught:
        load_queries(written([QUERY, QUERY | {"id": "other"} | change]))
    assert words in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{}", "[1]", "nonsense", '["text"]'])
def test_what_is_no_list_of_queries_is_refused(written, content):
    with pytest.raises(BadInput, match=r"queries\.json"):
        load_queries(written(content))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        load_queries(tmp_path / "none.json")


def test_two_queries_of_one_name_are_refused(written):
    with pytest.raises(BadInput, match="a second one with the id 'bayes'"):
        load_queries(written([QUERY, QUERY]))


def test_an_unreadable_formula_is_named():
    with pytest.raises(BadInput, match="frac"):
        read_query_formulas([StudyQuery("a", "b", r"\frac{", ("cccc",))])


def test_the_digest_depends_on_formulas_and_keywords(written):
    digests = {
        compute_queries_digest(load_queries(written([QUERY | change])))
        for change in ({}, {"latex": "P(B|A)"}, {"keywords": ["bayes' rule"]})
    }
    assert len(digests) == 3


def test_a_title_names_the_first_keywords():
    assert StudyQuery("a", "b", "c", ("one", "two")).title == "one, two"
    assert StudyQuery("a", "b", "c", ("one", "two", "three")).title == "one, two, ..."
