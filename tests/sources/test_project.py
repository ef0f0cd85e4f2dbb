import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import LimitReached
from eqkin.latex.outline import parse
from eqkin.limits import LIMITS
from eqkin.sources.project import choose_main_file, read_project
from tests.limits import changed_limits
from tests.sources.builders import LONG, check_paper, check_read_or_refused, repeat, squeezed


def read(files, **options):
    raw = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    return read_project(raw, key="k", origin="paper", **options)


def document(body, preamble=""):
    return rf"\documentclass{{article}}{preamble}\begin{{document}}{body}\end{{document}}"


@pytest.mark.parametrize(
    ("files", "main"),
    [
        ({"b.tex": document("x"), "a.tex": r"\section{x}" * 50}, "b.tex"),
        ({"supp.tex": document("x" * 500), "main.tex": document("y")}, "main.tex"),
        ({"one.tex": document(r"\input{z}"), "two.tex": document("y"), "z.tex": "z"}, "one.tex"),
        ({"small.tex": document("y"), "large.tex": document("y" * 100)}, "large.tex"),
        ({"main.tex": document("x"), "real.tex": document("y"), "00README.XXX": "real.tex toplevelfile"}, "real.tex"),
        (
            {
                "main.tex": document("x"),
                "real.tex": document("y"),
                "00README.json": '{"sources": [{"usage": "toplevel", "filename": "real.tex"}, {}]}',
            },
            "real.tex",
        ),
        ({"main.tex": document("x"), "real.tex": document("y"), "00README.json": '{"sources": [3, {}]} '}, "main.tex"),
        ({"main.tex": document("x"), "real.tex": document("y"), "00README.json": "[" * 50_000}, "main.tex"),
        ({"main.tex": "% " + document("x"), "b.tex": document("y")}, "b.tex"),
        ({"fig.tex": document("x" * 99).replace("article", "standalone"), "b.tex": document("y")}, "b.tex"),
        ({"old": r"\documentstyle{article}\begin{document}x\end{document}", "notes.txt": r"\x"}, "old"),
        ({"plain.tex": r"\magnification1200 $$a=b$$ \bye", "macros.tex": r"\def\x{y}" * 90}, "plain.tex"),
    ],
)
def test_choose_main_file_prefers_what_a_person_would(files, main):
    assert choose_main_file({name: text.encode() for name, text in files.items()}, "paper") == main


@pytest.mark.parametrize(
    "command",
    [
        r"\input{part}",
        r"\input{part.tex}",
        r"\input part",
        r"\input part.tex ",
        r'\input{"part"}',
        r"\input {./part}",
        r"\include{part}",
        r"\subfile{part}",
        r"\subfileinclude{part}",
        r"\import{.}{part}",
        r"\import{./}{part.tex}",
        r"\subimport{}{part}",
    ],
)
def test_every_include_command_is_expanded(command):
    text = read({"main.tex": document(f"A {command} B"), "part.tex": "a=b"}).text
    assert squeezed(text).endswith("Aa=bB")


def test_includes_are_searched_next_to_the_main_file_and_the_including_file():
    files = {
        "src/main.tex": document(r"\input{parts/one}\subimport{parts/}{four}"),
        "src/parts/one.tex": r"one \input{parts/two} \input{three} \input{../up}",
        "src/parts/two.tex": "two",
        "src/parts/three.tex": "three",
        "src/parts/four.tex": r"four \input{three}",
        "src/up.tex": "up",
    }
    assert squeezed(read(files).text).endswith("onetwothreeupfourthree")


