import os
import pickle
import random

import pytest

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.sources.paper import hash_paper
from eqkin.sources.readers import FolderFiles, open_source
from tests.limits import changed_limits
from tests.sources.builders import TEX, gz, tar_of


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def names(root, **options):
    prefix = f"file:{root.resolve()}/"
    return sorted(item.key.removeprefix(prefix) for item in open_source(str(root), **options))


def test_each_document_is_one_item_and_included_files_are_not(tmp_path):
    write(
        tmp_path,
        {
            "paper/main.tex": TEX.replace(b"a=b", rb"\input{parts/one}"),
            "paper/parts/one.tex": r"one \input{parts/two}",
            "paper/parts/two.tex": "two",
            "notes/alone.tex": "$$c=d$$",
            "circle/a.tex": r"A \input{b}",
            "circle/b.tex": r"B \input{a}",
            "a.md": "# A",
            "b.Rmd": "B",
            "c.qmd": "C",
            "d.ipynb": '{"cells": []}',
            "e.rst": "E",
            "f.html": "<p>F",
            "1706.03762.tar.gz": gz(tar_of({"m.tex": TEX})),
            "g.jsonl": '{"doc_id": "r1", "latex": "x"}\n',
            ".git/config.md": "no",
            "node_modules/x.md": "no",
            ".hidden.md": "no",
            "data.csv": "no",
        },
    )
    assert names(tmp_path) == [
        *["a.md", "arxiv:1706.03762", "b.Rmd", "c.qmd", "circle/a.tex", "d.ipynb", "e.rst", "f.html"],
        *["notes/alone.tex", "paper/main.tex", "record:r1"],
    ]


def test_one_file_has_one_key_under_every_spelling(tmp_path, monkeypatch):
    write(tmp_path, {"x/a.md": "A"})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    keys = {next(open_source(spec)).key for spec in ("x", "./x/", "x/a.md", str(tmp_path / "x"), "x/../x/a.md", "link")}
    assert keys == {f"file:{(tmp_path / 'x/a.md').resolve()}"}


def test_links_in_a_folder_are_reported_and_not_followed(tmp_path):
    outside = write(tmp_path / "outside", {"secret.md": "secret", "secret.tex": "secret"})
    root = write(
        tmp_path / "root",
        {"main.tex": TEX.replace(b"a=b", rb"\input{leak}\input{../outside/secret}\input{/etc/passwd}")},
    )
    (root / "leak.tex").symlink_to(outside / "secret.tex")
    (root / "dir").symlink_to(outside)
    skipped = []
    (item,) = open_source(str(root), on_skip=lambda what, why: skipped.append(os.path.basename(what)))
    paper = item.load()
    assert "secret" not in paper.text and "root:" not in paper.text
    assert sorted(skipped) == ["dir", "leak.tex"]
    assert len(paper.notes) == 3


def test_mapping_of_a_folder_holds_only_regular_files_within(tmp_path):
    root = write(tmp_path / "r", {"a.tex": "A", "d/b.tex": "B"})
    os.mkfifo(root / "pipe")
    files = FolderFiles(root)
    assert sorted(files) == ["a.tex", "d/b.tex"] and len(files) == 2
    assert files["d/../a.tex"] == b"A"
    for name in ("pipe", "d", "../x", "/etc/passwd", "a\0", ""):
        assert name not in files


def test_digest_changes_only_with_an_included_file(tmp_path):
    write(tmp_path, {"main.tex": TEX.replace(b"a=b", rb"\input{p}"), "p.tex": "one", "other.md": "x"})
    before = {item.key: item.digest or hash_paper(item.load()) for item in open_source(str(tmp_path))}
    write(tmp_path, {"p.tex": "two"})
    after = {item.key: item.digest or hash_paper(item.load()) for item in open_source(str(tmp_path))}
    changed = [key for key in before if before[key] != after[key]]
    assert [key.rpartition("/")[2] for key in changed] == ["main.tex"]
    assert all(after.values())


def test_damaged_bulk_tar_in_a_folder_does_not_end_the_walk(tmp_path):
    bulk = tar_of({f"1706/1706.0000{i}.gz": gz(TEX) for i in range(1, 4)})
    write(tmp_path, {"a.tar": bulk[:2600], "b.tar": bulk, "z.md": "# Z"})
    items = list(open_source(str(tmp_path)))
    failed = [item for item in items if item.key.endswith("a.tar")]
    assert len(failed) == 1 and len([i for i in items if i.key.startswith("arxiv:")]) >= 4
    with pytest.raises(BadInput):
        failed[0].load()
    assert items[-1].key.endswith("z.md")


@changed_limits(file_bytes=100)
def test_unreadable_documents_fail_alone(tmp_path):
    write(tmp_path, {"bad.ipynb": "not json", "long.md": "x" * 500, "long.tex": "x" * 500, "ok.md": "fine"})
    outcomes = {}
    for item in pickle.loads(pickle.dumps(list(open_source(str(tmp_path))))):
        try:
            outcomes[item.key.rpartition("/")[2]] = item.load().text
        except EqkinError as error:
            outcomes[item.key.rpartition("/")[2]] = type(error)
    assert outcomes == {"bad.ipynb": BadInput, "long.md": LimitReached, "long.tex": LimitReached, "ok.md": "fine"}


def test_file_names_that_are_not_utf8_have_clean_keys(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.md")
    with open(path, "wb") as file:
        file.write(b"# A")
    (item,) = open_source(str(tmp_path))
    item.key.encode("utf-8")
    assert item.load().title == "A"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("x.txt", r"\documentclass{article}", "tex"),
        ("x.txt", "<!doctype html><p>x", "html"),
        ("x.txt", '{"cells": []}', "ipynb"),
        ("x.txt", "see\n\n.. math:: a", "rst"),
        ("x.txt", "# Heading\n$a$", "md"),
        ("x.txt", '{"doc_id": "1", "latex": "x"}', "jsonl"),
        ("x.py", '"""Doc."""', "python"),
        ("x.LTX", "$a$", "tex"),
        ("x.MD", "a", "md"),
    ],
)
def test_single_file_is_read_by_its_suffix_or_content(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content)
    assert next(open_source(str(path))).load().kind == kind


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02" * 300, b"just words", b"BZh91AY"])
def test_file_of_unknown_kind_is_refused_with_a_list_of_readable_ones(tmp_path, content):
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"can be read.*\.ipynb"):
        open_source(str(path))


@pytest.mark.parametrize("spec", ["/no/such/thing", "", "a\0b", "1706.03762", "pipe"])
def test_path_that_is_missing_or_no_file_is_bad_input(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(BadInput):
        list(open_source(spec or "missing"))


@pytest.mark.parametrize("suffix", ["tex", "md", "rst", "html"])
def test_binary_data_is_refused_under_any_name_but_utf_16_is_text(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"x = y\n" + random.Random(1).randbytes(50_000))
    with pytest.raises(BadInput):
        next(open_source(str(path))).load()
    path.write_bytes("\ufeffword".encode("utf-16-le"))
    assert "word" in next(open_source(str(path))).load().text
