"""Files of the server that clients may name: only what lies under a root, wherever links lead.

A name is looked up with `O_PATH`, which gives a hold on what is there but opens nothing, so that
no device or pipe is touched; then the kernel says where that very thing lies, and only then is it
opened through the hold. Nothing that changes in between leads anywhere else. A name that is not
under a root as it stands is not looked up at all.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from vllm_raster_io.errors import AccessError
from vllm_raster_io.files import DiskFile

_LONGEST = 4096
_NOT_TO_READ = (
    "`data` names no file that may be read: with data_format 'path' it must be the path of a "
    "regular file in one of the folders that this server is set up to read from"
)


@dataclass(frozen=True)
class Root:
    """A folder under which files may be named.

    Attributes:
        given: As whoever started the server named it, absolute.
        resolved: Without links.
    """

    given: str
    resolved: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a setting.

        Raises:
            ValueError: It is no folder that may be a root; says what was expected.
        """
        if "\0" in text or not os.path.isabs(text):
            raise ValueError("should be an absolute path")
        try:
            resolved = os.path.realpath(text, strict=True)
        except OSError as error:
            several = "; between several stands a comma" if ":" in text or ";" in text else ""
            raise ValueError(
                f"should be a folder that exists ({error.strerror}){several}"
            ) from None
        if not os.path.isdir(resolved):
            raise ValueError("should be a folder, and is none")
        if resolved in ("/", "/dev") or resolved.startswith(("/proc", "/sys")):
            raise ValueError("should be a folder of rasters, not the whole system's")
        return cls(os.path.normpath(text), resolved)

    def holds(self, path: str) -> bool:
        """Whether an absolute path begins with the root's, in either form."""
        return any(path.startswith(f"{one}/") or path == one for one in (self.given, self.resolved))


def open_file(name: str, roots: Sequence[Root]) -> DiskFile:
    """Opens a file that a client names.

    Args:
        name: A path under a root, or relative to one; of several, the first that has it.
        roots: Where files may be read.

    Raises:
        AccessError: There is no such file that may be read. Of anything else that could be the
            reason, existence outside of the roots above all, the message says nothing.
    """
    with held(name, roots) as hold:
        if hold is None or not stat.S_ISREG(os.fstat(hold).st_mode):
            raise AccessError(_NOT_TO_READ)
        try:
            return DiskFile(os.open(name_of(hold), os.O_RDONLY))
        except OSError:
            raise AccessError(_NOT_TO_READ) from None


@contextmanager
def held(name: str, roots: Sequence[Root]) -> Iterator[int | None]:
    """A hold on what a name leads to, or None where that is nothing under a root.

    Args:
        name: A path under a root, or relative to one; of several, the first that has it.
        roots: Where it may lead.
    """
    hold = next(_holds(name, roots), None)
    try:
        yield hold
    finally:
        if hold is not None:
            os.close(hold)


def _holds(name: str, roots: Sequence[Root]) -> Iterator[int]:
    for path in _places(name, roots):
        try:
            path.encode()  # Python takes some that are no text
            hold = os.open(path, os.O_PATH)
        except (OSError, ValueError):
            continue
        if _lies_within(hold, roots):
            yield hold
        else:
            os.close(hold)


def _places(name: str, roots: Sequence[Root]) -> list[str]:
    """Where a name may be looked up."""
    if "\0" in name or len(name) > _LONGEST or ".." in name.split("/"):
        return []
    if not os.path.isabs(name):
        return [os.path.join(root.resolved, name) for root in roots]
    path = os.path.normpath(f"/{name.lstrip('/')}")
    return [path] if any(root.holds(path) for root in roots) else []


def _lies_within(hold: int, roots: Sequence[Root]) -> bool:
    try:
        path = os.readlink(name_of(hold))
    except OSError:
        return False
    return any(path == one.resolved or path.startswith(f"{one.resolved}/") for one in roots)


def name_of(descriptor: int) -> str:
    """The path that leads to what is held, whatever has become of its own."""
    return f"/proc/self/fd/{descriptor}"
