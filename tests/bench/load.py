"""A load generator that is cheap enough to share two cores with what it measures.

Plain sockets, one thread, requests that are bytes already: a request costs the generator a few
hundredths of a millisecond, and it says how much that was. For conversations: `client.py`.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
_TIMEOUT_SECONDS = 30


def request(method: str, path: str, token: str, body: object | None = None) -> bytes:
    """One HTTP/1.1 request as it goes over the wire."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


@dataclass(slots=True)
class Load:
    """What the clients saw. `own_seconds` is the generator's own processor time."""

    seconds: float = 0.0
    own_seconds: float = 0.0
    durations: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    answers: list[tuple[int, int, bytes]] = field(default_factory=list)  # turn, status, body
    bytes: int = 0

    @property
    def rate(self) -> float:
        return len(self.durations) / self.seconds if self.seconds else 0.0

    @property
    def count(self) -> int:
        return len(self.durations)


class _Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.turn = -1
        self.begun = 0.0
        self.received = b""

    def send(self, turn: int, data: bytes) -> None:
        self.turn, self.received, self.begun = turn, b"", time.perf_counter()
        self.socket.sendall(data)

    def read(self) -> tuple[int, bytes] | None:
        """The whole answer as status and body, or None while some of it is missing."""
        data = self.socket.recv(2**20)
        if not data:
            raise ConnectionError(f"hung up after {self.received[:200]!r}")
        self.received += data
        head, mark, body = self.received.partition(b"\r\n\r\n")
        if not mark:
            return None
        length = _LENGTH.search(head)
        assert length is not None, head
        if len(body) < int(length.group(1)):
            return None
        return int(head[9:12]), body


def closed_loop(
    port: int,
    make: Callable[[int], bytes | None],
    *,
    clients: int,
    seconds: float = 60.0,
    keep: bool = False,
) -> Load:
    """`clients` connections, each sending its next request when the last one was answered.

    `make(turn)` gives the request of a turn, None when there are no more. Ends after `seconds`;
    the last answers are waited for. `keep` keeps the answers' bodies.
    """
    load = Load()
    poll, open_clients = select.epoll(), {}
    turn = 0
    cpu, begun = time.process_time(), time.perf_counter()
    end = begun + seconds

    def next_request(client: _Client) -> bool:
        nonlocal turn
        data = make(turn) if time.perf_counter() < end else None
        if data is None:
            return False
        client.send(turn, data)
        turn += 1
        return True

    for _ in range(clients):
        client = _Client(port)
        if next_request(client):
            open_clients[client.socket.fileno()] = client
            poll.register(client.socket, select.EPOLLIN)
        else:
            client.socket.close()
    while open_clients:
        events = poll.poll(_TIMEOUT_SECONDS)
        if not events:
            raise TimeoutError(f"{len(open_clients)} answers did not come")
        for number, _ in events:
            client = open_clients[number]
            answer = client.read()
            if answer is None:
                continue
            status, body = answer
            load.durations.append(time.perf_counter() - client.begun)
            load.statuses[status] = load.statuses.get(status, 0) + 1
            load.bytes = max(load.bytes, len(body))
            if keep or status >= 500:
                load.answers.append((client.turn, status, body))
            if not next_request(client):
                poll.unregister(client.socket)
                del open_clients[number]
                client.socket.close()
    load.seconds = time.perf_counter() - begun
    load.own_seconds = time.process_time() - cpu
    poll.close()
    return load
