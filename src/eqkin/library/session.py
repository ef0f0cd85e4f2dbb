"""The time during which a library is made or written: the lock, the batches, and the manifest last."""

from __future__ import annotations

from pathlib import Path

from eqkin.errors import BadInput, CorruptData, StorageFailed, Unreachable
from eqkin.library import database
from eqkin.library.manifest import MANIFEST_NAME, LibraryManifest
from eqkin.library.writer import LibraryWriter
from eqkin.mathml.converter import get_converter_identity
from eqkin.storage import WriterLock, hash_file, sync_folder


class WritingSession:
    """Context manager that gives a `Writer`, alone with the library, and seals what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = WriterLock(folder)

    def __enter__(self) -> LibraryWriter:
        self.lock.__enter__()
        try:
            self.manifest = LibraryManifest.load(self.folder)  # as the last writer left it
            self.connection = database.connect(self.folder / database.DATABASE_NAME, write=True)
            self.writer = LibraryWriter(self.folder, self.connection, self._unseal)
            self.writer.delete_unused_files()
        except BaseException:
            self.lock.__exit__(None, None, None)
            raise
        return self.writer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            # what was read before an interruption, or before the cluster that read it was lost, is kept
            if kind is None or issubclass(kind, KeyboardInterrupt | Unreachable):
                self.writer.compact()
            self._seal()
        except OSError as problem:
            raise StorageFailed(
                f"{self.folder}: {problem.strerror or problem}; what was committed is intact"
            ) from problem
        finally:
            self.connection.close()
            self.lock.__exit__(None, None, None)

    def _unseal(self) -> None:
        if self.manifest.sealed:
            self.manifest = self.manifest.unseal()
            self.manifest.save(self.folder)

    def _seal(self) -> None:
        if not self.manifest.sealed:
            content = hash_file(self.folder / database.DATABASE_NAME)
            self.manifest = self.manifest.seal(database.read_generation(self.connection), content)
            self.manifest.save(self.folder)


def create_library(path: Path) -> None:
    """Make an empty library in a folder that holds nothing else."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # what a library being made may have left behind when it was killed
        ours = {"lock", "forest", database.DATABASE_NAME, f"{database.DATABASE_NAME}-journal"}
        strangers = [
            p.name for p in path.iterdir() if p.name not in ours and not p.name.startswith(f".{MANIFEST_NAME}.")
        ]
        if strangers:
            raise BadInput(
                f"{path}: the folder is not empty and not a library (it holds {strangers[0]}); choose another one"
            )
        with WriterLock(path):
            if (path / MANIFEST_NAME).exists():
                return  # someone else was faster
            if (path / database.DATABASE_NAME).exists() and not database.is_empty(path / database.DATABASE_NAME):
                raise CorruptData(f"{path}: holds {database.DATABASE_NAME} but no {MANIFEST_NAME}; it was not touched")
            (path / "forest").mkdir(exist_ok=True)
            for leftover in path.glob(
                f"{database.DATABASE_NAME}*"
            ):  # of a library that was being made when it was killed
                leftover.unlink()
            database.create_database(path / database.DATABASE_NAME)
            LibraryManifest(get_converter_identity()).seal(0, hash_file(path / database.DATABASE_NAME)).save(path)
            sync_folder(path.parent)
    except OSError as error:
        raise StorageFailed(f"{path}: no library can be made there ({error.strerror or error})") from error
