"""The documentation: its site builds and stands alone, links lead somewhere, and examples do what is said of them."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from eqkin.cli import app
from eqkin.library.judgements import LocalJudgements
from eqkin.search.engine import SearchEngine
from eqkin.web.app import create_app
from tests.web.conftest import chromium

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "eqkin"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
EXAMPLES = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
GENERATED = (
    "reference/",
    "notebook.md",
    "changelog.md",
    "contributing.md",
    "security.md",
)  # pages that the build makes
PAPER = r"\title{Spins} \section{Energy} A softmax. \[ E = -\sum_{i<j} J_{ij} s_i s_j \] \[ p = \frac{a}{a + b} \]"
HOME = "/home/ada"  # of the person whose terminal the tutorial shows


def read_document(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def read_sources(folder: str = "") -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((PACKAGE / folder).rglob("*.py")))


def list_commands(command, name: str) -> list[str]:
    children = getattr(command, "commands", {}).values()
    return [path for child in children for path in list_commands(child, f"{name} {child.name}")] or [name]


def iter_blocks(document: Path, language: str = "") -> Iterator[str]:
    """Yield blocks of code: those in fences (of one language), and indented ones if no language is given."""
    text = document.read_text("utf-8")
    for info, block in re.findall(r"^```(.*?)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if not language or info.split(" ")[0] == language:
            yield block
    if not language:
        plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        yield from (re.sub(r"(?m)^ {4}", "", block) for block in re.findall(r"(?m)^\n((?: {4}.*\n|\n)+)", plain))


def iter_command_lines(document: Path, program: str) -> Iterator[list[str]]:
    """Yield the arguments of a program in the examples of a document."""
    for block in iter_blocks(document):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(rf"(\$ )?{program} ", line):
                yield shlex.split(line.removeprefix("$ "), comments=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, as `make docs` does."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install 'eqkin[docs]')")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *arguments: object) -> None:
        pass


class LinkParser(HTMLParser):
    """Collects what a page links to, what it loads, and the names in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        for name in ("href", "src", "srcset", "data", "poster"):
            if name in values:
                is_link = tag == "a" or values.get("rel") in ("canonical", "next", "prev")
                (self.links if is_link else self.loaded).append(values[name])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, LinkParser]:
    return {page: LinkParser(page) for page in site.rglob("*.html")}


def test_links_of_the_site_lead_somewhere(site, pages):
    assert len(pages) > 30
    broken = []
    for page, parsed in pages.items():
        for link in parsed.links + parsed.loaded:
            target = urlsplit(link)
            if target.scheme or target.netloc or (page.name == "404.html" and link.startswith("/")):
                continue
            path = (page.parent / unquote(target.path)).resolve() if target.path else page
            path = path / "index.html" if path.is_dir() else path
            if not path.exists() or (target.fragment and unquote(target.fragment) not in pages[path].names):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_site_loads_nothing_from_other_hosts(site, pages):
    loaded = [address for parsed in pages.values() for address in parsed.loaded]
    styles = "\n".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    loaded += re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", styles)
    assert len(loaded) > 100
    assert [
        address for address in loaded if urlsplit(address).scheme not in ("", "data") or urlsplit(address).netloc
    ] == []


@pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")
def test_site_works_in_a_browser_without_a_network(site):
    playwright = pytest.importorskip("playwright.sync_api")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    asked: list[str] = []
    try:
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = browser.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{address}/matching.html")
            assert page.locator("math").count() == 2
            page.locator("input.md-search__input").click()
            page.keyboard.type("qvar")
            page.locator(".md-search-result__item").first.wait_for()
            assert "wildcards.html" in page.locator(".md-search-result__link").first.get_attribute("href")
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_reference_of_the_site_is_complete(site):
    commands = (site / "reference/commands.html").read_text("utf-8")
    names = list_commands(typer.main.get_command(app), "eqkin")
    assert len(names) > 10
    assert [name for name in names if f'<h2 id="{name.replace(" ", "-")}">' not in commands] == []
    python = (site / "reference/python.html").read_text("utf-8")
    expected = ("eqkin.Library.search", "eqkin.SearchOptions.k", "eqkin.Encoder.encode", "eqkin.errors.BadInput")
    expected += ("eqkin.evaluation.compare",)
    assert [name for name in expected if f'id="{name}"' not in python] == []
    assert "Read sources into the library" in python and "hits to skip" in python
    settings = (site / "reference/settings.html").read_text("utf-8")
    rows = dict(re.findall(r"<td><code>(\w+)</code></td>\s*<td>(.*?)</td>", settings))
    assert {"structure_weight", "dimensions", "web_hits"} <= rows.keys()
    assert [name for name, meaning in rows.items() if not meaning] == []


def test_every_route_is_documented(site):
    documented = (site / "reference/http.html").read_text("utf-8") + read_document("docs/http.md")
    routes = set(re.findall(r'router\.(?:get|post|delete)\(\s*"(/[^"]*)"', read_sources("web")))
    assert "/api/search" in routes
    assert [route for route in sorted(routes) if route.replace(":path", "") not in documented] == []


def test_every_environment_variable_is_in_the_help():
    variables = set(re.findall(r'["$](EQKIN_[A-Z]+(?:_[A-Z]+)*)', read_sources()))
    assert "EQKIN_LIBRARY" in variables
    assert [name for name in sorted(variables) if f"`{name}`" not in str(app.info.epilog)] == []


def test_every_package_is_in_the_architecture():
    architecture = read_document("docs/architecture.md")
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert len(packages) > 10
    assert [name for name in packages if f"`{name}`" not in architecture] == []


