"""Counts what a server's processes send one another: a plugin of vLLM's, for `bytes.py`.

Each process adds the length of each message, once it is serialised, to a file of its own in the
folder `RASTER_BENCHMARK_BYTES`.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = "RASTER_BENCHMARK_BYTES"
_MESSAGES = {"EngineCoreRequest": "to_engine", "EngineCoreOutputs": "from_engine"}


def install() -> None:
    """Counts in this process from now on; what vLLM calls."""
    from vllm.v1.serial_utils import MsgpackEncoder

    if FOLDER in os.environ and MsgpackEncoder.encode.__module__ != __name__:
        _count_messages(MsgpackEncoder)
        _count_queues()


def counted(folder: Path) -> Counter[str]:
    """The bytes sent so far, by their way."""
    total: Counter[str] = Counter()
    for one in folder.glob("*.bytes"):
        for line in one.read_text().splitlines():
            way, length = line.split()
            total[way] += int(length)
    return total


def _note(way: str, buffers: Sequence[Any]) -> None:
    length = sum(memoryview(one).nbytes for one in buffers)
    with (Path(os.environ[FOLDER]) / f"{os.getpid()}.bytes").open("a") as file:
        file.write(f"{way} {length}\n")


def _count_messages(encoder: Any) -> None:
    """Between the server and the engine."""
    encode_at_once, encode_into_buffer = encoder.encode, encoder.encode_into

    def encode(self: Any, obj: Any) -> Any:
        buffers = encode_at_once(self, obj)
        if way := _MESSAGES.get(type(obj).__name__):
            _note(way, buffers)
        return buffers

    def encode_into(self: Any, obj: Any, buffer: bytearray) -> Any:
        buffers = encode_into_buffer(self, obj, buffer)
        if way := _MESSAGES.get(type(obj).__name__):
            _note(way, buffers)
        return buffers

    encoder.encode, encoder.encode_into = encode, encode_into


def _count_queues() -> None:
    """Between the engine and its worker, where that is a process of its own."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    enqueue_at_once, acquire = MessageQueue.enqueue, MessageQueue.acquire_write

    def enqueue(self: Any, obj: Any, timeout: float | None = None) -> None:
        # What is called, with its arguments; or a status and a result.
        self.counted_way = "to_worker" if len(obj) == 4 else "from_worker"
        if not hasattr(self.local_socket, "counted"):
            self.local_socket = _Socket(self.local_socket, self)
        enqueue_at_once(self, obj, timeout)

    @contextmanager
    def acquire_write(self: Any, *args: Any, **kwargs: Any) -> Iterator[memoryview]:
        with acquire(self, *args, **kwargs) as buffer:
            yield buffer
            if not buffer[0]:
                _note(self.counted_way, list(_in_ring(buffer)))

    MessageQueue.enqueue, MessageQueue.acquire_write = enqueue, acquire_write


class _Socket:
    """Takes what does not fit into the ring of shared memory."""

    counted = True

    def __init__(self, socket: Any, queue: Any) -> None:
        self._socket, self._queue = socket, queue

    def send_multipart(self, buffers: Sequence[Any], **named: Any) -> Any:
        _note(self._queue.counted_way, buffers)
        return self._socket.send_multipart(buffers, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def _in_ring(buffer: memoryview) -> Iterator[memoryview]:
    """The parts of a message: their number in two bytes, and before each its length in four."""
    at = 3
    for _ in range(int.from_bytes(buffer[1:at], "big")):
        begin = at + 4
        at = begin + int.from_bytes(buffer[at:begin], "big")
        yield buffer[begin:at]
