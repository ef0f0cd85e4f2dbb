"""`python -m benchmarks grow` and `scale` at tiny sizes: every step is a real command."""

from pathlib import Path

from benchmarks.grow import draw_permutation
from eqkin.latex.outline import parse
from eqkin.sources.readers import open_source
from tests.benchmarks.running import run, run_benchmark


def read_formulas(source: str) -> list[str]:
    return [
        equation.body
        for item in open_source(source)
        for paper in [item.load()]
        for equation in parse(paper.text).equations
    ]


def test_grown_papers_have_new_equations(tmp_path: Path) -> None:
    facts = run_benchmark("grow", "atlas:", "-n", 600, "-o", tmp_path / "large.jsonl")["facts"]
    run_benchmark("grow", "atlas:", "-n", 200, "-o", tmp_path / "small.jsonl")
    large, small = ((tmp_path / f"{name}.jsonl").read_bytes() for name in ("large", "small"))
    assert large.startswith(small) and 600 <= facts["equations"] < 800
    assert len(list(open_source(str(tmp_path / "large.jsonl")))) == facts["papers"]
    old, new = set(read_formulas("atlas:")), read_formulas(str(tmp_path / "large.jsonl"))
    assert abs(len(new) - facts["equations"]) < 0.05 * len(new)
    assert sum(formula in old for formula in new) < 0.2 * len(new)


def test_renaming_keeps_commands_and_text() -> None:
    rename = draw_permutation(0, 1)
    renamed = rename(r"\frac{x}{y} = \sin x \text{ for all } \label{a:x}")
    assert renamed != r"\frac{x}{y} = \sin x \text{ for all } \label{a:x}"
    assert renamed.startswith(r"\frac{") and r"\sin " in renamed and renamed.endswith(r"\text{ for all } \label{a:x}")


def test_sources_without_formulas_are_refused(tmp_path: Path) -> None:
    (tmp_path / "words.tex").write_text("nothing but words")
    ended = run("grow", tmp_path / "words.tex", "-n", 10, "-o", tmp_path / "grown.jsonl")
    assert ended.code == 3 and "no formulas" in ended.err


def test_scale_measures_every_step(tmp_path: Path) -> None:
    report = run_benchmark("scale", "atlas:", "-f", tmp_path, "--size", 100, "--searches", 3, "-j", 1)
    ((title, rows),) = report["tables"].items()
    steps = {row["name"]: row for row in rows}
    assert int(title.partition(" ")[0]) >= 100
    for step in ("read", "index", "verify", "read again, nothing new", "28 more papers"):
        assert steps[step]["processor_seconds"] > 0 and steps[step]["peak_megabytes"] > 10
    assert steps["search for formulas"]["searches"] == 3 and steps["search for words"]["p50_ms"] > 0
    assert steps["on disk"]["bytes_per_equation"] > 50
