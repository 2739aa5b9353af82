"""What whoever starts a server allows its clients, all of it off unless said.

Each setting is an environment variable, `VLLM_RASTER_` and its name in capitals, or a key of the
TOML file that VLLM_RASTER_CONFIG names; where both are, the variable counts.
"""

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from vllm_raster_io.errors import SettingsError
from vllm_raster_io.limits import Limits
from vllm_raster_io.paths import Root
from vllm_raster_io.quoting import quoted
from vllm_raster_io.urls import HostRule

_PREFIX = "VLLM_RASTER_"
_CONFIG = "CONFIG"
_LIMIT = "max_"
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_ALIKE = 0.7
_NUMBER = re.compile(r"-?[0-9]+")


def _parsed(kind: type[Root] | type[HostRule]) -> BeforeValidator:
    def parse(value: object) -> object:
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise ValueError("should be a text")
        return kind.parse(value)

    return BeforeValidator(parse)


Roots = tuple[Annotated[Root, _parsed(Root)], ...]
Hosts = tuple[Annotated[HostRule, _parsed(HostRule)], ...]


class Settings(BaseModel):
    """What is allowed. The limits are set one by one, by the names `max_…`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read_roots: Roots = Field(
        default=(), description="Folders whose files clients may have read, by path."
    )
    write_roots: Roots = Field(
        default=(), description="Folders into which clients may have maps written."
    )
    allowed_hosts: Hosts = Field(
        default=(),
        description="Hosts from which clients may have files fetched, by URL: `host`, "
        "`host:port`, `*.domain.org`. They must have public addresses.",
    )
    allowed_private_hosts: Hosts = Field(
        default=(), description="The same, of hosts that may have private addresses; no `*`."
    )
    allow_http: StrictBool = Field(
        default=False, description="Whether URLs may begin with http:// too."
    )
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for root in self.read_roots:
            _check_access(root, "read_roots", os.R_OK | os.X_OK, "read")
        for root in self.write_roots:
            _check_access(root, "write_roots", os.W_OK | os.X_OK, "written to")
        for one in self.allowed_private_hosts:
            if one.below:
                raise ValueError(
                    f"allowed_private_hosts: should name each host, got '*.{one.name}'"
                )
        if self.fetches:
            try:
                tempfile.gettempdir()
            except FileNotFoundError as error:
                raise ValueError(
                    f"allowed_hosts: needs a folder for what is fetched ({error.strerror}); set "
                    "TMPDIR to one that can be written to"
                ) from None
        return self

    @property
    def fetches(self) -> bool:
        """Whether any URL is fetched."""
        return bool(self.allowed_hosts or self.allowed_private_hosts)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Reads the settings of this process.

        Args:
            environ: Environment variables; those of this process without it.

        Raises:
            SettingsError: A value cannot be, or a name is unknown; names each, and what was
                expected.
        """
        environ = os.environ if environ is None else environ
        values, origins = _from_file(environ.get(_PREFIX + _CONFIG))
        for name in _NAMES:
            variable = _PREFIX + name.upper()
            if variable in environ:
                values[name] = _from_text(name, environ[variable])
                origins[name] = variable
        _check_spelling(environ)
        limits = {name.removeprefix(_LIMIT): values.pop(name) for name in _LIMITS & values.keys()}
        try:
            return cls.model_validate({**values, "limits": limits})
        except ValidationError as error:
            raise SettingsError(
                "The settings of the IO processor `raster` are wrong. "
                + "; ".join(_problem(dict(one), origins) for one in error.errors())
            ) from None


_LIMITS = {_LIMIT + name for name in Limits.model_fields}
_NAMES = sorted((Settings.model_fields.keys() - {"limits"}) | _LIMITS)


def _from_file(path: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and, for messages, where each stands."""
    if not path:
        return {}, {}
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(
            f"{_PREFIX}{_CONFIG}={path!r} should name a TOML file, which cannot be read: {reason}"
        ) from None
    for name in values:
        if name not in _NAMES:
            raise SettingsError(f"{path}: {_unknown(name, name)} There are {', '.join(_NAMES)}")
    return values, {name: f"{path}: {name}" for name in values}


def _from_text(name: str, text: str) -> object:
    """A variable's value; as it is where it cannot be, for the message."""
    text = text.strip()
    if name in _LIMITS:
        return int(text) if _NUMBER.fullmatch(text) else text
    if Settings.model_fields[name].annotation is bool:
        return _TRUTHS.get(text.lower(), text)
    return [one for part in text.split(",") if (one := part.strip())]


def _check_spelling(environ: Mapping[str, str]) -> None:
    """Finds variables that are close to a setting's, for one misspelt would be without effect."""
    known = {_PREFIX + name.upper() for name in (*_NAMES, _CONFIG)}
    for variable in sorted(environ):
        if not variable.upper().startswith(_PREFIX) or variable in known:
            continue
        name = variable[len(_PREFIX) :].lower()
        if name.startswith((_LIMIT, "allow")) or get_close_matches(name, _NAMES, 1, _ALIKE):
            raise SettingsError(f"{_unknown(variable, name)} There are {', '.join(sorted(known))}")


def _unknown(shown: str, name: str) -> str:
    told = f"{shown} is no setting of the IO processor `raster`"
    close = get_close_matches(name.lower(), _NAMES, 1)
    if not close:
        return f"{told}."
    return f"{told}; did you mean {close[0] if shown == name else _PREFIX + close[0].upper()}?"


def _problem(error: dict[str, Any], origins: Mapping[str, str]) -> str:
    where = [str(one) for one in error["loc"]]
    message = error["msg"].removeprefix("Value error, ")
    if not where:  # of several values together, or already named
        name, _, message = message.partition(": ")
        return f"{origins.get(name, name)}: {message}"
    name = _LIMIT + where[1] if where[0] == "limits" and len(where) > 1 else where[0]
    return f"{origins.get(name, name)}={quoted(error['input'])}: {message[0].lower()}{message[1:]}"


def _check_access(root: Root, name: str, mode: int, how: str) -> None:
    if not os.access(root.resolved, mode):
        raise ValueError(f"{name}: {root.given!r} should be a folder that can be {how}")
