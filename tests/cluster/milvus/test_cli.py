"""The command `eqkin push`."""

import json

from typer.testing import CliRunner

from eqkin.cli import app
from eqkin.errors import BadInput, Unreachable
from tests.cluster.milvus.conftest import paper
from tests.cluster.milvus.run_server import free_port

runner = CliRunner()


def test_push_command_reports_what_it_did(lite, filled, collection):
    library = filled(paper("a", "E = mc^2", "a = b"))
    arguments = ["push", "--library", str(library.folder), "--milvus", lite.uri, "--collection", collection]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 papers pushed, 0 there already" in result.stdout
    assert f"the collection {collection} has 2" in result.stdout
    report = json.loads(runner.invoke(app, [*arguments, "--json"], env={"EQKIN_MILVUS": "nowhere"}).stdout)
    assert (report["papers"], report["unchanged"], report["collection"], report["oversized"]) == (0, 1, 2, [])
    library = filled(paper("a", "E = mc^2", "a = b"), paper("b", "x"), index=False)
    result = runner.invoke(app, arguments[:3] + arguments[5:], env={"EQKIN_MILVUS": lite.uri})
    assert (
        result.exit_code == 0 and "1 equations have no vector yet" in result.stderr and "eqkin index" in result.stderr
    )


def test_push_command_fails_with_one_line(filled):
    library = filled(paper("a", "E = mc^2"))
    arguments = ["push", "--library", str(library.folder), "--milvus"]
    nobody = runner.invoke(app, [*arguments, f"http://127.0.0.1:{free_port()}"]).exception
    assert isinstance(nobody, Unreachable) and "is it running?" in str(nobody) and Unreachable.exit_code == 9
    assert isinstance(runner.invoke(app, [*arguments, "nonsense"]).exception, BadInput)
    missing = runner.invoke(app, ["push", "--library", str(library.folder)], env={"EQKIN_MILVUS": ""})
    assert missing.exit_code == 2 and "--milvus" in missing.stderr


def test_push_help_has_examples():
    result = runner.invoke(app, ["push", "--help"]).stdout
    assert "Examples" in result and "http://localhost:19530" in result and "--prune" in result