def test_modules_named_in_the_architecture_exist():
    named = re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", read_document("docs/architecture.md"))
    assert len(named) > 20
    assert [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
    assert [link for link in links if not (document.parent / link).exists() and not link.startswith(GENERATED)] == []


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda path: path.name)
def test_commands_in_documents_are_commands(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in iter_command_lines(document, "eqkin"):
        check_command(words)
    for span in re.findall(r"`eqkin ([a-z][^`]*)`", re.sub(r"(?ms)^```.*?^```", "", document.read_text("utf-8"))):
        command, rest = find_command(span.split())
        options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
        assert {word for word in rest if word.startswith("--")} <= options, span


def test_wrong_commands_in_documents_are_noticed():
    assert sum(len(list(iter_command_lines(document, "eqkin"))) for document in EXAMPLES) > 60
    for line, message in (
        ("eqkin search x --no-such-option", "No such option"),
        ("eqkin no-such-command", "no command"),
        ("eqkin search x -k many", "valid integer"),
    ):
        with pytest.raises(Exception, match=message):
            check_command(line.split())


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that some words name, and the words after its name."""
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    assert command.name != "eqkin" or not words or words[0].startswith(("-", "COMMAND")), f"no command {words[0]}"
    return command, words


def check_command(words: list[str]) -> None:
    """Parse a command line as the program does, without running it."""
    ends = [number for number, word in enumerate(words) if re.fullmatch(r"[;|<>&]+", word) or word.endswith(";")]
    command, rest = find_command([word.rstrip(";") for word in words[1 : ends[0] + 1 if ends else None]])
    rest = [word for word in rest if not re.fullmatch(r"[;|<>&]+|\.\.\.", word)]
    command.make_context(command.name, rest)


@pytest.fixture(scope="module")
def atlas_copy(atlas_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as examples expect it: a library of the atlas, papers, and a draft."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(atlas_library, folder / "my-papers")
    (folder / "papers").mkdir()
    for name in ("papers/ising.tex", "draft.tex"):
        (folder / name).write_text(PAPER)
    export = ["export", "--library", str(atlas_library), "--out", str(folder / "equations.jsonl")]
    assert CliRunner().invoke(app, export).exit_code == 0
    return folder


def test_python_examples_run(atlas_copy, monkeypatch, capsys):
    monkeypatch.chdir(atlas_copy)
    ran = 0
    for document in EXAMPLES:
        if document.name == "evaluation.md":  # tests/evaluation runs it, on a judged set
            continue
        names: dict[str, Any] = {}
        for example in iter_blocks(document, "python"):
            exec(compile(example, document.name, "exec"), names)
            ran += 1
        if "library" in names:
            names["library"].close()
    assert ran >= 4
    assert "p = \\frac{a}{a + b}" in capsys.readouterr().out


def test_python_sessions_print_what_documents_show(atlas_copy, monkeypatch):
    monkeypatch.chdir(atlas_copy)
    ran = 0
    for document in EXAMPLES:
        session = doctest.DocTestParser().get_doctest(
            "\n".join(iter_blocks(document, "pycon")), {}, document.name, str(document), 0
        )
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session)
        assert result.failed == 0
        ran += result.attempted
    assert ran > 3


def test_requests_in_documents_are_answered(atlas_copy, encoder, monkeypatch):
    monkeypatch.chdir(atlas_copy)
    answered = 0
    with SearchEngine(atlas_copy / "my-papers", encoder) as engine:
        client = TestClient(create_app(engine, LocalJudgements(atlas_copy / "my-papers")), "http://127.0.0.1")
        for document in EXAMPLES:
            for words in iter_command_lines(document, "curl"):
                response = send(client, words[1:])
                assert response.status_code == 200, f"{document.name}: {words}: {response.text}"
                answered += 1
    assert answered >= 6


def send(client: TestClient, words: list[str]) -> Any:
    """Send what a curl command would."""
    address, data, form, fields, is_get = "", "", {}, [], False
    rest = iter(words)
    for word in rest:
        if word.startswith("http"):
            target = urlsplit(word)
            address = target.path + ("?" + target.query if target.query else "")
        elif word == "--get":
            is_get = True
        elif word in ("-H", "-u"):
            next(rest)
        elif word == "--data-urlencode":
            fields.append(tuple(next(rest).split("=", 1)))
        elif word == "-d":
            data = next(rest)
        elif word == "-F":
            name, _, file = next(rest).partition("=@")
            form[name] = (file, Path(file).read_bytes())
        else:
            raise AssertionError(f"the test does not know curl {word}")
    if is_get or not (data or form):
        return client.get(address, params=fields or None)
    return client.post(address, files=form) if form else client.post(address, json=json.loads(data))


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md", "docs/matching.md"])
def test_commands_print_what_documents_show(name, atlas_library, tmp_path, monkeypatch):
    document = ROOT / name
    library = shutil.copytree(atlas_library, tmp_path / "library")
    monkeypatch.setenv("EQKIN_LIBRARY", str(library))
    monkeypatch.chdir(tmp_path)
    for file, content in re.findall(r'```\w+ title="(.*?)"\n(.*?)```', document.read_text("utf-8"), re.DOTALL):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    for block in iter_blocks(document, "console"):
        for line, shown in re.findall(r"^\$ (eqkin .*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            words = shlex.split(line.replace(HOME, str(tmp_path)))[1:]
            if words[0] in ("serve", "watch") or "atlas:" in words:  # the library has the atlas
                continue
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            if words[0] != "add":  # which prints how fast it was
                check_output(result.output.replace(str(tmp_path), HOME), shown, line)


def check_output(printed: str, shown: str, line: str) -> None:
    """Compare what a command prints with what a document shows; scores may differ a little."""
    number = r"(?<![\d.])\d\.\d{2,3}(?!\d)"
    texts = [re.sub(number, "#", text).split() for text in (printed, shown)]
    assert texts[0] == texts[1], line
    scores = [[float(score) for score in re.findall(number, text)] for text in (printed, shown)]
    assert scores[0] == pytest.approx(scores[1], abs=0.03), line


def test_readme_is_short():
    assert len(read_document("README.md").splitlines()) <= 145
