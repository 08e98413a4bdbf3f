"""Files of any file system that Spark can write to (local, hdfs:, s3a: …), through Hadoop's FileSystem in the driver's JVM.

It has no state except the gateway. Paths are strings, whole URIs or local paths. A failure raises ArchiveFileError.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ..errors import BarnabasError
from .local_files import FoundFile


class ArchiveFileError(BarnabasError):
    """A file operation failed; the message names the path and the file system's reason."""


class HadoopFiles:
    """The few operations that publishing needs. Only `move` of one file must be atomic."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """`root` chooses the file system; every path given later must be on it."""
        self._jvm: Any = spark._jvm
        configuration = spark._jsc.hadoopConfiguration()
        self._file_system = self._run(root, lambda: self._path(root).getFileSystem(configuration))
        # The local file system's wrapper keeps a hidden checksum file beside each file and cannot move both at once: a kill in between
        # leaves a file with another file's checksum. Parquet files need no such checksum.
        if self._file_system.getUri().getScheme() == "file":
            self._file_system = self._file_system.getRaw()

    def local_path(self, path: str) -> str | None:
        """The path in the local file system. None on other file systems."""
        return str(self._path(path).toUri().getPath()) if self._file_system.getUri().getScheme() == "file" else None

    def exists(self, path: str) -> bool:
        return bool(self._run(path, lambda: self._file_system.exists(self._path(path))))

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted. Empty if it does not exist."""
        if not self.exists(directory):
            return []
        return sorted(
            status.getPath().getName() for status in self._run(directory, lambda: self._file_system.listStatus(self._path(directory)))
        )

    def glob(self, pattern: str) -> list[str]:
        """The paths that match, sorted."""
        found = self._run(pattern, lambda: self._file_system.globStatus(self._path(pattern)))
        return sorted(status.getPath().toString() for status in found or [])

    def glob_files(self, pattern: str) -> list[FoundFile]:
        """The files that match, sorted by path."""
        found = self._run(pattern, lambda: self._file_system.globStatus(self._path(pattern)))
        return sorted(FoundFile(str(status.getPath().toString()), int(status.getLen())) for status in found or [])

    def read_text(self, path: str) -> str:
        def read() -> str:
            stream = self._file_system.open(self._path(path))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

        return str(self._run(path, read))

    def write_text(self, path: str, text: str) -> None:
        """Writes a temporary file and moves it to `path`, so that readers see a whole file or none."""
        scratch = f"{path}.writing"

        def write() -> None:
            stream = self._file_system.create(self._path(scratch), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

        self._run(path, write)
        self.move(scratch, path)

    def make_directories(self, path: str) -> None:
        self._run(path, lambda: self._file_system.mkdirs(self._path(path)))

    def move(self, source: str, target: str) -> None:
        """Moves one file, and replaces an older one of that name."""
        if self.exists(target):
            self.delete(target)
        if not self._run(source, lambda: self._file_system.rename(self._path(source), self._path(target))):
            raise ArchiveFileError(f"cannot move {source} to {target}")

    def delete(self, path: str) -> None:
        """Deletes a file or a whole directory, if it exists."""
        self._run(path, lambda: self._file_system.delete(self._path(path), True))

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _run(self, path: str, operation: Any) -> Any:
        try:
            return operation()
        except Py4JJavaError as e:
            raise ArchiveFileError(f"{path}: {e.java_exception.getMessage() or e.java_exception.getClass().getName()}") from e
