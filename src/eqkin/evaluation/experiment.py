"""`compare`: systems and sets as a researcher has them, in one call; and the results of several calls together.

    from eqkin.evaluation import compare

    table = compare(["eqkin", "tfidf-latex", MySystem, "their-run.txt"], "arqmath", out="results")
    print(table)
    table.to_dataframe()

Each system's scores on each set are kept as `OUT/results/SET-DIGEST/SYSTEM.json`, and `Comparison.read(OUT)` returns
all of them, whatever call or command measured them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.context import FULL_SCALE, ExperimentContext, ResultCache
from eqkin.evaluation.formulas import Float32s, FormulaSet, compute_products, make_name, normalize_rows
from eqkin.evaluation.judged import JudgedSet, read_run
from eqkin.evaluation.measures import MIN_RELEVANT_GRADE
from eqkin.evaluation.scores import (
    TIE_SEED,
    RankedLists,
    SystemScores,
    make_differences_table,
    score_systems,
    summarize,
)
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.systems.registry import SYSTEMS, make_systems
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow, to_markdown, to_rich
from eqkin.learning.data import Corpus
from eqkin.library.files import LibraryFiles
from eqkin.search.results import make_dataframe
from eqkin.statistics import Score
from eqkin.storage.files import make_folder, write_file

RESULTS_FOLDER = "results"
RUNS_FOLDER = "runs"
_PRINTED_WIDTH = 200


class CustomSystem(System):
    """A user's own system: an object with `encode(formulas)` or `rank(queries, formulas)`, or a function like `rank`.

    Formulas are lists of LaTeX. `encode` returns one vector per row, which are compared by cosine; `rank` returns
    scores of shape (queries, formulas), the larger the better. Scores are measured every time: the code may change.
    """

    needs_latex = True
    is_reproducible = False

    def __init__(self, own: Any) -> None:
        label = str(getattr(own, "name", "") or getattr(own, "__name__", "") or type(own).__name__)
        self.name: str = make_name(label)
        self.title: str = str(getattr(own, "title", label))
        self._own = own

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score formulas as the user's system does."""
        asked, ranked = list(queries.latex or ()), list(formulas.latex or ())
        if hasattr(self._own, "rank"):
            return np.asarray(self._own.rank(asked, ranked), np.float32)
        if not hasattr(self._own, "encode"):
            return np.asarray(self._own(asked, ranked), np.float32)
        encoded = (self._own.encode(asked), self._own.encode(ranked))
        left, right = (one if hasattr(one, "tocsr") else np.asarray(one, np.float32) for one in encoded)
        return compute_products(normalize_rows(left), normalize_rows(right))


