"""What a user gets: names, versions, a light import, pinned dependencies and npm packages that are the right ones."""

import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import eqkin
from tests.conftest import COMPILED_MODULES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = {"torch", "numpy", "matplotlib", "py_mini_racer", "rich", "typer", "safetensors", "sqlite3"}


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return normalise(found.group())


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_version_is_the_one_in_pyproject():
    assert eqkin.__version__ == version("eqkin") == PROJECT["project"]["version"]


def test_module_prints_the_version():
    run = subprocess.run([sys.executable, "-m", "eqkin", "--version"], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout.strip()) == (0, f"eqkin {eqkin.__version__}"), run.stderr


def test_public_names_load_and_unknown_ones_do_not():
    for name in eqkin.__all__:
        assert getattr(eqkin, name) is not None
        assert name in dir(eqkin)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = eqkin.Nonsense


def test_importing_eqkin_loads_nothing_heavy():
    code = "import sys, json, eqkin; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not HEAVY & set(json.loads(run.stdout))


def test_no_third_party_file_is_in_git():
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if run.returncode:
        pytest.skip("not a git checkout")
    names = [Path(path).name for path in run.stdout.split("\0") if path]
    assert "pyproject.toml" in names
    third_party = [
        name
        for name in names
        if name.endswith((".min.js", ".min.css", ".whl", ".tgz", ".woff2"))
        or name in {"katex.json", "katex.LICENSE.txt"}
    ]
    assert third_party == []


def test_constraints_pin_every_dependency_inside_its_range():
    packaging = pytest.importorskip("packaging.requirements")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {normalise(name): pin for name, pin in pins.items()}
    project = PROJECT["project"]
    wanted = project["dependencies"] + sum(project["optional-dependencies"].values(), [])
    assert [text for text in wanted if parse_requirement_name(text) not in pins] == []
    outside = [
        text for text in wanted if pins[parse_requirement_name(text)] not in packaging.Requirement(text).specifier
    ]
    assert outside == []


def test_base_install_is_without_torch():
    assert "torch" not in map(parse_requirement_name, PROJECT["project"]["dependencies"])


def test_installed_packages_are_the_pinned_ones(hook):
    pins = hook.read_pins(ROOT)
    assert [pin.name for pin in pins] == ["katex", "@fontsource/stix-two-math", "mathlive"]
    for pin in pins:
        assert hook.is_complete(ROOT, pin), f"{pin.name}: run python hatch_build.py"
    folder = files("eqkin").joinpath("formulas")
    script, about = folder.joinpath("katex.min.js").read_bytes(), folder.joinpath("katex.json").read_text("utf-8")
    assert json.loads(about)["sha256"] == hashlib.sha256(script).hexdigest()
    assert "MIT" in folder.joinpath("katex.LICENSE.txt").read_text(encoding="utf-8")


def build_wheel(folder: Path, mode: int, **environment: str) -> Path:
    """Build the wheel of a copy of the sources, whose files have a mode and are of today."""
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
    )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, folder / name)
    for path in folder.rglob("*.py"):
        path.chmod(mode)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, hook) -> Path:
    if not all(hook.is_complete(ROOT, pin) for pin in hook.read_pins(ROOT)):
        pytest.skip("the npm packages are not installed: run python hatch_build.py")
    return build_wheel(tmp_path_factory.mktemp("wheel"), 0o644)


def test_two_builds_of_the_wheel_are_identical(wheel, tmp_path):
    again = build_wheel(tmp_path, 0o600, TZ="Asia/Tokyo", PYTHONHASHSEED="7")
    assert again.name == wheel.name == f"eqkin-{eqkin.__version__}-py3-none-any.whl"
    assert again.read_bytes() == wheel.read_bytes()


