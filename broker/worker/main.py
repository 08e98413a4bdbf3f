"""The worker's process: reads jobs from its socket, computes them in turns, and ends when the broker's end of the socket is closed.

It is started with nothing of the broker's but that socket and stderr, holds no lock, and has no loop.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import traceback
from time import thread_time_ns
from typing import Any

from broker.worker.jobs import find_job
from broker.worker.lines import Job, Lines
from broker.worker.messages import (
    INLINE_BYTES_MAX,
    ChannelClosedError,
    Message,
    MessageReader,
    encode_message,
    memory_file,
)
from broker.worker.outgoing import Outgoing


class JobError(Exception):
    """A job ended by an exception of which no copy could be sent; the text is its traceback."""


class WorkerMain:
    """Serves one socket until its other end is closed."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._reader = MessageReader()
        self._outgoing = Outgoing(stream)
        self._lines = Lines(thread_time_ns)  # its slices are of CPU time, since it waits for processors behind the loop
        self._jobs: dict[int, Job] = {}

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        try:
            while True:
                poll.modify(self._stream, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
                for _, events in poll.poll(0 if self._lines else None):
                    if events & ~select.POLLOUT:
                        self._receive()
                self._lines.run_slice()
                self._outgoing.flush()
        except ChannelClosedError:
            pass  # the broker is gone, or wants us no longer

    def _receive(self) -> None:
        try:
            messages = self._reader.receive(self._stream)
        except BlockingIOError:
            return
        for message in messages:
            job_id, request = message.value
            if request is None:
                job = self._jobs.pop(job_id, None)
                if job is not None:
                    self._lines.remove(job)
            else:
                self._begin(job_id, request, message)

    def _begin(self, job_id: int, request: tuple[str, Any, bool], message: Message) -> None:
        name, arguments, is_short = request
        try:
            steps = find_job(name)(arguments, message.buffers)
        except Exception as error:
            self._send(job_id, error, [])
            return
        job = Job(steps, lambda outcome, taken_ns: self._done(job_id, outcome, taken_ns), is_short=is_short)
        self._jobs[job_id] = job
        self._lines.add(job)

    def _done(self, job_id: int, outcome: Any, taken_ns: int) -> None:
        if self._jobs.pop(job_id, None) is None:
            return
        if isinstance(outcome, Exception):
            self._send(job_id, outcome, [])
        else:
            value, buffers = outcome
            self._send(job_id, value, buffers, taken_ns)

    def _send(self, job_id: int, value: Any, buffers: Any, taken_ns: int = 0) -> None:
        has_file = sum(map(len, buffers)) > INLINE_BYTES_MAX
        try:
            descriptor = memory_file(buffers) if has_file else None
            data = encode_message((job_id, value, taken_ns), buffers, has_file=has_file)
        except Exception as error:  # an exception that cannot be pickled, no memory
            told = value if isinstance(value, Exception) else error
            text = "".join(traceback.format_exception(told))
            descriptor, data = None, encode_message((job_id, JobError(text), 0), [], has_file=False)
        self._outgoing.add(data, descriptor)


def run(descriptor: int, niceness: int) -> None:
    """Serve the socket of this descriptor until its other end is closed, by so much nicer than the broker."""
    # A terminal's interrupt is meant for the broker, which closes the socket when it has ended what it does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(niceness)
    stream = socket.socket(fileno=descriptor)
    stream.setblocking(False)
    WorkerMain(stream).run()
