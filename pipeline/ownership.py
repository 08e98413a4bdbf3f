"""Refuses a second job on an archive: two jobs that publish at once would replace or duplicate each other's files.

On a local disk the process holds a lock on the archive until it ends. Other file systems have no such lock: there a job writes its name
into the archive, and checks before each publication that the name is still there. The job that started last continues, the other one ends
without publishing. For a moment between the check and the publication both may pass.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from barnabas.spark.archives.hadoop_files import HadoopFiles
from pipeline.errors import PipelineError

LOCK = "_lock"
OWNER = "_owner"


class OwnershipError(PipelineError):
    """Another job archives into the same folder."""


class Ownership:
    """One job's ownership of an archive."""

    def __init__(self, files: HadoopFiles, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._path = f"{self._root}/{OWNER}"
        self._name = f"{socket.gethostname()} process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        self._token = f"{uuid.uuid4().hex} {self._name}"
        self._is_shared = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raises OwnershipError when another process of this machine holds the archive."""
        self._files.make_directories(self._root)
        local = self._files.local_path(self._root)
        with contextlib.ExitStack() as stack:
            if local is None or not self._lock(Path(local) / LOCK, stack):
                self._is_shared = True
                self._files.write_text(self._path, self._token)
            yield

    def check(self) -> None:
        """Raises OwnershipError if another job has started since."""
        if not self._is_shared:
            return
        owner = self._files.read_text(self._path)
        if owner != self._token:
            raise OwnershipError(f"{owner.partition(' ')[2]} archives into {self._root} now: this job ends, the other goes on")

    def _lock(self, path: Path, stack: contextlib.ExitStack) -> bool:
        """False if the file system has no locks."""
        file = stack.enter_context(path.open("a+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            file.seek(0)
            raise OwnershipError(f"{file.read().strip() or 'another job'} archives into {self._root}: one job at a time") from e
        except OSError:
            return False
        file.truncate(0)
        file.write(f"{self._name}\n")
        file.flush()
        return True
