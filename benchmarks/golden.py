"""Golden answers: what eqkin finds, stores and costs, recorded before a change and compared after it.

Only public names are used, so that the same command runs on any version. A recording is a folder:

    papers/, drafts/      documents of the corpus: those that become a library, and others to ask about
    libraries/            the libraries, kept so that the next recording need not build them
    answers.jsonl         for each query and library the ids, scores, relations and marked parts of its hits
    contents.json         for each paper a digest of every field that `eqkin export` prints
    tables.json           what `eqkin evaluate` prints for each judged and each labelled set
    figures.json          processor time and bytes per equation, functions that one search runs
"""

from __future__ import annotations

import hashlib
import heapq
import io
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from xml.etree import ElementTree

import orjson
import typer
import zstandard

import eqkin
from benchmarks.report import BenchmarkReport, log

Json: TypeAlias = dict[str, Any]
Query: TypeAlias = Json

_PAPERS = 900
_DRAFTS = 60
# Giants would dominate, and short documents have little to find.
_DISPLAYS = range(12, 120)
_HITS = 10
# Queries of each kind with `--small`.
_SMALL = 2
_PARTS = ("contents", "tables", "figures")
_DISPLAY = re.compile(r"\\begin\{(equation|align)(\*?)\}(.{12,300}?)\\end\{\1\2\}|\\\[(.{12,300}?)\\\]", re.DOTALL)
_QUERIES = Path(__file__).with_name("golden.json")


def record(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the recording.")],
    documents: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Documents to search, as .jsonl.zst; repeatable.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option("--eval", metavar="DIR", help="Folder of judged and labelled sets.")
    ] = None,
    like: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Take papers and queries from this recording.")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="Ask few queries, and only of the atlas.")] = False,
) -> BenchmarkReport:
    """Record answers, contents, quality and costs.

    **Examples**

        python -m benchmarks golden record --out before --documents docs.jsonl.zst --eval sets

        python -m benchmarks golden record --out after --like before --eval sets
    """
    out.mkdir(parents=True, exist_ok=True)
    # Ids contain the paths of papers: a later recording reads them where the first one wrote them.
    origin = (like or out).resolve()
    if documents and not (origin / "papers").exists():
        write_papers(documents, origin)
    figures = load(out / "figures.json")
    contents: Json = {}
    answers: list[Json] = []
    sources = {"atlas": "atlas:"}
    if (origin / "papers").exists() and not small:
        sources["papers"] = str(origin / "papers")
    for name, source in sources.items():
        folder = out / "libraries" / name
        costs = figures.setdefault(name, {})
        equations = export(folder, source, costs)
        contents[name] = digest_papers(equations)
        if like:
            known = map(orjson.loads, (like / "answers.jsonl").read_bytes().splitlines())
            queries = [query for query in known if query["library"] == name]
        else:
            queries = make_queries(equations, origin, _SMALL if small else None)
        answers += ask_library(name, folder, origin, queries, costs)
    (out / "answers.jsonl").write_bytes(b"\n".join(map(orjson.dumps, answers)) + b"\n")
    tables = evaluate(evaluation) if evaluation else {}
    for name, part in zip(_PARTS, (contents, tables, figures), strict=True):
        (out / f"{name}.json").write_bytes(orjson.dumps(part, option=orjson.OPT_INDENT_2))
    report = BenchmarkReport("golden record", {"answers": len(answers)})
    for figure in figures["atlas"]:
        report.add("Costs", figure, **{name: costs.get(figure) for name, costs in figures.items()})
    return report


def write_papers(documents: list[Path], out: Path) -> None:
    """Choose documents of medium length by the hash of their names; write most as papers, the others as drafts."""
    chosen = heapq.nsmallest(_PAPERS + _DRAFTS, read_documents(documents))
    for number, (digest, name, latex) in enumerate(chosen):
        folder = out / ("papers" if number < _PAPERS else "drafts")
        folder.mkdir(exist_ok=True)
        # A year that follows from the name lets filters by year select something.
        year = 1950 + int(digest, 16) % 70
        (folder / f"{name}.tex").write_text(f"\\date{{{year}}}\n{latex}", "utf-8")


