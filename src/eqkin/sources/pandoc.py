"""Word, Org and Typst documents: pandoc converts them to LaTeX."""

from __future__ import annotations

import subprocess

from eqkin.errors import BadInput, LimitReached
from eqkin.sources.paper import Paper
from eqkin.sources.text import decode_text

PANDOC_FORMATS = {"docx": (".docx",), "org": (".org",), "typst": (".typ",)}
# Time that one document may take.
_PANDOC_SECONDS = 60.0
_PANDOC_HEAP = "1g"


def read_with_pandoc(raw: bytes, key: str, origin: str, format_name: str) -> Paper:
    """Convert one document; pandoc runs in its sandbox, so that the document cannot make it read anything else.

    Raises `BadInput` if pandoc is missing or cannot read it, `LimitReached` if it takes too long.
    """
    try:
        import pypandoc  # type: ignore[import-untyped]
    except ImportError as error:
        raise BadInput(f"{origin}: reading .{format_name} needs pandoc: pip install 'eqkin[documents]'") from error
    options = ["--sandbox", "--standalone", "--from", format_name, "--to", "latex", "--wrap", "preserve"]
    command = [pypandoc.get_pandoc_path(), *options, "+RTS", f"-M{_PANDOC_HEAP}", "-RTS"]
    try:
        done = subprocess.run(command, input=raw, capture_output=True, timeout=_PANDOC_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise LimitReached(f"{origin}: pandoc takes longer than {_PANDOC_SECONDS:.0f} seconds") from error
    if done.returncode:
        reason = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        raise BadInput(f"{origin}: pandoc cannot read it ({reason or f'status {done.returncode}'})")
    return Paper(key, decode_text(done.stdout), origin, kind=format_name)
