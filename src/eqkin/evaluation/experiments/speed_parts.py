"""What each benchmark has to say: its figures as tables and sentences, beside the paper's where it has some."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from eqkin.evaluation.published import EQUATIONS, INDEX_BYTES, SPEED_ROWS, TRIPLETS_PER_SECOND
from eqkin.evaluation.results import Curve, Plot, Score, Table, TableColumn, TableRow

_PAPER_BATCH = 128
_DELTA = 0.05


@dataclass(frozen=True)
class SpeedPart:
    """What is reported of one benchmark."""

    tables: list[Table]
    findings: list[str]
    plots: list[Plot] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def make_training_part(figures: dict[str, Any]) -> SpeedPart:
    """`eqkin bench train`: triplets a second, for each size of batch."""
    columns = [
        TableColumn("batch", "Batch", "number", best=""),
        TableColumn("triplets", "Triplets a second", "number", best=""),
        TableColumn("ratio", "Times the paper", "number", best=""),
        TableColumn("limit", "Of the matrix products alone", "percent", best=""),
    ]
    batches, memory = figures["batches"], figures["memory"]
    names = {"ours": "eqkin", "geometric": "torch-geometric, eager", "geometric_compiled": "torch-geometric, compiled"}
    names["limit"] = "Matrix products alone"
    rows = [
        TableRow(title, _make_scores(batch=one["batch"], triplets=one[key], ratio=one[key] / TRIPLETS_PER_SECOND,
                           limit=one[key] / one["limit"]))
        for one in batches
        for key, title in names.items()
        if one[key]
    ]  # fmt: skip
    paper = replace(SPEED_ROWS[0], cells=SPEED_ROWS[0].cells | _make_scores(batch=_PAPER_BATCH, ratio=1))
    caption = (
        "The same batches for all, of real equations with both losses; each speed is the mean of one stretch of"
        " steps after a warm-up."
    )
    table = Table("training", "Learning", columns, [*rows, paper], caption)
    curves = [
        Curve(f"batch {one['batch']:,}", [title for key, title in names.items() if one[key]],
              [float(one[key]) for key in names if one[key]])
        for one in batches
    ]  # fmt: skip
    curves.append(Curve("paper, GTX 1080, batch 128", ["the paper"], [TRIPLETS_PER_SECOND]))
    plot = Plot("training", "Triplets a second in learning", "", "triplets a second", curves, kind="bar")
    return SpeedPart([table], [*_learning_findings(batches), _memory(memory)], [plot])


def _learning_findings(batches: list[dict[str, Any]]) -> list[str]:
    same = next((one for one in batches if one["batch"] == _PAPER_BATCH), batches[0])
    own = "the paper's" if same["batch"] == _PAPER_BATCH else "other than the paper's 128:"
    told = [
        f"Learning takes in {same['ours']:,.0f} triplets a second with batches of {same['batch']:,} ({own} size),"
        f" {same['ours'] / TRIPLETS_PER_SECOND:,.1f} times the paper's {TRIPLETS_PER_SECOND:,.0f}, on another machine."
    ]
    for one in batches:
        peers = [
            f"{one['ours'] / one[key]:.1f} times torch-geometric{how}"
            for key, how in (("geometric", ""), ("geometric_compiled", " through torch.compile"))
            if one[key]
        ]
        share = f"{one['ours'] / one['limit']:.0%} of what the network's matrix products alone would allow"
        told.append(f"At batches of {one['batch']:,} it is {', '.join([*peers, share])}.")
    return told


def _memory(memory: dict[str, Any]) -> str:
    return (
        f"On the device an equation takes {memory['bytes_an_equation']:,.0f} bytes with all that triplets are drawn"
        f" from; the paper's {EQUATIONS:,} would take {memory['projected_bytes'] / 1e9:,.1f} GB."
    )


def make_index_part(figures: dict[str, Any]) -> SpeedPart:
    """`eqkin bench index`: size, recall and time of finding the nearest vectors."""
    systems, queries = figures["systems"], figures["queries"]
    columns = [
        TableColumn("bytes", "Bytes a vector", "number", "low"),
        TableColumn("gigabytes", "GB for 28.97 M", "number", "low"),
        TableColumn("recall_10", "Recall@10", best=""),
        TableColumn("recall_100", "Recall@100", best=""),
        TableColumn("p50", "Median, ms", "number", "low"),
        TableColumn("p99", "99th percentile, ms", "number", "low"),
        TableColumn("seconds", "Built in, s", "number", "low"),
    ]
    rows = [
        TableRow(one["name"], _make_scores(bytes=one["bytes_a_vector"], gigabytes=one["bytes_a_vector"] * EQUATIONS / 1e9,
                                 p50=one["p50_ms"], p99=one["p99_ms"], seconds=one["build_seconds"])
            | {key: _make_recall_score(one, key, queries) for key in ("recall_10", "recall_100")})
        for one in systems
    ]  # fmt: skip
    caption = (
        f"{figures['vectors']:,} vectors of 64, {figures['real']:,} of them embeddings as they are, the others made"
        f" from these; {queries:,} queries, one at a time. Recall has the interval of Hoeffding's bound for queries"
        " drawn without putting back; exact search is the truth and has none."
    )
    table = Table("index", "Finding the nearest vectors", columns, [*rows, SPEED_ROWS[1]], caption)
    told = _index_findings(systems, figures)
    difference = (
        f"The index was measured with {figures['vectors']:,} vectors; its size for {EQUATIONS:,} is reckoned in"
    )
    return SpeedPart([table], told, differences=[f"{difference} proportion.", *figures["notes"]])


def _index_findings(systems: list[dict[str, Any]], figures: dict[str, Any]) -> list[str]:
    (ours,) = [one for one in systems if one["name"].startswith("eqkin")]
    annoy = next((one for one in systems if one["name"].startswith("annoy")), None)
    size = ours["bytes_a_vector"] * EQUATIONS
    told = [
        f"The index takes {ours['bytes_a_vector']:,.0f} bytes a vector, {size / 1e9:,.1f} GB for the paper's equations:"
        f" {size / INDEX_BYTES:.0%} of its {INDEX_BYTES / 1e9:.0f} GB."
    ]
    if annoy:
        told.append(
            f"In the same run annoy with the paper's 16 trees takes {annoy['bytes_a_vector']:,.0f} bytes a vector and"
            f" finds {annoy['recall_10']:.1%} of the ten nearest, eqkin {ours['recall_10']:.1%};"
            f" at equal recall eqkin is {figures['faster_than_annoy']:.1f} times as fast."
        )
    return told


def _make_recall_score(system: dict[str, Any], key: str, queries: int) -> Score:
    """A mean over queries, each between 0 and 1, with Hoeffding's interval; exact search is right by definition."""
    share = float(system[key])
    if system["name"].startswith("exact"):
        return Score(share)
    half = math.sqrt(math.log(2 / _DELTA) / (2 * queries))
    return Score(share, max(0.0, share - half), min(1.0, share + half))