def read_documents(files: list[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield hash, name and LaTeX of the documents that may be chosen."""
    for file in files:
        with file.open("rb") as stream:
            reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            for line in io.BufferedReader(reader):
                document = orjson.loads(line)
                name, latex = document["doc_id"], document["latex"]
                displays = latex.count(r"\begin{equation") + latex.count(r"\begin{align") + latex.count(r"\[")
                if displays in _DISPLAYS and not document["ai_suspected"]:
                    yield hashlib.sha256(name.encode()).hexdigest(), name, latex


def export(folder: Path, source: str, costs: Json) -> list[Json]:
    """Return all equations of a library as `eqkin export` prints them; build the library if there is none."""
    is_new = not folder.exists()
    if is_new:
        log(f"building {folder}")
        added = run_eqkin("add", source, "--jobs", 2, "--no-index", "--library", folder)[1]
        indexed = run_eqkin("index", "--library", folder)[1]
    file = folder.parent / f"{folder.name}.jsonl"
    run_eqkin("export", "--failed", "--library", folder, "--out", file)
    equations = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    file.unlink()
    if is_new:
        sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        index = sum(size for path, size in sizes.items() if path.is_relative_to(folder / "index"))
        count = len(equations)
        costs |= {"equations": count, "add_ms": 1e3 * added / count, "index_ms": 1e3 * indexed / count}
        costs |= {"bytes": sum(sizes.values()) / count, "index_bytes": index / count}
    return equations


def run_eqkin(*arguments: object) -> tuple[bytes, float]:
    """Run `eqkin` in a new process; return what it printed and the seconds that processors worked."""
    before = os.times()
    command = [sys.executable, "-m", "eqkin", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    # A search that finds nothing exits with 1.
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(command)}")
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, seconds


def digest_papers(equations: list[Json]) -> Json:
    """Return a digest of each field of all equations of each paper, and of their number."""
    digests: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(hashlib.sha256))
    for equation in equations:
        for field, value in equation.items():
            digests[equation["paper"]][field].update(orjson.dumps(value) + b"\n")
    return {paper: {field: one.hexdigest()[:16] for field, one in by.items()} for paper, by in digests.items()}


def make_queries(equations: list[Json], origin: Path, most: int | None) -> list[Query]:
    """Make queries of every kind, and at most this many of each."""
    found = {"".join(one["latex"].split()): one for one in equations if one["status"] == "converted"}
    usual = [one for latex, one in found.items() if 12 <= len(latex) <= 250]
    usual.sort(key=lambda one: hashlib.sha256(one["id"].encode()).digest())
    stored = [one["latex"] for one in usual]
    drafts = sorted((origin / "drafts").glob("*.tex"))
    others = []
    for draft in drafts:
        displays = [(match[3] or match[4]).strip() for match in _DISPLAY.finditer(draft.read_text("utf-8"))]
        # The first and the fifth: neighbours are often lines of one derivation.
        others += displays[:8:4]
    texts: Json = orjson.loads(_QUERIES.read_bytes())
    queries: dict[str, list[Any]] = dict(texts)
    queries["mixed"] = [one if isinstance(one, str) else (one[0], {"text": one[1]}) for one in texts["mixed"]]
    queries["stored"] = stored[:80]
    queries["other"] = others
    queries["page"] = [(one, {"offset": 10}) for one in texts["names"][:5] + stored[80:90]]
    queries["filter"] = list(make_filters(usual[:10]))
    queries["like"] = [one["id"] for one in usual[90:105]]
    queries["paper"] = sorted({one["paper"] for one in usual})[:10]
    queries["draft"] = [str(one.relative_to(origin)) for one in drafts[:10]]
    made = []
    for kind, some in queries.items():
        for one in some[:most]:
            text, options = (one, {}) if isinstance(one, str) else one
            made.append({"kind": kind, "query": text, "options": options})
    return made


def make_filters(equations: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield queries with filters that some papers pass."""
    for equation in equations:
        options: list[Json] = [{"paper": equation["paper"]}, {"year": [1960, 1990]}, {"language": "en"}]
        if equation["fields"]:
            options.append({"field": equation["fields"][0]})
        for option in options:
            yield equation["latex"], option
            yield "energy", option


def ask_library(name: str, folder: Path, origin: Path, queries: list[Query], costs: Json) -> list[Json]:
    """Answer all queries; add what they cost."""
    formula = r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}"
    runs = [run_eqkin("search", formula, "--library", folder, "--json")[1] for _ in range(3)]
    costs["first_search_ms"] = 1e3 * min(runs)
    answers = []
    seconds: dict[str, list[float]] = defaultdict(list)
    with eqkin.Library.open(folder) as library:
        # Compiled loops are loaded, and every file has been read once, before anything is timed.
        for text in (formula, "entropy", r"a^2 + ?b", "Ising model -J sum s_i s_j"):
            for fresh in (text, f"{text} x"):
                library.search(fresh, k=_HITS, explain=True)
        costs |= count_functions(library)
        for query in queries:
            before = time.process_time()
            answer = ask(library, folder, origin, query)
            seconds[query["kind"]].append(time.process_time() - before)
            asked = {key: query[key] for key in ("kind", "query", "options")}
            answers.append({"library": name, **asked, **answer})
    times = seconds.pop("stored") + seconds.pop("other", [])
    costs |= {"search_median_ms": 1e3 * statistics.median(times), "search_mean_ms": 1e3 * statistics.mean(times)}
    costs |= {f"{kind}_median_ms": 1e3 * statistics.median(some) for kind, some in seconds.items() if kind != "like"}
    return answers


def ask(library: eqkin.Library, folder: Path, origin: Path, query: Query) -> Json:
    """Return the hits of one query, or the kind of error."""
    text, options = query["query"], query["options"]
    try:
        if query["kind"] in ("paper", "draft"):
            paper = origin / text if query["kind"] == "draft" else text
            return {
                "hits": [
                    {"id": hit.paper.key, "score": round(hit.score, 5)}
                    for hit in library.similar_papers(paper, k=_HITS)
                ]
            }
        if query["kind"] == "like":
            printed = run_eqkin("search", "--like", text, "--library", folder, "-k", _HITS, "--explain", "--json")[0]
            hits = orjson.loads(printed)["hits"]
        else:
            results = library.search(text, k=_HITS, explain=True, **options)
            hits = orjson.loads(orjson.dumps(list(results.hits), option=orjson.OPT_SERIALIZE_NUMPY))
    # A version that is being rebuilt may fail in any way: that is an answer, too.
    except Exception as error:
        return {"hits": [], "error": type(error).__name__}
    return {"hits": [read_hit(hit) for hit in hits]}


def read_hit(hit: Json) -> Json:
    """Return what is compared of a hit; a marked part is the place of its element, its class and its text."""
    parts = []
    for place, element in enumerate(ElementTree.fromstring(hit["marked"]).iter() if hit["marked"] else ()):
        if "kin" in (marks := element.get("class", "")):
            parts.append(f"{place} {marks.split()[-1]} {''.join(element.itertext())[:12]}")
    return {
        "id": hit["equation"]["id"],
        "score": round(hit["score"], 5),
        "relation": hit["relation"],
        "parts": parts,
        "renaming": hit.get("renaming"),
        "law": hit.get("name"),
        "duplicates": hit.get("duplicates", hit.get("same")),
        "hidden": hit.get("hidden", hit.get("more")),
    }


def count_functions(library: eqkin.Library) -> Json:
    """Count the functions of eqkin that one search runs, and the files that they are in."""
    ran = set()

    def notice(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and "eqkin" in Path(code.co_filename).parts and not code.co_name.startswith("<"):
            ran.add((code.co_filename, code.co_qualname))

    sys.setprofile(notice)
    library.search(r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}", k=_HITS, explain=True)
    sys.setprofile(None)
    return {"functions": len(ran), "files": len({file for file, _ in ran})}


def evaluate(folder: Path) -> Json:
    """Return the scores of eqkin and of its vector alone, by system, set and measure, with their intervals."""
    tables: Json = {"eqkin": {}, "eqkin, vector alone": {}}
    for judged in sorted(path.parent for path in folder.glob("*/topics.tsv")):
        log(f"evaluating {judged.name}")
        printed = run_eqkin("evaluate", "judged", judged, "--systems", "eqkin,eqkin-vector", "--json")[0]
        for system in orjson.loads(printed)["systems"]:
            scores = system["scores"].items()
            tables[system["title"]][judged.name] = {key: [one["value"], one["low"], one["high"]] for key, one in scores}
    for labelled in sorted(folder.glob("*.json")):
        first = orjson.loads(labelled.read_bytes())[0]
        if not {"latex", "label"} <= first.keys():
            continue
        log(f"evaluating {labelled.name}")
        scores = orjson.loads(run_eqkin("evaluate", "labelled", labelled, "--json")[0])
        intervals = scores["intervals"]
        parts = ((scores, intervals), (scores["embedding"], intervals["embedding"]))
        for system, (values, bounds) in zip(tables, parts, strict=True):
            percents = {key: [values[key], *bounds[key]] for key in ("accuracy", "ranking")}
            tables[system][labelled.stem] = {key: [one / 100 for one in some] for key, some in percents.items()}
    return tables


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Folder of a recording.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Folder of a later recording.")],
    shown: Annotated[int, typer.Option(min=0, metavar="N", help="Differences to show.")] = 20,
) -> BenchmarkReport:
    """Compare two recordings; exit with code 1 if answers or contents differ.

    **Example**

        python -m benchmarks golden compare before after
    """
    report = BenchmarkReport("golden compare", {"errors": 0})
    before, after = (read_answers(one / "answers.jsonl") for one in (old, new))
    compare_answers(report, before, after, shown)
    contents, tables, figures = ([load(one / f"{name}.json") for one in (old, new)] for name in _PARTS)
    for name in [name for name in contents[0] if name in contents[1]]:
        compare_contents(report, name, *(one[name] for one in contents))
    if all(tables):
        compare_tables(report, *tables)
    for name in [name for name in figures[0] if name in figures[1]]:
        for figure, value in figures[0][name].items():
            other = figures[1][name].get(figure)
            report.add("Costs", f"{name}: {figure}", old=value, new=other, ratio=other / value if other else None)
    return report


def read_answers(file: Path) -> dict[bytes, Json]:
    """Return the answers of a recording by library, kind, query and options."""
    answers = map(orjson.loads, file.read_bytes().splitlines())
    return {orjson.dumps([one[key] for key in ("library", "kind", "query", "options")]): one for one in answers}


def compare_answers(report: BenchmarkReport, old: dict[bytes, Json], new: dict[bytes, Json], shown: int) -> None:
    """Count the queries of each kind whose answers differ, by what differs, and show the first."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for key, before in old.items():
        after = new.get(key, {"hits": [], "error": "not asked"})
        row = counts[f"{before['library']}: {before['kind']}"]
        differences = list_differences(before, after)
        row["queries"] += 1
        row["identical"] += not differences
        for name in differences:
            row[name] += 1
        report.facts["errors"] += bool(differences)
        if differences and len(report.tables.get("Differences", ())) < shown:
            title = f"{before['library']}: {before['query'][:60]} {before['options'] or ''}"
            texts = [f"{name}: {first} -> {second}" for name, (first, second) in differences.items()]
            report.add("Differences", title, what="\n".join(texts))
    for kind, row in counts.items():
        report.add("Answers", kind, **row)


def list_differences(old: Json, new: Json) -> dict[str, tuple[str, str]]:
    """Return what differs between two answers: old and new, shortened."""
    differences = {}
    if old.get("error") != new.get("error"):
        differences["error"] = (str(old.get("error")), str(new.get("error")))
    before, after = ([hit["id"] for hit in one["hits"]] for one in (old, new))
    gone = [one for one in before if one not in after]
    come = [one for one in after if one not in before]
    if gone or come:
        differences["ids"] = (", ".join(gone), ", ".join(come))
    elif before != after:
        ranks = [str(after.index(one) + 1) for one in before]
        differences["order"] = ("1 to n", ", ".join(ranks))
    hits = {hit["id"]: hit for hit in new["hits"]}
    for rank, hit in enumerate(old["hits"], 1):
        other = hits.get(hit["id"], hit)
        for name, value in hit.items():
            # A score that lies between two roundings may fall on either side.
            is_close = name == "score" and abs(value - other["score"]) < 1.5e-5
            if value != other.get(name) and not is_close and name not in differences:
                differences[name] = (f"rank {rank}: {value!s:.100}", f"{other.get(name)!s:.100}")
    return differences


def compare_contents(report: BenchmarkReport, library: str, old: Json, new: Json) -> None:
    """Count the papers whose fields differ."""
    fields: dict[str, list[str]] = defaultdict(list)
    for paper in old.keys() | new.keys():
        before, after = old.get(paper, {}), new.get(paper, {})
        for field in before.keys() | after.keys():
            if before.get(field) != after.get(field):
                fields[field].append(paper)
    report.add("Contents", library, papers=len(old), fields_that_differ=len(fields))
    for field, papers in fields.items():
        report.add("Contents", f"{library}: {field}", papers=len(papers), such_as=min(papers))
        report.facts["errors"] += len(papers)


def compare_tables(report: BenchmarkReport, old: Json, new: Json) -> None:
    """Show the scores of each system side by side, and their mean over sets, in which all measures of a set count."""
    for system, sets in old.items():
        means = []
        for name, measures in sets.items():
            pairs = {measure: (score, new[system][name][measure][0]) for measure, score in measures.items()}
            for measure, ((before, low, high), after) in pairs.items():
                row = f"{name}, {measure}"
                report.add(f"Scores of {system}", row, old=before, low=low, high=high, new=after, change=after - before)
            means.append([statistics.mean(score[0] for score, _ in pairs.values())])
            means[-1].append(statistics.mean(after for _, after in pairs.values()))
        mean_before, mean_after = map(statistics.mean, zip(*means, strict=True))
        change = mean_after - mean_before
        report.add(f"Scores of {system}", "mean over sets", old=mean_before, new=mean_after, change=change)


def load(file: Path) -> Json:
    """Return a part of a recording; nothing if it was not recorded."""
    part: Json = orjson.loads(file.read_bytes()) if file.exists() else {}
    return part


app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Record golden answers and compare them.")
app.command("record")(record)
app.command("compare")(compare)
