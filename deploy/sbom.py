"""Write a software bill of materials in the format of CycloneDX: pinned Python packages, npm packages in the wheel.

    python deploy/sbom.py > sbom.json

The Python packages are those of the tested environment; a plain installation has a part of them.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def list_python_packages(constraints: str) -> list[dict[str, Any]]:
    """Return a component for each line `name==version`."""
    components = []
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", constraints, re.MULTILINE):
        purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
        components.append({"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl})
    return components


def list_npm_packages(pins: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a component for each npm package that is a part of the wheel."""
    components = []
    for pin in pins:
        if not pin.get("dev"):
            purl = f"pkg:npm/{pin['name'].replace('@', '%40')}@{pin['version']}"
            digest = base64.b64decode(pin["integrity"].removeprefix("sha512-")).hex()
            hashes = [{"alg": "SHA-512", "content": digest}]
            component = {"type": "library", "name": pin["name"], "version": pin["version"], "purl": purl}
            components.append(component | {"bom-ref": purl, "hashes": hashes})
    return components


def build_sbom(root: Path = ROOT) -> dict[str, Any]:
    """Build the bill of materials; the same for the same pins."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    about = project["project"]
    components = list_python_packages((root / "constraints.txt").read_text("utf-8"))
    components += list_npm_packages(project["tool"]["eqkin"]["npm"])
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([about["version"], components]))
    purl = f"pkg:pypi/eqkin@{about['version']}"
    licenses = [{"license": {"id": about["license"]}}]
    eqkin = {"type": "application", "name": "eqkin", "version": about["version"], "purl": purl, "bom-ref": purl}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": eqkin | {"licenses": licenses}},
        "components": components,
    }


if __name__ == "__main__":
    json.dump(build_sbom(), sys.stdout, indent=1)
    sys.stdout.write("\n")
