"""What a server serves, a library or a collection of a Milvus server; every process of it opens that for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette

from eqkin.api import Library
from eqkin.errors import EqkinError
from eqkin.library.judgements import LocalJudgements
from eqkin.search.engine import SearchEngine
from eqkin.web.app import create_app


@dataclass(frozen=True)
class ServeTarget:
    """A library's folder, or a server's address and a collection's name."""

    library: Path | None = None
    milvus: str = ""
    collection: str = ""
    model: str | None = None  # the network of the collection's vectors; None: the one that comes with eqkin
    judgements: Path | None = None  # folder for judgements of a collection; None: the current one
    hosts: tuple[str, ...] = ()  # names by which requests may call the server; empty: any
    processes: int = 1  # that serve it together

    def __str__(self) -> str:
        if self.library:
            return str(self.library)
        from eqkin.backends.milvus.connection import parse_address

        return f"the collection {self.collection} of {parse_address(self.milvus)[1]}"  # without a password

    @contextmanager
    def open_app(self, *, prepare: bool = False) -> Iterator[Starlette]:
        """The application over it, until the context ends.

        Args:
            prepare: bring a library's index up to date first; one process is enough for that.

        Raises:
            EqkinError: it cannot be opened.
        """
        with self._open_library_app(prepare) if self.library else self._open_milvus_app() as app:
            app.state.processes = self.processes
            with suppress(EqkinError):  # what is first asked need not wait for libraries and files to be opened
                app.state.service.engine.search("x", k=1)
            yield app

    @contextmanager
    def _open_library_app(self, prepare: bool) -> Iterator[Starlette]:
        assert self.library is not None
        with Library.open(self.library, create=False) as opened:
            if prepare:
                yield create_app(opened.open_engine(), LocalJudgements(opened.folder), hosts=self.hosts)
            else:
                with SearchEngine(opened) as engine:
                    yield create_app(engine, LocalJudgements(opened.folder), hosts=self.hosts)

    @contextmanager
    def _open_milvus_app(self) -> Iterator[Starlette]:
        from eqkin.backends.milvus import open_backend
        from eqkin.encoder.encoder import Encoder

        encoder, folder = Encoder.load(self.model), self.judgements or Path()
        with suppress(OSError):  # then judgements are refused, and searches answered
            folder.mkdir(parents=True, exist_ok=True)
        backend = open_backend(self.milvus, self.collection, encoder.digest)
        with SearchEngine(backend, encoder) as engine:
            yield create_app(engine, LocalJudgements(folder), hosts=self.hosts)
