"""Where maps are written for clients: into folders under a root, whole or not at all."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

from vllm_raster_io.errors import AccessError, RequestError, ServingError
from vllm_raster_io.paths import Root, held, name_of

_ENDINGS = (".tif", ".tiff")
_MODE = 0o644
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NOT_TO_WRITE = (
    "`out_path` names no place that may be written to: it must be a file name that ends as its "
    "format does (a GeoTIFF's with .tif or .tiff), or nothing but a folder, and the folder must "
    "exist among those that this server is set up to write to"
)


@dataclass(frozen=True)
class Target:
    """Where a map is to be written, found to be allowed and free.

    Attributes:
        name: As the client may name it.
    """

    name: str
    _folder: str
    _file: str
    _overwrite: bool
    _roots: tuple[Root, ...]

    @classmethod
    def choose(
        cls,
        name: str | None,
        overwrite: bool,
        roots: Sequence[Root],
        endings: tuple[str, ...] = _ENDINGS,
    ) -> Self:
        """Finds the place for a map.

        Args:
            name: A file's path under a root, or relative to one, or a folder's, in which the
                file gets a random name; without it, that is the first root.
            overwrite: Whether a file may be there already.
            roots: Where files may be written, at least one.
            endings: How the file's name may end; one made up ends as the first.

        Raises:
            AccessError: It is not one where a file may be written.
            RequestError: There is one already.
        """
        folder, file = (roots[0].resolved, "") if name is None else _split(name, roots)
        shown = name
        if not file:
            file = f"{secrets.token_hex(16)}{endings[0]}"
            shown = os.path.join(name or "", file)
        if file.startswith(".") or not file.lower().endswith(endings) or not file.isprintable():
            raise AccessError(_NOT_TO_WRITE)
        target = cls(shown or file, folder, file, overwrite, tuple(roots))
        target._check()
        return target

    def beside(self, suffix: str) -> Self:
        """The place for another file in the same folder, of the same name with a suffix.

        Raises:
            AccessError: It is not one where a file may be written.
            RequestError: There is one already.
        """
        name, file = (
            f"{stem}{suffix}{ending}"
            for stem, ending in map(os.path.splitext, (self.name, self._file))
        )
        target = replace(self, name=name, _file=file)
        target._check()
        return target

    def _check(self) -> None:
        with self._opened() as folder:
            self._check_free(folder)

    def write(self, content: bytes) -> None:
        """Writes the file: all of it is there at once, or none.

        Raises:
            AccessError: The folder is not there any more.
            RequestError: There is a file of this name by now.
            ServingError: The disk is full, or the like.
        """
        with self.drafted(content):
            pass

    @contextmanager
    def drafted(self, content: bytes) -> Iterator[None]:
        """Writes the file, which gets its name where the `with` block ends without an error.

        So of two files there are both, or none.

        Raises:
            AccessError, RequestError, ServingError: As `write` does.
        """
        with self._opened() as folder:
            self._check_free(folder)
            draft = f".{secrets.token_hex(16)}.part"
            try:
                with self._telling():
                    self._write_draft(draft, folder, content)
                yield
                with self._telling():
                    self._name_draft(draft, folder)
            finally:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=folder)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise RequestError(_taken(self.name)) from None
        except OSError as error:
            raise ServingError(f"The map could not be written: {error.strerror}") from None

    def _write_draft(self, draft: str, folder: int, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(draft, flags, _MODE, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _name_draft(self, draft: str, folder: int) -> None:
        at = {"src_dir_fd": folder, "dst_dir_fd": folder}
        if not self._overwrite:
            try:
                # Unlike a rename, a second name is not given where there is one.
                return os.link(draft, self._file, **at, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            # Some file systems know no second names: an empty file keeps the place.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            os.close(os.open(self._file, flags, _MODE, dir_fd=folder))
        os.replace(draft, self._file, **at)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with held(self._folder, self._roots) as hold:
            if hold is None or not stat.S_ISDIR(os.fstat(hold).st_mode):
                raise AccessError(_NOT_TO_WRITE)
            if not os.access(name_of(hold), os.W_OK | os.X_OK):
                raise AccessError(_NOT_TO_WRITE)
            yield hold

    def _check_free(self, folder: int) -> None:
        try:
            found = os.stat(self._file, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError:
            raise AccessError(_NOT_TO_WRITE) from None
        if not self._overwrite:
            raise RequestError(_taken(self.name))
        if not stat.S_ISREG(found.st_mode):
            raise AccessError(_NOT_TO_WRITE)


def _taken(name: str) -> str:
    return (
        f"`out_path` {os.path.basename(name)!r} is there already, and files are not overwritten "
        "unless the request says `overwrite`: true. Choose another name"
    )


def _split(name: str, roots: Sequence[Root]) -> tuple[str, str]:
    """Folder and file of a path; no file where the path is a folder's."""
    if name.endswith("/"):
        return name, ""
    with held(name, roots) as hold:
        if hold is not None and stat.S_ISDIR(os.fstat(hold).st_mode):
            return name, ""
    return os.path.split(name)
