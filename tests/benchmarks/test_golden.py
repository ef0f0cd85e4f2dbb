"""`python -m benchmarks golden`: two recordings of one version are identical, and a change is reported."""

from pathlib import Path
from shutil import copytree

import orjson

from tests.benchmarks.running import run


def test_golden_answers_show_what_changed(atlas_library: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        copytree(atlas_library, folder / "libraries" / "atlas")
    run("golden", "record", "--small", "--out", old)
    run("golden", "record", "--small", "--out", new, "--like", old)
    ended = run("golden", "compare", old, new)
    assert (ended.code, ended.json["facts"]["errors"]) == (0, 0)
    assert sum(row["identical"] for row in ended.json["tables"]["Answers"]) >= 20

    answers = [orjson.loads(line) for line in (new / "answers.jsonl").read_bytes().splitlines()]
    changed = next(one for one in answers if one["hits"])
    changed["hits"][0]["score"] += 0.01
    (new / "answers.jsonl").write_bytes(b"\n".join(map(orjson.dumps, answers)))
    ended = run("golden", "compare", old, new)
    report = orjson.loads(ended.out)
    assert (ended.code, report["facts"]["errors"]) == (1, 1)
    assert [row["what"].partition(":")[0] for row in report["tables"]["Differences"]] == ["score"]
