import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.judged import JudgedSet

ARQMATH_TOPICS = """<?xml version="1.0" encoding="utf-8"?><Topics>
<Topic number="B.1"><Formula_Id>q_1</Formula_Id><Latex>a+b=c</Latex><Title>Why?</Title>
<Question>&lt;p&gt;</Question></Topic>
<Topic number="B.2"><Formula_Id>q_2</Formula_Id><Latex>$\\frac{x}{y}$</Latex><Title>Not judged</Title></Topic>
</Topics>"""
ARQMATH_TABLE = """id\tpost_id\tthread_id\ttype\tcomment_id\told_visual_id\tvisual_id\tissue\tformula
10\t1\t1\tquestion\t\t7\t70\t\tu+v=w
11\t1\t1\tquestion\t\t7\t70\t\tu + v = w
12\t1\t1\tanswer\t\t8\t80\t\t"\\text{a ""quote""}"
13\t1\t1\tanswer\t\t9\t90\t\tnot judged
"""
NTCIR_TOPICS = """<topics xmlns="http://ntcir-math.nii.ac.jp/" xmlns:m="http://www.w3.org/1998/Math/MathML">
<topic><num>NTCIR12-MathWiki-1</num><query><formula id="f.0"><m:math><m:semantics><m:mi>a</m:mi>
<m:annotation encoding="application/x-tex">a+b=c</m:annotation></m:semantics></m:math></formula></query></topic>
</topics>"""
NTCIR_ARTICLE = """<html><math id="Sum:0" alttext="u+v=w"><mi>u</mi></math> and
<math id="Sum:1"><semantics><mi>x</mi><annotation encoding="application/x-tex">x &lt; y</annotation></semantics></math>
</html>"""


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return JudgedSet.read(folder)


def test_arqmath_is_read_as_distributed_with_one_formula_for_those_that_look_the_same(tmp_path):
    qrels = "B.1\t0\t70\t3\nB.1\t0\t80\t0\n"
    files = {"Topics_Task2_2022_V0.1.xml": ARQMATH_TOPICS, "latex_representation_v3/1.tsv": ARQMATH_TABLE}
    judged = write(tmp_path, files | {"qrel_task2_2022_official.tsv": qrels})
    assert judged.topics.names == ["B.1"] and judged.topics.formulas.latex == ["a+b=c"]
    assert judged.formulas.names == ["70", "80"]
    assert judged.formulas.formulas.latex == ["u+v=w", '\\text{a "quote"}']
    assert judged.qrels == {"B.1": {"70": 3, "80": 0}}


def test_ntcir_is_read_as_distributed(tmp_path):
    qrels = "NTCIR12-MathWiki-1 xxx Sum:0 4\nNTCIR12-MathWiki-1 xxx Sum:1 0\n"
    judged = write(tmp_path, {"topics.xml": NTCIR_TOPICS, "a/b.html": NTCIR_ARTICLE, "MathWiki-qrels_judge.dat": qrels})
    assert judged.topics.names == ["NTCIR12-MathWiki-1"] and judged.topics.formulas.latex == ["a+b=c"]
    assert dict(zip(judged.formulas.names, judged.formulas.formulas.latex, strict=True)) == {
        "Sum:0": "u+v=w",
        "Sum:1": "x < y",
    }


def test_two_years_in_one_folder_and_missing_formulas_are_refused(tmp_path):
    files = {"Topics_1.xml": ARQMATH_TOPICS, "Topics_2.xml": ARQMATH_TOPICS, "qrel.tsv": "B.1\t0\t70\t3\n"}
    with pytest.raises(BadInput, match="several files of topics"):
        write(tmp_path / "two", files)
    with pytest.raises(BadInput, match="none of the judged formulas"):
        write(tmp_path / "none", {"Topics_1.xml": ARQMATH_TOPICS, "qrel.tsv": "B.1\t0\t70\t3\n"})