@pytest.mark.parametrize(
    "body",
    [r"% \input{part}", r"\begin{verbatim}\input{part}\end{verbatim}", r"\verb|\input{part}|", r"\\% \input{part}"],
)
def test_includes_in_comments_and_verbatim_are_ignored(body):
    assert "secret" not in read({"main.tex": document(body + "\n"), "part.tex": "secret"}).text
    assert "found" in read({"main.tex": document(r"50\% \input{part}"), "part.tex": "found"}).text


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../etc/passwd", "~/x", "|ls", "C:/x", r"..\..\x", "a/../../../etc/passwd"]
)
def test_includes_never_lead_out_of_the_source(name):
    paper = read({"main.tex": document(rf"a \input{{{name}}} b")})
    assert "root:" not in paper.text
    assert len(paper.notes) == 1


@pytest.mark.parametrize(
    ("part", "body", "equations"),
    [
        (r"\[a=b\] % that is all", r"\input{part} \[c=d\]", ["a=b", "c=d"]),
        (r"\alpha", r"\[\input{part}x = y\]", ["\\alpha\nx = y"]),
    ],
)
def test_last_line_of_an_included_file_ends_with_the_file(part, body, equations):
    paper = read({"main.tex": document(body), "part.tex": part})
    outline = parse(paper.text, paper.styles, paper.bibliography)
    assert [equation.body.strip() for equation in outline.equations] == equations


def test_missing_includes_and_cycles_are_noted():
    assert read({"main.tex": document(r"\input{gone}")}).notes == ["include 'gone' is missing"]
    paper = read({"main.tex": document(r"\input{a}"), "a.tex": r"A\input{b}", "b.tex": r"B\input{a}\input{main}"})
    assert squeezed(paper.text).endswith("AB")
    assert len(paper.notes) == 2


@pytest.mark.parametrize(
    ("command", "depth", "last"),
    [(r"\input{f%d}\input{f%d}", 20, "x" * 1000), (r"\input{f%d}\input{f%d}", 25, ""), (r"\input{f%d}%%%d", 60, "x")],
    ids=["too large", "too many", "too deep"],
)
@changed_limits(file_bytes=100_000)
def test_includes_stop_at_the_limits(command, depth, last):
    files = {f"f{i}.tex": command % (i + 1, i + 1) for i in range(depth)}
    with pytest.raises(LimitReached):
        read(files | {"main.tex": document(r"\input{f0}"), f"f{depth}.tex": last})


def test_included_document_gives_its_body_and_its_macros():
    part = document("body", r"\newcommand{\own}{o}").replace("article", "standalone")
    paper = read({"main.tex": document(r"\input{part}"), "part.tex": part})
    assert squeezed(paper.text).endswith("body")
    assert r"\own" in paper.styles[0] and r"\own" not in paper.text


def test_text_after_the_end_of_the_document_is_ignored():
    assert "junk" not in read({"main.tex": document("x") + "junk"}).text
    assert "junk" not in read({"main.tex": document(r"\input{a}"), "a.tex": "x \\endinput\njunk"}).text


def test_local_styles_are_found_by_every_command_that_loads_them():
    preamble = r"\usepackage[opt]{amsmath,mine}\input{macros.sty}" + "\n% \\usepackage{unused}\n"
    files = {
        "main.tex": document("x", preamble).replace("{article}", "{own}"),
        "own.cls": r"\def\fromclass{}",
        "mine.sty": r"\RequirePackage{deeper}\input{more.def}",
        "deeper.sty": r"\def\deeper{}\usepackage{mine}",
        "more.def": r"\def\more{}",
        "macros.sty": r"\def\macros{}",
        "unused.sty": r"\def\unused{}",
    }
    styles = "".join(read(files).styles)
    for name in ("fromclass", "deeper", "more", "macros"):
        assert styles.count(rf"\def\{name}") == 1
    assert "unused" not in styles
    old = r"\documentstyle[12pt,mine]{article}\begin{document}x\end{document}"
    assert read({"a.tex": old, "mine.sty": r"\def\x{y}"}).styles == [r"\def\x{y}"]