def test_wheel_contains_what_is_needed_without_npm(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    vendor = "eqkin/web/static/vendor/"
    for name in (
        "eqkin/formulas/katex.min.js",
        f"{vendor}mathlive.min.mjs",
        f"{vendor}stix-two-math.woff2",
        "eqkin/py.typed",
    ):
        assert name in names
    assert sum(name.startswith(f"{vendor}fonts/KaTeX_") for name in names) == 20
    assert sum(name.endswith(".LICENSE.txt") for name in names) == 3
    assert any(name.endswith("weights.safetensors") for name in names)
    assert [name for name in names if not name.startswith(("eqkin/", f"eqkin-{eqkin.__version__}.dist-info/"))] == []
    assert [name for name in names if name.endswith((".pyc", "~", ".part", ".tmp"))] == []


def copy_compiled_loops(site: Path) -> None:
    """Copy numba's cache to an installed package, but for one module: compiling all again takes half a minute."""
    for name in COMPILED_MODULES:
        source = ROOT.joinpath("src", *name.split(".")).with_suffix(".py")
        installed = site / source.relative_to(ROOT / "src")
        if name != "eqkin.index.kernels":
            os.utime(installed, ns=(source.stat().st_mtime_ns,) * 2)  # the cache is for a file of this time
            (installed.parent / "__pycache__").mkdir(exist_ok=True)
            for path in (source.parent / "__pycache__").glob(f"{source.stem}.*.nb?"):
                shutil.copy(path, installed.parent / "__pycache__")


def test_installed_wheel_works_in_another_folder_without_npm_and_compilers(wheel, tmp_path):
    pytest.importorskip("pip")
    installing = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
    ]
    subprocess.run([*installing, str(tmp_path / "site"), str(wheel)], check=True, capture_output=True, timeout=300)
    copy_compiled_loops(tmp_path / "site")
    (tmp_path / "tools").mkdir()
    (tmp_path / "note.md").write_text("# Note\n\nMass is energy.\n\n$$E = mc^2$$\n")
    environment = {name: value for name, value in os.environ.items() if name.startswith(("SYSTEM", "TEMP", "TMP"))}
    environment |= {"PATH": str(tmp_path / "tools"), "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("-c", "import eqkin; print(eqkin.__file__)").startswith(str(tmp_path / "site"))
    run("-m", "eqkin", "add", "note.md", "--library", "library", "--jobs", "1")
    found = json.loads(run("-m", "eqkin", "search", "E = mc^2", "--library", "library", "--json"))
    assert found["hits"][0]["equation"]["latex"].strip() == "E = mc^2"


def test_bill_of_materials_lists_every_pin():
    run = subprocess.run([sys.executable, str(ROOT / "deploy" / "sbom.py")], capture_output=True, text=True, timeout=60)
    bill = json.loads(run.stdout)
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "1.6",
        "eqkin",
    )
    purls = [component["purl"] for component in bill["components"]]
    assert len(set(purls)) == len(purls)
    pins = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]
    assert {f"pkg:pypi/{normalise(name)}@{pin}" for name, pin in (line.split("==") for line in pins)} <= set(purls)
    assert [purl for purl in purls if purl.startswith("pkg:npm/")] == [
        "pkg:npm/katex@0.19.1", "pkg:npm/%40fontsource/stix-two-math@5.3.0", "pkg:npm/mathlive@0.111.1",
    ]  # fmt: skip


def make_tarball(folder, members):
    path = folder / "katex.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


SCRIPT, LICENSE = "package/dist/script.js", "package/LICENSE"


def make_pin(hook, tarball):
    integrity = hook.compute_integrity(tarball.read_bytes())
    return hook.Pin("@x/tool", "9.9.9", integrity, "src/x", {"dist/*.js": "lib/", "LICENSE": "tool.LICENSE.txt"})


def test_build_hook_installs_the_pinned_files_and_then_needs_no_network(hook, tmp_path):
    tarball = make_tarball(tmp_path, {SCRIPT: b"script", LICENSE: b"license", "package/other.js": b"other"})
    pin = make_pin(hook, tarball)
    assert not hook.is_complete(tmp_path, pin)
    hook.install(tarball, pin, tmp_path)
    assert hook.is_complete(tmp_path, pin)
    installed = sorted(str(path.relative_to(tmp_path / "src/x")) for path in (tmp_path / "src/x").rglob("*.*"))
    assert installed == ["lib/script.js", "tool.LICENSE.txt", "tool.json"]
    assert not hook.is_complete(tmp_path, pin._replace(version="9.9.10"))
    (tmp_path / "src/x/lib/script.js").write_bytes(b"changed")
    assert not hook.is_complete(tmp_path, pin)


@pytest.mark.parametrize(
    ("members", "change", "message"),
    [
        ({SCRIPT: b"script", LICENSE: b"license"}, {"integrity": "sha512-AAAA"}, "expects sha512-AAAA"),
        ({LICENSE: b"license"}, {}, r"has no dist/\*.js"),
        ({SCRIPT: None, LICENSE: b"license"}, {}, "not a regular file"),
    ],
)
def test_build_hook_refuses_another_package(hook, tmp_path, members, change, message):
    tarball = make_tarball(tmp_path, members)
    with pytest.raises(hook.PackageError, match=message):
        hook.install(tarball, make_pin(hook, tarball)._replace(**change), tmp_path)
    assert not (tmp_path / "src").exists()
