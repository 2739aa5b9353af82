"""Reading other people's json and yaml: data only, of a bounded size, faults told in one line."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from vllm_raster_model.errors import SourceError

_LARGEST = 16 * 2**20
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*\n", re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Plain data only: a tag that names a Python object is refused."""


# YAML 1.1 reads 1e-4 as text, Lightning's command line as a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_json(path: Path) -> dict[str, Any]:
    """Reads a json file that holds an object.

    Raises:
        SourceError: It cannot be read, is too large, or holds something else.
    """
    text = _text(path)
    try:
        return _mapping(path, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, "json", error) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a yaml file that holds a mapping; anchors are followed, tags of objects refused.

    Raises:
        SourceError: It cannot be read, is too large, or holds something else.
    """
    return _mapping(path, _plain(path, _text(path)))


def front_matter(path: Path) -> dict[str, Any]:
    """What stands in yaml at the head of a model card; empty where there is none."""
    try:
        found = _FRONT_MATTER.match(_text(path))
        whole = _plain(path, found[1]) if found else {}
    except SourceError:
        return {}
    return whole if isinstance(whole, dict) else {}


def _plain(path: Path, text: str) -> Any:
    try:
        # A subclass of the safe loader.
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise _unreadable(path, "yaml", error) from None


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise SourceError(f"There is no file {path}")
        if (size := path.stat().st_size) > _LARGEST:
            raise SourceError(f"{path} is no configuration: {size:,} bytes, at most {_LARGEST:,}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {one_line(error)}") from None


def _mapping(path: Path, whole: Any) -> dict[str, Any]:
    if not isinstance(whole, dict):
        raise SourceError(f"{path} must hold keys and values, got {type(whole).__name__}")
    return whole


def _unreadable(path: Path, language: str, error: Exception) -> SourceError:
    return SourceError(f"{path} is not {language} of plain data: {one_line(error)}")


def one_line(error: BaseException) -> str:
    """What an error says, in one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
