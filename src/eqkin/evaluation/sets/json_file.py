"""A JSON file that a person gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput


def read_json(path: Path, remedy: str) -> Any:
    """What stands in a file; raises `BadInput`, with the remedy where it is no JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); {remedy}") from error
