"""The scripts of the embedded engine: how they are joined, and their own tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

from eqkin.formulas import scripts
from eqkin.formulas.scripts import join_modules

TESTS = sorted(Path(__file__).with_name("js").glob("*.test.mjs"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of modules; the tests write them."""
    monkeypatch.setattr(scripts.resources, "files", lambda _: tmp_path)
    join_modules.cache_clear()
    yield tmp_path
    join_modules.cache_clear()


def test_modules_are_joined_after_those_that_they_import(package):
    (package / "main.mjs").write_text('import { b } from "./b.mjs";\n\nexport const a = () => b + 1;\n')
    (package / "b.mjs").write_text("export const b = 1;\n")
    script = join_modules("main.mjs")
    assert "import" not in script and "export" not in script
    assert script.index("const b = 1;") < script.index("const a = ")
    assert script.startswith("const { a } = ")


def test_modules_with_common_names_or_circles_are_refused(package):
    (package / "main.mjs").write_text('import { b } from "./b.mjs";\nexport const a = b;\n')
    (package / "b.mjs").write_text("export const b = 1;\nconst a = 2;\n")
    with pytest.raises(ValueError, match="a"):
        join_modules("main.mjs")
    (package / "b.mjs").write_text('import { a } from "./main.mjs";\nexport const b = a;\n')
    with pytest.raises(ValueError, match=r"main\.mjs"):
        join_modules("main.mjs")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_modules_pass_their_own_tests(path):
    done = subprocess.run(["node", "--test", path], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-5_000:]
