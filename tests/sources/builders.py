"""Archives and pages the tests read, made in memory."""

import gzip
import io
import tarfile

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


def squeezed(text: str) -> str:
    """Text without white space, to compare what it says."""
    return "".join(text.split())