def make_encoding_part(figures: dict[str, Any]) -> SpeedPart:
    """`eqkin bench encode`: how fast trees become vectors, and a single formula."""
    columns = [
        TableColumn("trees", "Equations a second", "number"),
        TableColumn("gflops", "GFLOP/s", "number"),
        TableColumn("limit", "Of the bare products", "percent"),
    ]
    rows = [
        TableRow(title, _make_scores(trees=figures[f"{key}_trees_per_second"], gflops=figures[f"{key}_gflops"],
                           limit=figures[f"{key}_to_products"]))
        for key, title in (("numpy", "eqkin, numpy"), ("torch", "torch, eager"))
        if f"{key}_gflops" in figures
    ]  # fmt: skip
    rows.append(
        TableRow("Matrix products alone", _make_scores(gflops=figures["products_gflops"]), note="what is possible")
    )
    rate = f"{figures['numpy_trees_per_second']:,.0f}"
    caption = f"{figures['trees']:,.0f} trees with {figures['nodes']:,.0f} nodes, on a CPU; medians of rounds."
    tables = [Table("encoding", "From trees to vectors", [replace(c, best="") for c in columns], rows, caption)]
    told = [f"Without a GPU {rate} equations a second become vectors."]
    if figures["formulas"]:
        stages = {"formula": "LaTeX to vector", "conversion": "of it, LaTeX to tree", "encoding": "tree to vector"}
        timed = [
            _make_percentile_row(title, figures, f"{key}_median_ms", f"{key}_p99_ms") for key, title in stages.items()
        ]
        caption = f"{figures['formulas']:,.0f} formulas of the atlas, one by one."
        tables.append(Table("formula", "One formula at a time", _TIMES, timed, caption))
        told.append(
            f"A formula takes {figures['formula_median_ms']:.1f} ms from LaTeX to vector in the median,"
            f" {figures['formula_p99_ms']:.1f} ms in the 99th percentile."
        )
    return SpeedPart(tables, told)


_TIMES = [TableColumn("p50", "Median, ms", "number", ""), TableColumn("p99", "99th percentile, ms", "number", "")]


def make_search_part(reports: list[dict[str, Any]]) -> SpeedPart:
    """`eqkin bench search`: how long a search takes, for some numbers of clients."""
    columns = [
        TableColumn("rate", "Searches a second", "number", ""),
        *_TIMES,
        TableColumn("errors", "Errors", "number", ""),
    ]
    rows = []
    for one in reports:
        title = "1 client" if one["clients"] == 1 else f"{one['clients']:,} clients at once"
        row = _make_percentile_row(title, one, "whole_p50_ms", "whole_p99_ms")
        rows.append(replace(row, cells=row.cells | _make_scores(rate=one["searches_per_second"], errors=one["errors"])))
    first = reports[0]
    start = f"{first['first_answer_ms'] / 1e3:.2f} s from the start to the first answer"
    caption = f"{first['searches']:,} searches each; {start}."
    tables = [Table("search", "Searches end to end", columns, rows, caption)]
    names = [key.removesuffix("_p50_ms") for key in first if key.endswith("_p50_ms") and key != "whole_p50_ms"]
    if names:
        timed = [_make_percentile_row(name, first, f"{name}_p50_ms", f"{name}_p99_ms") for name in names]
        tables.append(Table("stages", f"Stages of a search, {rows[0].title}", _TIMES, timed))
    told = (
        f"A search takes {first['whole_p50_ms']:.1f} ms in the median and {first['whole_p99_ms']:.1f} ms in the 99th"
        f" percentile ({rows[0].title}); the paper gives no such figure."
    )
    return SpeedPart(tables, [told])


def _make_percentile_row(title: str, figures: dict[str, Any], p50: str, p99: str) -> TableRow:
    return TableRow(title, _make_scores(p50=figures[p50], p99=figures[p99]))


def _make_scores(**figures: float) -> dict[str, Score | str]:
    return {key: Score(float(value)) for key, value in figures.items()}