def test_bibliography_named_like_the_main_file_comes_first():
    files = {"main.tex": document("x"), "main.bbl": "mine", "other.bbl": "other"}
    assert read(files).bibliography == ["mine"]
    del files["main.bbl"]
    assert read(files).bibliography == ["other"]
    assert read(files, main="main.tex", stray=False).bibliography == []


def test_only_cited_entries_of_a_bib_file_are_kept():
    bib = "@article{a, eprint={1706.03762}}\n@book{b,\n title={no}}\n"
    body = r"\cite[see][p. 3]{a,c}\bibliography{refs}"
    (kept,) = read({"main.tex": document(body), "refs.bib": bib}).bibliography
    assert "1706.03762" in kept and "title" not in kept
    (everything,) = read({"main.tex": document(body + r"\nocite{*}"), "refs.bib": bib}).bibliography
    assert everything == bib


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\ufeffé".encode(), "é"),
        ("é".encode("latin-1"), "é"),
        ("é".encode("utf-16"), "é"),
        (b"\x93q\x94", "“q”"),
        (b"a\0b", "ab"),
        (b"a\r\nb\rc", "a\nb\nc"),
        (rb"\usepackage[koi8-r]{inputenc}" + "ж".encode("koi8-r"), r"\usepackage[koi8-r]{inputenc}ж"),
    ],
    ids=["bom", "latin-1", "utf-16", "cp1252", "nul", "line ends", "declared"],
)
def test_text_is_decoded_from_any_encoding(raw, text):
    paper = read({"main.tex": document(r"\input{a}"), "a.tex": raw})
    assert text in paper.text


PIECES = st.sampled_from(
    r"\input{a}¦\input b¦\include{c¦\subimport{a}{b}¦%¦\¦{¦}¦\verb|¦|¦\endinput¦\begin{verbatim}¦\end{verbatim}"
    r"¦\usepackage[x]{a,b}¦\cite{a}¦\bibliography{a,b}¦$x$¦é".split("¦")
    + ["\n", "\0"]
)


@given(
    st.dictionaries(
        st.sampled_from(["a.tex", "b.tex", "c.tex", "a.sty", "a.bib", "b.bbl"]), st.lists(PIECES, max_size=12)
    )
)
@changed_limits(includes=200, file_bytes=100_000)
def test_arbitrary_project_gives_a_sound_paper_or_an_eqkin_error(files):
    texts = {name: "".join(pieces) for name, pieces in files.items()}
    check_read_or_refused(lambda: read(texts), LIMITS.file_bytes)


CITING = [r"\cite", r"\citecite", "cite", r"\cite{", r"\cite[", r"\bibliography{"]
LOADING = [r"\input{", r"\input ", r"\import{", r"\usepackage{", r"\usepackage[", r"\begin{verbatim}", r"\begin"]
SKIPPING = [r"\verb|x|", r"\verb|", r"\verb|x", " ", "%", "\n", "\\def\n"]


@pytest.mark.parametrize("piece", CITING + LOADING + SKIPPING)
@pytest.mark.parametrize("start", ["\\", r"\input{"])
def test_long_repetitive_text_is_read(start, piece):
    check_paper(read({"main.tex": document("")[:-14] + start + repeat(piece)}, main="main.tex"), LONG)


@pytest.mark.parametrize("piece", ['"filename":"a",', '"usage":"toplevel"', "a toplevelfil\n", "\n", " ", "a"])
@pytest.mark.parametrize("name", ["00README.json", "00README.XXX"])
def test_long_repetitive_readme_names_no_main_file(name, piece):
    files = {"a.tex": document("x"), "b.tex": document("y")}
    assert read(files | {name: repeat(piece)}).text == read(files).text


@pytest.mark.parametrize("head", ["\\endinput ", "\\begin{verbatim}\\endinput ", document("")])
def test_large_file_that_is_included_often_is_read_to_its_end_command(head):
    files = {"main.tex": document(r"\input{big} " * 5_000), "big.tex": head + "x y " * 500_000}
    assert "x y" not in read(files, main="main.tex").text