@dataclass(frozen=True, repr=False)
class Comparison:
    """The scores of systems on one or more sets: prints as tables, and becomes records or a data frame."""

    results: list[ExperimentResult] = field(default_factory=list)  # of each set
    scores: dict[str, list[SystemScores]] = field(default_factory=dict)  # by the name of the set

    @classmethod
    def read(cls, out: str | os.PathLike[str], baseline: str = "") -> Comparison:
        """Read all scores that were kept in a folder; others are tested against the baseline where it was measured.

        Raises:
            BadInput: There are none.
            CorruptData: A file is damaged.
        """
        found = cls()
        for folder in sorted(path for path in (Path(out) / RESULTS_FOLDER).glob("*") if path.is_dir()):
            records = [_read_record(path) for path in sorted(folder.glob("*.json"))]
            if not records:
                continue
            names, titles, values = ([one[key] for one in records] for key in ("system", "title", "values"))
            first = baseline if baseline in names else names[0]
            order = sorted(range(len(names)), key=lambda index: names[index] != first)  # noqa: B023 - used at once
            rows = [[column[index] for index in order] for column in (names, titles, values)]
            scores = summarize(rows[0], rows[1], rows[2], first, FULL_SCALE.resamples)
            name, columns = records[0]["set"], [TableColumn(*pair) for pair in records[0]["measures"].items()]
            caption = f"Means over {len(records[0]['topics'])} topics. Intervals: 95 %, bootstrap over topics."
            title = f"Judged formulas: {name}"
            tables = make_score_tables(folder.name, title, columns, scores, caption, FULL_SCALE.resamples)
            found.results.append(ExperimentResult(folder.name, title, tables))
            found.scores[folder.name] = scores
        if not found.results:
            raise BadInput(f"{out}: no results; `eqkin evaluate judged --out {out}` keeps them there")
        return found

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one record per set, system and measure: mean, ends of the interval, and p against the baseline."""
        return [
            {"set": name, "system": one.name, "measure": key, "mean": score.value, "low": score.low, "high": score.high}
            | {"p": one.p.get(key)}
            for name, scores in self.scores.items()
            for one in scores
            for key, score in one.scores.items()
        ]

    def to_dataframe(self) -> Any:
        """Return `to_dicts` as a data frame of pandas, or of polars; raises `BadInput` if neither is installed."""
        return make_dataframe(self.to_dicts())

    def __repr__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        console = Console(file=text, width=_PRINTED_WIDTH)
        for result in self.results:
            for table in result.tables:
                if not table.quotes:
                    console.print(to_rich(table))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_markdown_(self) -> str:
        tables = [table for result in self.results for table in result.tables if not table.quotes]
        return "\n".join(map(to_markdown, tables))


def compare(
    systems: Sequence[Any],
    *sets: JudgedSet | str | os.PathLike[str],
    baseline: str = "",
    corpus: Corpus | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "evaluation",
    save_runs: bool = False,
    device: str = "auto",
    log: Callable[[str], None] = lambda message: None,
) -> Comparison:
    """Compare systems on judged sets.

    Args:
        systems: Each is the name of a system (`eqkin evaluate systems` lists them), the folder of a network, the file
            of a TREC run, a `System`, or anything that `CustomSystem` takes: an instance, a class or a function.
        sets: Each is a `JudgedSet`, or what `JudgedSet.read` takes.
        baseline: Name of the system or run that the others are tested against; by default the first.
        corpus: What systems that learn are fitted on: a corpus, its file, or a library.
        out: Folder for fitted systems, measurements and results. What was measured there is not measured again.
        save_runs: Also write the lists of all systems as TREC runs, `OUT/runs/SET/SYSTEM.txt`.
        device: Where networks run.
        log: Receives progress, one line at a time.

    Raises:
        BadInput: A system or a set cannot be read, there are none, or a system that learns has no corpus.
    """
    context = ExperimentContext(ResultCache(Path(out)), device=device, log=log)
    chosen: list[System] = []
    runs = {}
    for one in systems:
        if isinstance(one, str | os.PathLike):
            name = os.fspath(one)
            if name not in SYSTEMS and Path(name).is_file():
                runs[Path(name).stem] = read_run(Path(name))
            else:
                chosen += make_systems([name], context)
            continue
        own = one() if isinstance(one, type) else one
        if not isinstance(own, System):
            own = CustomSystem(own)
        elif not own.settings and not own.learned_from:
            own.is_reproducible = False  # nothing says whether its code is still the same
        chosen.append(own)
    judged = [one if isinstance(one, JudgedSet) else JudgedSet.read(one) for one in sets]
    if not judged:
        raise BadInput("there is nothing to compare on: give a judged set, or its folder")
    context.fit_all(chosen, lambda: _load_corpus(corpus))
    found = Comparison()
    for one in judged:
        result, scores = run_judged(context, chosen, one, runs=runs, baseline=baseline, save_runs=save_runs)
        found.results.append(result)
        found.scores[one.name] = scores
    return found


def run_judged(
    context: ExperimentContext,
    systems: Sequence[System],
    judged: JudgedSet,
    *,
    runs: Mapping[str, RankedLists] | None = None,
    published: Sequence[TableRow] = (),
    baseline: str = "",
    save_runs: bool = False,
) -> tuple[ExperimentResult, list[SystemScores]]:
    """Compare fitted systems on a judged set, and keep their scores.

    Args:
        context: Cache, scale and log.
        systems: The systems.
        judged: The set.
        runs: TREC runs of other systems, by their titles.
        published: Figures of others for the set, in addition to those in its folder.
        baseline: Name of the system or run that the others are tested against; by default the first system.
        save_runs: Also write the lists of all systems as TREC runs.

    Raises:
        BadInput: There is nothing to compare, or names are not distinct.
    """
    runs = runs or {}
    resamples = context.scale.resamples
    folder = context.cache.folder / RUNS_FOLDER / judged.name if save_runs else None
    scores = score_systems(systems, judged, context=context, baseline=baseline, runs=runs, runs_folder=folder)
    save_scores(context.cache.folder, judged, scores)
    name = f"judged-{judged.name}"
    title = f"Judged formulas: {judged.name}"
    dropped, graded = "those not judged for it are dropped (the prime)", ", nDCG' is graded"
    if judged.is_complete:
        dropped, graded = "those with its own LaTeX are dropped", ""
    caption = (
        f"Means over {len(judged.topics)} topics; all {len(judged.formulas):,} formulas are ranked for each topic, and "
        f"{dropped}. Grades from {MIN_RELEVANT_GRADE} on are relevant{graded}. Intervals: 95 %, bootstrap over topics. "
        "Published figures have no intervals."
    )
    columns = [TableColumn(measure.key, measure.title) for measure in judged.measures]
    tables = make_score_tables(name, title, columns, scores, caption, resamples, [*judged.published, *published])
    tables.append(_make_topics_table(judged, scores))
    notes = [warning for system in systems for warning in system.list_warnings([judged.name])]
    facts = _describe_data(judged, runs) | {"resamples": f"{resamples:,}", "order of ties": f"seed {TIE_SEED}"}
    return ExperimentResult(name, title, tables, notes, facts), scores


def make_score_tables(
    name: str,
    title: str,
    columns: Sequence[TableColumn],
    scores: Sequence[SystemScores],
    caption: str,
    resamples: int,
    others: Sequence[TableRow] = (),
) -> list[Table]:
    """Make a table of the scores of systems, with rows of others, and one of the differences from the baseline."""
    rows = [TableRow(one.title, dict(one.scores)) for one in scores]
    tables = [Table(name, title, list(columns), [*rows, *others], caption)]
    if len(scores) > 1:
        base = next(one for one in scores if not one.p)
        heading = f"Differences from {base.title}: {title.partition(': ')[2]}"
        tables.append(make_differences_table(f"{name}-differences", heading, columns, scores, base.name, resamples))
    return tables


def _make_topics_table(judged: JudgedSet, scores: Sequence[SystemScores]) -> Table:
    measure = judged.measures[0]
    columns = [TableColumn("formula", "formula", "text", ""), TableColumn("related", "relevant", "number", "")]
    columns += [TableColumn(f"system-{number}", one.title, best="") for number, one in enumerate(scores)]
    rows = []
    for index, (topic, latex) in enumerate(zip(judged.topics.names, judged.topics.formulas.latex or (), strict=True)):
        cells: dict[str, Score | str] = {"formula": latex}
        cells["related"] = Score(float(sum(grade >= MIN_RELEVANT_GRADE for grade in judged.qrels[topic].values())))
        cells |= {f"system-{number}": Score(one.values[measure.key][index]) for number, one in enumerate(scores)}
        rows.append(TableRow(topic, cells))
    name, title = f"judged-{judged.name}-topics", f"{measure.title} by topic: {judged.name}"
    caption = f"Relevant: formulas of grade {MIN_RELEVANT_GRADE} and above."
    return Table(name, title, columns, rows, caption, quotes=True)


def _describe_data(judged: JudgedSet, runs: Mapping[str, RankedLists]) -> dict[str, str]:
    facts = {
        "topics": f"{len(judged.topics):,}, digest {judged.topics.digest}",
        "formulas": f"{len(judged.formulas):,}, digest {judged.formulas.digest}",
        "judgements": f"{judged.judgements:,}",
    }
    if judged.formulas.problems:
        facts["unreadable formulas"] = f"{len(judged.formulas.problems)}; ranked last by systems that read trees"
    if judged.topics.problems:
        facts["unreadable topics"] = f"{', '.join(judged.topics.problems)}; empty lists for systems that read trees"
    if judged.missing_formulas:
        facts["judged formulas that are missing"] = f"{judged.missing_formulas}, all of grade 0"
    for title, run in runs.items():
        if absent := len(set(judged.topics.names) - run.keys()):
            facts[f"topics without results in {title}"] = f"{absent}; they count as 0"
    return facts


def _load_corpus(corpus: Corpus | str | os.PathLike[str] | None) -> Corpus:
    if corpus is None:
        raise BadInput("it learns from a corpus: give `corpus`, a library or a file of `eqkin export --forest`")
    if isinstance(corpus, Corpus):
        return corpus
    if Path(corpus).is_file():
        return Corpus.load(Path(corpus))
    with LibraryFiles.open(corpus) as library:
        return Corpus.from_library(library)


def save_scores(out: Path, judged: JudgedSet, scores: Sequence[SystemScores]) -> None:
    """Keep the scores of systems on a set, one file each; earlier ones of the same system are replaced."""
    folder = make_folder(out / RESULTS_FOLDER / f"{judged.name}-{judged.digest[:8]}")
    for one in scores:
        record = {
            "set": judged.name,
            "digest": judged.digest,
            "system": one.name,
            "title": one.title,
            "topics": list(judged.topics.names),
            "measures": {measure.key: measure.title for measure in judged.measures},
            "values": {key: list(values) for key, values in one.values.items()},
        }
        text = orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        write_file(folder / f"{make_name(one.name)}.json", text)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = orjson.loads(path.read_bytes())
        lengths = {len(values) for values in record["values"].values()}
        if lengths != {len(record["topics"])} or record["values"].keys() != record["measures"].keys():
            raise ValueError("its values do not fit its topics")
        record["set"], record["system"], record["title"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"{path}: damaged ({error}); delete it, and measure the system again") from error
    return record
