"""Which addresses the server may connect to for a client, and connections to no others.

A host's name is resolved once for a connection, the addresses are checked, and one of those is
connected to: what the name is resolved to a moment later does not matter.
"""

import ssl
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import SOCK_STREAM, getaddrinfo
from typing import Any

import httpcore

from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import AccessError

Resolver = Callable[[str, int], list[str]]
"""Gives the addresses of a host; raises OSError where it has none."""

_MOST_TRIED = 4
_IDLE = 30.0
"""Seconds without a byte after which a host is given up."""

# IANA's registries of special addresses say more than `is_global`, and Python's versions differ.
_NOT_PUBLIC = [
    ip_network(one)
    for one in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",  # Azure's own host, from within a machine
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    )
]  # fmt: skip
_PUBLIC_SIX = ip_network("2000::/3")
# Not even for a host that may have private addresses: where clouds tell machines their secrets.
_NEVER = [
    ip_network(one)
    for one in (
        "0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "192.0.0.192/32", "100.100.100.200/32",
        "224.0.0.0/3", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::/32",
    )
]  # fmt: skip

_ENDS_IN_FOUR = [
    ip_network(one)
    for one in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
]
"""RFC 4291 (compatible, mapped), RFC 2765, RFC 6052 and RFC 8215: IPv4 in the last 32 bits."""


def is_public(address: str) -> bool:
    """Whether an address is one of the internet's; none of those that stand for another."""
    one = ip_address(address)
    if isinstance(one, IPv6Address) and one not in _PUBLIC_SIX:
        return False  # also IPv4 in IPv6's clothes
    return one.is_global and not _within(one, _NOT_PUBLIC)


def may_be_private(address: str) -> bool:
    """Whether an address is fit for a host that is allowed to be within a private network."""
    one = ip_address(address)
    return not any(_within(each, _NEVER) for each in (one, *_inner(one)))


def _inner(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address may be brought to."""
    if isinstance(address, IPv4Address) or address.is_loopback:
        return []
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    found = [last] if _within(address, _ENDS_IN_FOUR) else []
    # RFC 3056 and RFC 4380: in the middle, and inverted at the end.
    found += [address.sixtofour] if address.sixtofour else []
    return found + list(address.teredo or ())


def resolve(host: str, port: int) -> list[str]:
    """Asks the system.

    Raises:
        OSError: The host has no address.
    """
    found = getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class CheckedBackend(httpcore.NetworkBackend):
    """Connects to a host's checked addresses, and ends what takes too long.

    Args:
        resolver: Gives addresses of hosts.
        private: Whether the host may have private addresses.
        deadline: For all that is done with the connections.
    """

    def __init__(self, resolver: Resolver, private: bool, deadline: Deadline) -> None:
        self._resolver, self._private, self._deadline = resolver, private, deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connects to a host.

        Raises:
            AccessError: One of its addresses is not allowed.
            LimitError: Time is up.
            httpcore.ConnectError: None of its addresses answers.
        """
        for address in self._addresses(host, port):
            try:
                stream = self._sockets.connect_tcp(address, port, _patience(self._deadline))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
            if not self._private and _is_this_machine(stream):
                stream.close()
                raise AccessError(NOT_PUBLIC)
            return _TimedStream(stream, self._deadline)
        raise httpcore.ConnectError

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        """Never asked for."""
        raise AccessError(NOT_PUBLIC)

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = self._resolver(host, port)
        except (OSError, UnicodeError):
            raise httpcore.ConnectError from None
        allowed = may_be_private if self._private else is_public
        # One that is not allowed spoils the others: whoever mixes them is up to something.
        if not all(map(allowed, found)):
            raise AccessError(NOT_PUBLIC)
        return found[:_MOST_TRIED]


NOT_PUBLIC = "leads to an address that is not public"


class _TimedStream(httpcore.NetworkStream):
    """A connection whose every step ends by the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _patience(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _patience(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        patience = _patience(self._deadline)
        inner = self._stream.start_tls(ssl_context, server_hostname, patience)
        return _TimedStream(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _patience(deadline: Deadline) -> float:
    return min(_IDLE, deadline.remaining())


def _is_this_machine(stream: httpcore.NetworkStream) -> bool:
    """Whether both ends of a connection are at one address, be it a public one."""
    own, other = stream.get_extra_info("client_addr"), stream.get_extra_info("server_addr")
    return bool(own[0] == other[0])


def _within(address: IPv4Address | IPv6Address, networks: Iterable[Any]) -> bool:
    return any(address.version == one.version and address in one for one in networks)
