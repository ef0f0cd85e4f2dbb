"""Results to report: some as experiments give them, and some that try whatever they can."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import orjson

from eqkin.evaluation import published
from eqkin.evaluation.results import (
    PUBLISHED,
    VERSION,
    Curve,
    ExampleHit,
    ExperimentResult,
    Plot,
    Score,
    Table,
    TableColumn,
    TableRow,
    WorkedExample,
)

BAYES = (
    '<math display="block"><mi>P</mi><mo>(</mo><mi>s</mi><mo>|</mo><mi>d</mi><mo>)</mo><mo>=</mo><mfrac>'
    "<mrow><mi>P</mi><mo>(</mo><mi>d</mi><mo>|</mo><mi>s</mi><mo>)</mo><mi>P</mi><mo>(</mo><mi>s</mi><mo>)</mo></mrow>"
    "<mrow><mi>P</mi><mo>(</mo><mi>d</mi><mo>)</mo></mrow></mfrac></math>"
)
TOTAL = (
    "<math><mi>P</mi><mo>(</mo><mi>d</mi><mo>)</mo><mo>=</mo><mo>∫</mo><mi>P</mi><mo>(</mo><mi>d</mi><mo>|</mo>"
    "<mi>s</mi><mo>)</mo><mi>P</mi><mo>(</mo><mi>s</mi><mo>)</mo><mi>d</mi><mi>s</mi></math>"
)
EVIL = (
    "<script>alert(1)</script><img src=https://example.org/x.png onerror=alert(2)> & _x_ 100% \\evil{ $a^b$ #1 ~ | `c`"
)
SHARES = [TableColumn("r1", "R@1"), TableColumn("r10", "R@10"), TableColumn("r100", "R@100")]


def score(value: float, half: float) -> Score:
    return Score(value, value - half, value + half)


def ablation() -> ExperimentResult:
    columns = [
        TableColumn("ranking", "Ranking, held out", "percent"),
        TableColumn("labelled_ranking", "Ranking, labelled", "percent"),
        TableColumn("accuracy", "Accuracy, labelled", "percent"),
    ]
    titles = ["Full model", "No histogram loss", "No masking", "No augmentation", "Bitmap CNN, retrained"]
    measured = [(0.842, 0.688, 0.745), (0.801, 0.571, 0.521), (0.839, 0.662, 0.702), (0.815, 0.64, 0.66)]
    measured.append((0.731, 0.49, 0.553))
    rows = [
        TableRow(
            title, {c.key: score(v, 0.012 * (1 + 3 * i)) for i, (c, v) in enumerate(zip(columns, figures, strict=True))}
        )
        for title, figures in zip(titles, measured, strict=True)
    ]
    table = Table(
        "ablation",
        "Ranking score on held-out triples, and on the labelled set",
        columns,
        [*rows, *published.ABLATION_ROWS],
        "100,000 triples of papers that were never seen; intervals by Janson's inequality, three seeds each.",
    )
    plot = Plot(
        "drop",
        "What each part adds",
        "left out",
        "points lost, ranking held out",
        [
            Curve("here", titles[1:], [4.1, 0.3, 2.7, 11.1], [2.0, -1.4, 0.9, 9.0], [6.2, 2.0, 4.5, 13.2]),
            Curve("paper", titles[1:], [4.0, 1.3, 1.2, 6.5]),
        ],
        kind="bar",
        caption="Percentage points below the full model.",
    )
    return ExperimentResult(
        "ablation",
        "Ablation: what each part of the learning adds",
        "Histogram loss, masking and augmentation each raise the ranking score on held-out papers; the histogram loss"
        " matters most (76.5 against 72.5), and a bitmap CNN learned from the same papers falls behind by 6.5 points.",
        [
            "Holds in part: without the histogram loss the score falls by 4.1 points, without augmentation by 2.7;"
            " without masking by .3, which the interval does not tell from nothing.",
            "The bitmap CNN is 11.1 points behind.",
        ],
        [table],
        [plot],
        differences=[
            "The corpus is 298,723 equations of open texts rather than arXiv's cs.LG: that is not to be had here."
        ],
        facts={
            "corpus digest": "sha256:9f2c7a4be01d553c" * 4,
            "equations": "149,211 to learn from, 149,512 held out",
            "seeds": "0, 1, 2",
            "command": "eqkin evaluate ablation --corpus corpus.zst --device cuda",
        },
    )


def equalities() -> ExperimentResult:
    rows = [
        TableRow(
            "eqkin, finetuned", {"r1": score(0.561, 0.01), "r10": score(0.842, 0.008), "r100": score(0.901, 0.006)}
        ),
        TableRow("Transformer", {"r1": score(0.522, 0.01), "r10": score(0.731, 0.01), "r100": score(0.822, 0.009)}),
        TableRow("Bag of words", {"r1": score(0.431, 0.01), "r10": score(0.612, 0.01), "r100": score(0.703, 0.01)}),
        TableRow(
            "approach0", {"r1": Score(math.nan), "r10": score(0.58, 0.011)}, note="it finds nothing for 3 % of queries"
        ),
        TableRow("Tangent-CFT", {"r10": Score(0.6)}, PUBLISHED, "ARQMath-1"),
    ]
    table = Table(
        "equalities", "The right side from the left", SHARES, [*rows, *published.EQUALITIES_ROWS["equalities"]]
    )
    sizes: list[float | str] = [128, 256, 512, 1024, 2048, 4096]
    curves = [
        Curve(name, sizes, [base + 0.02 * i - 0.001 * i * i for i in range(6)])
        for name, base in (("R@1", 0.47), ("R@10", 0.74), ("R@100", 0.82))
    ]
    curves = [Curve(c.title, c.x, c.y, [y - 0.012 for y in c.y], [y + 0.012 for y in c.y]) for c in curves]
    plot = Plot("batches", "Effect of the batch in finetuning", "pairs in a batch", "recall", curves, log_x=True)
    return ExperimentResult(
        "equalities",
        "Equalities: find the right side from the left",
        "The Graph-CNN finds the right side among the first ten for 83.3 % of equalities, far above bag of words.",
        ["Holds: R@10 is .842 against .612 for bag of words and .731 for a transformer.", "Larger batches help."],
        [table],
        [plot],
        differences=["The query itself never counts as a hit.", "No duplicates: the paper's code kept them."],
        facts={"pairs": "36,112", "temperature": "0.01"},
    )


def study() -> ExperimentResult:
    columns = [TableColumn("p10", "P@10"), TableColumn("p100", "P@100"), TableColumn("umap", "uMAP", "number")]
    rows = [
        TableRow("eqkin", {"p10": score(0.49, 0.05), "p100": score(0.36, 0.05), "umap": score(151.2, 31.4)}),
        TableRow("Bag of words", {"p10": score(0.52, 0.05), "p100": score(0.31, 0.05), "umap": score(99.8, 22.4)}),
    ]
    return ExperimentResult(
        "study",
        "Search study: 53 queries with keywords",
        "The learned embedding finds almost half as many relevant equations more than bag of words.",
        ["Does not hold: at ten results bag of words is ahead, at a hundred the intervals overlap."],
        [Table("study", "Precision and uMAP", columns, [*rows, *published.STUDY_ROWS])],
    )


def examples() -> ExperimentResult:
    hits = [
        ExampleHit(
            1,
            r"P(s \mid d) = \frac{P(d \mid s) P(s)}{P(d)}",
            BAYES,
            "Charting nearby dust, 2 Method",
            "the first result",
        ),
        ExampleHit(
            4, r"P(d) = \int P(d\mid s) P(s) ds", TOTAL, "Information theory, Appendix", "the law of total probability"
        ),
    ]
    example = WorkedExample(
        "Bayes' law", r"P(d \mid s ) = \frac{P(d,s)}{P(s)}", BAYES, hits, "The paper's first example."
    )
    return ExperimentResult(
        "examples", "Two examples", "It finds kin across fields.", ["Both are found."], examples=[example]
    )


def hostile() -> ExperimentResult:
    """Nothing of it may be run, loaded, break a page, a table or LaTeX."""
    long = "An extraordinarily " + "long " * 80 + "title_without_" + "end" * 60
    columns = [
        TableColumn("a", f"{EVIL} [A]"),
        TableColumn("b", "* plain\nnew line", "number", "low"),
        TableColumn("c", "words", "text"),
    ]
    rows = [
        TableRow("[5pt] " + EVIL, {"a": Score(math.nan), "b": Score(1234567.5), "c": EVIL}, note=EVIL),
        TableRow(
            "* " + long, {"a": Score(-0.25, None, 0.5), "b": Score(0.00012, 0.0001, 0.0002)}, origin="made & <up>"
        ),
        TableRow("\x00\x1b[31mred\u202e", {"b": Score(math.inf), "c": "\\\\ & \\end{tabular}"}),
        TableRow("_", {}),
    ]
    bad = "<mi onclick='alert(3)'>x</mi><script>alert(4)</script><mtext>&lt;img src=x onerror=alert(5)></mtext>"
    bad = f"<math>{bad}</math>"
    plots = [
        Plot("x/../../y", EVIL, EVIL, EVIL, [Curve("_" + EVIL, ["$", "a&b", "<script>"], [1.0, math.nan, 2.0])], "bar"),
        Plot(
            "x/../../y",
            long,
            "",
            "",
            [Curve("", [0.0, -1.0, 10.0], [1.0, 2.0, 3.0], [0.0]), Curve("", [], [])],
            log_x=True,
        ),
        Plot("none", "No figures at all", "x", "y", []),
        Plot(
            "far",
            "日本語 and \x00",
            "n",
            "y",
            [Curve("漢", [float(n) for n in range(1, 40)], [1e6 * n for n in range(39)])],
        ),
    ]
    wide = "<math><mspace width='9000px'/><mi mathcolor='red' style='position:fixed'>y</mi></math>"
    hits = [
        ExampleHit(-1, EVIL, bad, EVIL, EVIL),
        ExampleHit(2, "x", "<math><unclosed>", ""),
        ExampleHit(3, "y", wide, long),
    ]
    return ExperimentResult(
        "../hostile <b>",
        EVIL + long,
        EVIL,
        [EVIL, "- " + long, "1. http://example.org/ [a](javascript:alert(6))"],
        [Table("../../evil", EVIL, columns, rows, "%\n\\input{x} " + EVIL), Table("../../evil", "Empty", [], [])],
        plots,
        [WorkedExample(EVIL, EVIL, bad, hits, EVIL)],
        [EVIL],
        {EVIL: EVIL, "command": "`` ` `" + EVIL, "digest": "f" * 400},
    )


def realistic() -> list[ExperimentResult]:
    return [examples(), study(), equalities(), ablation()]


def save(results: list[ExperimentResult], folder: Path) -> Path:
    """As experiments save them, but under names that are safe whatever the results call themselves."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results):
        (folder / f"{number}.json").write_bytes(orjson.dumps({"version": VERSION, **asdict(result)}))
    return folder
