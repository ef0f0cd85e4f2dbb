"""The paper's own figures as table rows; shares, not percent.

From the experiments of Pfahler and Morik (2020): all five tables, and the counts of its data. They have no intervals.
"""

from __future__ import annotations

from eqkin.evaluation.measures import Score
from research.tables import PAPER, TableRow


def _make_row(title: str, figures: dict[str, float], note: str = "") -> TableRow:
    return TableRow(title, {key: Score(value) for key, value in figures.items()}, PAPER, note)


def _make_percent_row(title: str, *, note: str = "", **figures: float) -> TableRow:
    return _make_row(title, {key: round(value / 100, 4) for key, value in figures.items()}, note)


_ORIGINAL = "trained on about 25,000 papers, probably some of the test set among them"

# Table 1: trained on 1 M triplets of 7,949 papers of machine learning. "ranking" is on 100,000 held-out triples of
# 1,987 papers, the other two on the labelled set.
ABLATION_ROWS: list[TableRow] = [
    _make_percent_row("Full model", ranking=76.5, labelled_ranking=57.7, accuracy=60.6),
    _make_percent_row("No histogram loss", ranking=72.5, labelled_ranking=49.6, accuracy=30.9),
    _make_percent_row("No masking", ranking=75.2, labelled_ranking=54.3, accuracy=50.0),
    _make_percent_row("No augmentation", ranking=75.3, labelled_ranking=53.6, accuracy=50.0),
    _make_percent_row("Bitmap CNN, original", ranking=76.2, labelled_ranking=71.9, accuracy=68.3, note=_ORIGINAL),
    _make_percent_row("Bitmap CNN, retrained", ranking=70.0, labelled_ranking=50.0, accuracy=52.9),
]

# Table 2: the labelled set, 103 equations in 13 categories.
LARGE_SCALE_ROWS: list[TableRow] = [
    _make_percent_row("1 M triplets of machine learning", labelled_ranking=57.7, accuracy=60.6),
    _make_percent_row("5 M triplets of all arXiv", labelled_ranking=76.2, accuracy=80.9),
    _make_percent_row("20 M triplets of all arXiv", labelled_ranking=75.3, accuracy=84.0),
    _make_percent_row("Bitmap CNN, original", labelled_ranking=71.9, accuracy=68.3, note=_ORIGINAL),
]

# Table 3: the search study, means over 53 queries. "umap" is not a fraction: at most 1,000.
STUDY_ROWS: list[TableRow] = [
    _make_row("Bag of words", {"p10": 0.4567, "p100": 0.3170, "p1000": 0.2083, "umap": 106.17}),
    _make_row("5 M triplets", {"p10": 0.5038, "p100": 0.3817, "p1000": 0.2984, "umap": 165.04}),
    _make_row("20 M triplets", {"p10": 0.4547, "p100": 0.3709, "p1000": 0.2897, "umap": 156.51}),
]

# Table 4: the best ten and the worst twelve of the 53 queries, by their keywords, as far as the paper prints those.
STUDY_QUERIES: list[TableRow] = [
    _make_row(keywords, {"p100": share}, "5 M triplets")
    for share, keywords in (
        (0.95, "policy gradient"), (0.93, "convex, strongly convex"), (0.91, "q-learning, reinforcement learning"),
        (0.89, "chain complex, sequence"), (0.81, "lipschitz, continuous"),
        (0.80, "empirical risk, training objective, erm"), (0.71, "lstm, recurrent neural network"),
        (0.70, "neural network, hidden layer, ..."), (0.67, "eigenvalue, eigenvector, ..."),
        (0.66, "received signal strength indication, rssi, ..."), (0.08, "jaccard similarity, min-hashing, ..."),
        (0.07, "fredholm integral, equation of the first kind, ..."),
        (0.07, "effective collection area, effective area"), (0.07, "modified erlang, erlang"),
        (0.07, "johnson-lindenstrauss, embedding"), (0.06, "significance of detection, lima"),
        (0.06, "log-odds alignment, pairwise dynamic prog., ..."), (0.05, "proximal gradient"),
        (0.04, "handshaking lemma, handshake lemma"), (0.03, "single photon spectrum, multi-gaussian distr., ..."),
        (0.02, "graphcnn, geometric deep learning, ..."), (0.01, "crosstalk probability"),
    )
]  # fmt: skip

# Table 5: the other side of an equality or inequality found among all sides of the test half; finetuned with batches
# of 1,024. By the set's name.
EQUALITIES_ROWS: dict[str, list[TableRow]] = {
    name: [_make_row(title, dict(zip(("r1", "r10", "r100"), shares, strict=True))) for title, shares in rows.items()]
    for name, rows in {
        "equalities": {
            "Transformer": (0.511, 0.710, 0.805), "Bag of words": (0.483, 0.653, 0.739),
            "fastText": (0.480, 0.650, 0.739), "Graph-CNN": (0.507, 0.833, 0.884),
        },
        "relations": {
            "Transformer": (0.503, 0.697, 0.791), "Bag of words": (0.491, 0.658, 0.743),
            "fastText": (0.488, 0.651, 0.742), "Graph-CNN": (0.512, 0.834, 0.883),
        },
        "inequalities": {
            "Transformer": (0.484, 0.765, 0.860), "Bag of words": (0.503, 0.738, 0.821),
            "fastText": (0.488, 0.713, 0.810), "Graph-CNN": (0.504, 0.870, 0.922),
        },
    }.items()
}  # fmt: skip

EQUATIONS = 28_973_591

# Section 3.1 and its two figures: counts, papers per subject area, most frequent characters in order.
DATA_COUNTS = {
    "papers": 934_287, "with_equations": 760_041, "equations": EQUATIONS, "citing": 540_892, "citations": 4_553_297,
}  # fmt: skip
SUBJECT_AREAS = {
    "astro-ph": 181_705, "cond-mat": 153_934, "cs": 139_105, "math": 127_655, "hep-ph": 71_913, "physics": 61_273,
    "quant-ph": 43_465, "hep-th": 33_754, "gr-qc": 21_115, "stat": 20_078, "nucl-th": 16_613, "hep-ex": 12_810,
    "q-bio": 9_984, "math-ph": 9_068, "hep-lat": 9_056, "nlin": 8_244, "nucl-ex": 6_189, "q-fin": 4_586, "eess": 2_611,
    "econ": 444, "chao-dyn": 240,
}  # fmt: skip
CHARACTERS = ") ( 2 1 , - + = i 0 n x t k | d s . m a r p e 3 j c ' l f ] [ u 4 α g T y z N A q o R ∑ b μ"
