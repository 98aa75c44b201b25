"""The one way out of the house: HTTP to addresses that other people chose.

Every call of an adapter goes through a client made here. A name is resolved once, each address
is judged, and the connection goes to the address that was judged, so that a name which answers
differently the second time gains nothing. No proxies from the environment, no redirects, no
cookies. Not for answering requests. Read next: `agents/adapters/failures.py`.
"""

from __future__ import annotations

import asyncio
import functools
import http.cookiejar
import ipaddress
import re
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from agents.adapters.base import AdapterError, Code

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[list[Address]]]

CONNECT_SECONDS = 10.0
MAX_ADDRESSES = 4  # tried in turn when a name has several
MAX_CLIENTS = 200

# What `is_global` lets through, or what hides another address inside.
REFUSED_NETWORKS: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "169.254.0.0/16",  # link-local, cloud metadata
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",  # IPv4-compatible
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "fec0::/10",
        "ff00::/8",
    )
)
GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")  # nothing else is anybody's public address
LOOPBACK: tuple[Network, ...] = (
    ipaddress.ip_network("127.0.0.0/8"),
    ipaddress.ip_network("::1/128"),
)


# There is no page for it: whoever starts the instance says so.
ALLOWING = (
    "Whoever runs this instance names the host in PAPERCLIP_OUTBOUND_ALLOW and starts it again."
)


class AddressRefused(AdapterError):
    """The policy forbids this address. Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.ADDRESS_REFUSED, message)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which addresses beyond the public ones may be called.

    `allow` holds host names, `host:port`, addresses, networks (`10.0.0.0/8`) and the word
    `loopback`. A host allowed by name may live on a private address, but never on a link-local
    one: those must be listed as an address or a network.
    """

    allow: tuple[str, ...] = ()

    def refusal(self, host: str, port: int, address: Address) -> str | None:
        """Why this address may not be called; None when it may."""
        address = _unmapped(address)
        hosts, networks = _parsed(self.allow)
        if any(address in network for network in networks if network.version == address.version):
            return None
        link_local = address.is_link_local or address.is_multicast or address.is_unspecified
        if not link_local and (host in hosts or f"{host}:{port}" in hosts):
            return None
        if not _public(address):
            shown = str(address) if host == str(address) else f"{host} ({address})"
            return (
                f"{shown} is not a public address, and this instance's PAPERCLIP_OUTBOUND_ALLOW "
                "does not name it."
            )
        if port < 1024 and port not in (80, 443):
            return f"port {port} is not one for web services"
        return None


@functools.lru_cache(maxsize=64)
def _parsed(allow: tuple[str, ...]) -> tuple[frozenset[str], tuple[Network, ...]]:
    hosts: set[str] = set()
    networks: list[Network] = []
    for entry in allow:
        text = entry.strip().lower().rstrip(".")
        if not text:
            continue
        if text == "loopback":
            networks.extend(LOOPBACK)
            continue
        try:
            networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
        except ValueError:
            hosts.add(text)
    return frozenset(hosts), tuple(networks)


