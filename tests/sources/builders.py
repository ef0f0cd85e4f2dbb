"""Archives and pages the tests read, made in memory, and what holds for everything that is read."""

import gzip
import io
import tarfile
from collections.abc import Callable

from eqkin.errors import EqkinError
from eqkin.latex.outline import parse
from eqkin.sources.paper import Paper

LONG = 300_000  # characters: read in about a second, but in many minutes by code that is quadratic in them

TEX = rb"\documentclass{article}\begin{document}\begin{equation}a=b\end{equation}\end{document}"


def tar_of(files: dict[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in extra:
            tar.addfile(info)
        for name, raw in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return buffer.getvalue()


def gz(raw: bytes) -> bytes:
    return gzip.compress(raw, mtime=0)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def repeat(piece: str, length: int = LONG) -> str:
    return piece * (length // len(piece))


def check_paper(paper: Paper, size: int) -> None:
    """Assert what every reader promises of a paper read from a source of `size` characters or bytes."""
    assert len(paper.text) <= 8 * size + 1_000
    assert "\0" not in paper.text
    paper.text.encode()  # no lone surrogates
    document = parse(paper.text, paper.styles, paper.bibliography)
    assert document.sections
    assert all(0 <= equation.section < len(document.sections) for equation in document.equations)


def check_read_or_refused(read: Callable[[], Paper], size: int) -> None:
    """Assert that a source gives a sound paper, or an error of eqkin's that says what is wrong with it."""
    try:
        paper = read()
    except EqkinError as error:
        assert len(str(error)) > 10
    else:
        check_paper(paper, size)


def squeezed(text: str) -> str:
    """Text without white space, to compare what it says."""
    return "".join(text.split())
