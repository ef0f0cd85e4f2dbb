import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.sources.notebook import read_notebook
from tests.sources.builders import check_read_or_refused, squeezed


def read(book):
    raw = book if isinstance(book, bytes) else json.dumps(book).encode()
    return read_notebook(raw, "k", "o")


def test_markdown_is_kept_code_dropped_and_latex_outputs_become_equations():
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "$$a=b$$"]},
        {
            "cell_type": "code",
            "source": "x = '$$no$$'",
            "outputs": [
                {
                    "output_type": "execute_result",
                    "data": {"text/latex": ["$\\displaystyle c", "=d$"], "text/plain": "no"},
                },
                {"output_type": "stream", "text": "no"},
                {"output_type": "display_data", "data": {"text/latex": "\\begin{equation}e=f\\end{equation}"}},
            ],
        },
        {"cell_type": "raw", "source": "no", "metadata": {}},
        {"cell_type": "markdown", "source": "\ud800\0"},
        {"cell_type": "raw", "source": "$$g=h$$", "metadata": {"raw_mimetype": "text/latex"}},
    ]
    paper = read({"nbformat": 4, "metadata": {}, "cells": cells})
    assert (paper.kind, paper.title) == ("ipynb", "Title")
    expected = r"\section{Title}\[a=b\]\[c=d\]\begin{equation}e=f\end{equation}$$g=h$$"
    assert squeezed(paper.text) == expected


def test_notebook_of_format_3_is_read():
    cells = [
        {"cell_type": "heading", "level": 2, "source": "50% rule"},
        {"cell_type": "markdown", "source": "$a$"},
        {"cell_type": "code", "input": "no", "outputs": [{"output_type": "pyout", "latex": ["$$c=d$$"]}]},
    ]
    paper = read({"nbformat": 3, "worksheets": [{"cells": cells}]})
    assert squeezed(paper.text) == r"\subsection{50\%rule}$a$\[c=d\]"


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"{", b'{"cells": 3}', b"[" * 100_000, b"\xff\xfe\x00"])
def test_other_json_than_a_notebook_is_bad_input(raw):
    with pytest.raises(BadInput):
        read(raw)


ANY = st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"cell_type": st.sampled_from(["markdown", "code", "raw", "heading", 3])},
            optional={"source": ANY, "outputs": ANY, "metadata": ANY, "level": ANY},
        )
        | ANY,
        max_size=4,
    )
)
def test_arbitrary_cells_give_a_sound_paper_or_an_eqkin_error(cells):
    book = {"cells": cells, "metadata": cells}
    check_read_or_refused(lambda: read(book), len(json.dumps(book)))
