"""Where the command line's files are: here, on the server's machine, or at a URL."""

from pathlib import Path

import typer

from vllm_raster_io.sources import SCHEMES, ServerPath, Source

SERVER = "server:"
"""What a path on the server's machine begins with, as a host's does in scp and rsync."""


def scene_of(text: str) -> Source:
    """What is to be mapped.

    Raises:
        BadParameter: It is a file of this machine that is not there.
    """
    if text.startswith(SERVER):
        return ServerPath(text.removeprefix(SERVER))
    if text.lower().startswith(SCHEMES):
        return text
    if not Path(text).is_file():
        raise typer.BadParameter(
            f"There is no file {text!r} on this machine; one that the server reads itself is "
            f"{SERVER}PATH, or a URL"
        )
    return Path(text)


def place_of(text: str) -> Path | ServerPath:
    """Where a map is to be written."""
    if text.startswith(SERVER):
        return ServerPath(text.removeprefix(SERVER))
    return Path(text)


def map_fields(
    out: Path | ServerPath, confidence: str | None, overwrite: bool
) -> dict[str, object]:
    """The fields of a request that say where its map and its file of confidence are to be.

    Raises:
        BadParameter: One is to be here and the other on the server; or what is here is asked for
            as if it were on the server.
    """
    there = isinstance(out, ServerPath)
    if confidence is not None and there != (confidence == SERVER):
        raise typer.BadParameter(
            f"--confidence must be {SERVER} where the map is on the server: it stands beside it"
            if there
            else "--confidence must be a file on this machine, as the map is"
        )
    asked: dict[str, object] = {"confidence": True if confidence is not None else None}
    if not there:
        if overwrite:
            raise typer.BadParameter(f"--overwrite is for maps on the server, {SERVER}PATH")
        return asked
    where = {"out_path": str(out) or None, "overwrite": overwrite or None}
    return {**asked, "out_data_format": "path", **where}


def check_files(map_file: Path, confidence: str | None, preview: Path | None) -> None:
    """Looks, before anything is asked, whether what comes back can be written.

    Raises:
        BadParameter: Two of the files are one, or a folder is not there.
    """
    beside = {"--confidence": Path(confidence) if confidence else None, "--preview": preview}
    files = {"the map": map_file} | {name: one for name, one in beside.items() if one is not None}
    for name, one in files.items():
        if not one.parent.is_dir():
            raise typer.BadParameter(f"There is no folder {str(one.parent)!r} for {str(one)!r}")
        for other, its in files.items():
            if other != name and one.resolve() == its.resolve():
                raise typer.BadParameter(f"{name} and {other} are to be one file, {str(one)!r}")


def local_file(scene: Source) -> Path:
    """A scene that is on this machine.

    Raises:
        BadParameter: It is not.
    """
    if not isinstance(scene, Path):
        raise typer.BadParameter("--preview shows the scene, which must be on this machine for it")
    return scene