def _unmapped(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _public(address: Address) -> bool:
    if address.version == 6 and address not in GLOBAL_IPV6:
        return False
    if any(address in net for net in REFUSED_NETWORKS if net.version == address.version):
        return False
    return address.is_global


# --- the policy of this process --------------------------------------------------------------

_policy = Policy()


def configure(*, allow: Iterable[str] = ()) -> None:
    """Set the policy of this process; the next connection follows it."""
    global _policy
    _policy = Policy(tuple(allow))


def policy() -> Policy:
    return _policy


def malformed(url: str) -> str | None:
    """What is wrong with the form of `url`, whatever the policy; None when nothing is."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, TypeError):
        return "is not a URL"
    if parsed.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parsed.host:
        return "has no host"
    if parsed.userinfo:
        return "must not contain a user name or password"
    return _strange_host(parsed.host)


def inspect(url: str) -> str | None:
    """Why `url` cannot be called, as far as can be told without asking a name server."""
    problem = malformed(url)
    if problem:
        return problem
    parsed = httpx.URL(url)
    host = _plain(parsed.host)
    if host == "localhost" or host.endswith(".localhost"):
        address: Address | None = ipaddress.ip_address("127.0.0.1")
    else:
        address = _literal(host)
    if address is None:
        return None
    return _policy.refusal(host, _port(parsed), address)


def _strange_host(host: str) -> str | None:
    """Spellings that different programs read as different addresses are nobody's honest wish."""
    if "%" in host:
        return "must not name a network interface in its host"
    plain = _plain(host)
    if not plain or any(character in plain for character in " \\/@#?"):
        return "has a host that cannot be"
    if _literal(plain) is not None:
        return None
    last = plain.rsplit(".", 1)[-1]
    if re.fullmatch(r"\d+|0x[0-9a-f]*", last):
        return "must write a numeric address as four decimal numbers"
    return None


def _plain(host: str) -> str:
    return host.lower().rstrip(".").strip("[]")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of `host`, in the order of the system. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses: list[Address] = []
    for *_, sockaddr in found:
        address = ipaddress.ip_address(str(sockaddr[0]).partition("%")[0])
        if address not in addresses:
            addresses.append(address)
    return addresses


# --- transport and clients ---------------------------------------------------------------------


class PinnedTransport(httpx.AsyncBaseTransport):
    """Connects to the address it judged, under the name it was asked for."""

    def __init__(self, *, resolver: Resolver | None = None, verify: ssl.SSLContext) -> None:
        self._resolver = resolver
        self.active = 0  # calls on their way: a client in use is not closed
        self._retired = False
        self._inner = httpx.AsyncHTTPTransport(
            verify=verify,
            http2=False,
            trust_env=False,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=20, keepalive_expiry=30
            ),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.active += 1
        try:
            addresses = await self._judged(request.url)
            for address in addresses[:-1]:
                try:
                    response = await self._send(request, address)
                    break
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    continue  # nothing was sent: the next address may do
            else:
                response = await self._send(request, addresses[-1])
        except BaseException:
            await self.done()
            raise
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        response.stream = _Counted(stream, self)
        packed = response.headers.get("content-encoding", "").strip().lower()
        if packed not in ("", "identity") and request.method != "HEAD":
            # Not asked for, and a few bytes of it may hold more than all memory.
            await response.stream.aclose()
            raise AdapterError(
                Code.BAD_RESULT, f"{request.url.host} answers packed: {packed[:60]}.", acted=True
            )
        return response

    async def done(self) -> None:
        """One call less is on its way."""
        self.active -= 1
        if self._retired and not self.active:
            await self._inner.aclose()

    async def retire(self) -> None:
        """Keep no connection any more. Who still holds the client may go on with it."""
        self._retired = True
        if not self.active:
            await self._inner.aclose()

    async def _judged(self, url: httpx.URL) -> list[Address]:
        problem = malformed(str(url))
        if problem:
            raise AddressRefused(f"The address {problem}.")
        host, port = _plain(url.host), _port(url)
        literal = _literal(host)
        if literal is not None:
            addresses = [literal]
        else:
            try:
                # As it is sent: Python's own encoding of names may make another domain of it.
                name = url.raw_host.decode("ascii").rstrip(".")
                addresses = await (self._resolver or resolve)(name, port)
            except (OSError, UnicodeError) as error:
                raise httpx.ConnectError(f"{host} cannot be found") from error
        if not addresses:
            raise httpx.ConnectError(f"{host} has no address")
        for address in addresses:
            refusal = _policy.refusal(host, port, address)
            if refusal:
                raise AddressRefused(f"Refused: {refusal}")
        return addresses[:MAX_ADDRESSES]

    async def _send(self, request: httpx.Request, address: Address) -> httpx.Response:
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,  # carries the Host that was asked for
            stream=request.stream,
            extensions={
                **request.extensions,
                "sni_hostname": request.url.raw_host.decode("ascii"),
            },
        )
        return await self._inner.handle_async_request(pinned)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(exc_type, exc_value, traceback)


class _Counted(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, transport: PinnedTransport) -> None:
        self._inner = inner
        self._transport: PinnedTransport | None = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield part

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            transport, self._transport = self._transport, None
            if transport is not None:
                await transport.done()


@functools.lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # Reading the certificate bundle takes tens of milliseconds: once is enough.
    return httpx.create_ssl_context(trust_env=False)


def new_client(*, resolver: Resolver | None = None) -> tuple[httpx.AsyncClient, PinnedTransport]:
    """A client of its own, for tests and for tools; the caller closes it."""
    transport = PinnedTransport(resolver=resolver, verify=_tls())
    client = httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(connect=CONNECT_SECONDS, read=None, write=60.0, pool=None),
        headers={"User-Agent": "paperclip", "Accept-Encoding": "identity"},
    )
    nobody = http.cookiejar.DefaultCookiePolicy(allowed_domains=[])
    client.cookies.jar.set_policy(nobody)  # one run's cookie is not another's
    return client, transport


class Clients:
    """One client for each connection profile and event loop, kept while it is of use."""

    def __init__(self) -> None:
        self._loops: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str, tuple[httpx.AsyncClient, PinnedTransport]]
        ] = weakref.WeakKeyDictionary()
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, profile: str) -> httpx.AsyncClient:
        """The client of `profile` (base URL and key, in any spelling) in the running loop."""
        clients = self._loops.setdefault(asyncio.get_running_loop(), {})
        if profile not in clients:
            self._make_room(clients)
            clients[profile] = new_client()
        clients[profile] = clients.pop(profile)  # the most recently used one is last
        return clients[profile][0]

    def _make_room(self, clients: dict[str, tuple[httpx.AsyncClient, PinnedTransport]]) -> None:
        idle = [name for name, (_, transport) in clients.items() if not transport.active]
        for name in idle[: max(0, len(clients) - MAX_CLIENTS + 1)]:
            task = asyncio.get_running_loop().create_task(clients.pop(name)[1].retire())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Close what belongs to the running loop."""
        clients = self._loops.pop(asyncio.get_running_loop(), {})
        for client, _ in clients.values():
            await client.aclose()


async def read_some(response: httpx.Response, *, limit: int) -> tuple[bytes, bool]:
    """The first `limit` bytes of a body, and whether that was all of it."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        parts.append(part[: limit - size])
        size += len(part)
        if size > limit:
            return b"".join(parts), False
    return b"".join(parts), True
