"""URLs as clients may write them, and the hosts that they may name.

Read once, strictly, into the parts that the connection is then made of: what is checked is what
is used. What a browser would mend (backslashes, blanks, numbers in odd notations) is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Self
from urllib.parse import urljoin

from vllm_raster_io.errors import AccessError

_LONGEST = 8192
_PORTS = {"https": 443, "http": 80}
_PLAIN = re.compile(r"[\x21-\x5b\x5d-\x7e]+")  # printable ASCII but blanks and backslashes
_PARTS = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#]*)(?P<target>[^#]*)(?:#.*)?", re.I)
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True)
class FileUrl:
    """Where a file is to be fetched.

    Attributes:
        scheme: `https` or `http`.
        host: A name in small ASCII letters without a dot at its end, or an address in its usual
            form.
        port: As written, or the scheme's.
        target: Path and query, which may hold secrets.
    """

    scheme: str
    host: str
    port: int
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a URL.

        Raises:
            AccessError: It is none that could be fetched; the message quotes nothing of it.
        """
        if len(text) > _LONGEST:
            raise AccessError(f"is longer than {_LONGEST} characters")
        if not _PLAIN.fullmatch(text):
            raise AccessError("holds characters that must be written with % in a URL")
        parts = _PARTS.fullmatch(text)
        if parts is None:
            raise AccessError("must begin with https:// and name a host")
        if "@" in parts["host"]:
            raise AccessError("may hold no user name and no password")
        host = _HOST.fullmatch(parts["host"])
        if host is None:
            raise AccessError("does not name a host as host or host:port")
        scheme = parts["scheme"].lower()
        port = int(host["port"]) if host["port"] else _PORTS[scheme]
        if not 0 < port < 65536:
            raise AccessError("names a port that is not from 1 to 65535")
        target = parts["target"]
        target = target if target.startswith("/") else f"/{target}"
        return cls(scheme, _host(host["name"], host["six"]), port, target)

    def follow(self, location: str) -> Self:
        """Where a redirect leads.

        Raises:
            AccessError: It is no URL that could be fetched.
        """
        if not location:
            raise AccessError("is missing: the answer says that the file has moved, but not where")
        if not _PLAIN.fullmatch(location):
            raise AccessError("holds characters that must be written with % in a URL")
        try:
            joined = urljoin(f"{self.scheme}://{self.authority}{self.target}", location)
        except ValueError:
            raise AccessError("does not name a host as host or host:port") from None
        return self.parse(joined)

    @property
    def authority(self) -> str:
        """Host, and port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True)
class HostRule:
    """A host, or all that are below a domain.

    Attributes:
        name: The host; the domain, if `below`.
        below: Whether hosts below the domain are meant, and not the domain itself.
        port: The only one that may be named; without it, the scheme's own.
    """

    name: str
    below: bool = False
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a setting: `host`, `host:port`, `*.domain.org`.

        Raises:
            ValueError: It is neither; says what was expected.
        """
        below = text.startswith("*.")
        host = _HOST.fullmatch(text[2:] if below else text)
        if host is None:
            raise ValueError("should be a host, as in tiles.example.org, host:port or *.domain.org")
        try:
            name = _host(host["name"], host["six"])
        except AccessError as error:
            raise ValueError(f"should be a host, but {error}") from None
        if below and ("." not in name or host["six"] or _NUMBER.fullmatch(name.split(".")[-1])):
            raise ValueError("should have a domain of at least two names after *.")
        port = int(host["port"]) if host["port"] else None
        if port is not None and not 0 < port < 65536:
            raise ValueError("should have a port from 1 to 65535")
        return cls(name, below, port)

    def fits(self, url: FileUrl) -> bool:
        """Whether a URL names the host, or one of the hosts, at the port."""
        port = _PORTS[url.scheme] if self.port is None else self.port
        named = url.host.endswith(f".{self.name}") if self.below else url.host == self.name
        return named and url.port == port


def fits_any(rules: Iterable[HostRule], url: FileUrl) -> bool:
    """Whether one of the rules fits."""
    return any(one.fits(url) for one in rules)


def _host(name: str | None, six: str | None) -> str:
    """The one form of a host by which it is compared and reached."""
    try:
        if name is None:
            return str(IPv6Address(six or ""))
        name = name.lower().removesuffix(".")
        labels = name.split(".")
        if _NUMBER.fullmatch(labels[-1]):
            # Resolvers take 2130706433, 0x7f.1 and 0177.0.0.1 for addresses too.
            return str(IPv4Address(name))
    except ValueError:
        raise AccessError("names an address in a form that is not the usual one") from None
    if len(name) > 253 or not all(_LABEL.fullmatch(one) for one in labels):
        raise AccessError(
            "does not name a host in ASCII letters, digits and hyphens (others are written xn--…)"
        )
    return name
