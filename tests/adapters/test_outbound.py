"""The way out refuses every spelling of an inner address and connects where it looked."""

import asyncio
import gzip
import ipaddress

import httpx
import pytest

from agents.adapters import outbound
from agents.adapters.base import AdapterError, Code
from agents.adapters.outbound import Address, AddressRefused, Policy
from tests.mock_llm import Served

REFUSED = [
    "http://127.0.0.1/",
    "http://127.8.9.1/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://api.localhost/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.3.4/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[::1:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[5f00::1]/",
    "http://[8000::1]/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://127.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "http:///x",
    "http://user:secret@example.com/",
    "example.com",
    "",
    "http://8.8.8.8:22/",
    "http://8.8.8.8:25/",
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_inner_or_strange_address_is_refused_before_it_is_stored(url: str) -> None:
    outbound.configure()
    assert outbound.inspect(url)


@pytest.mark.parametrize("url", REFUSED)
def test_and_again_when_it_is_called(url: str) -> None:
    outbound.configure()
    with pytest.raises((AddressRefused, httpx.UnsupportedProtocol, httpx.InvalidURL)):
        asyncio.run(get(url, answers=["127.0.0.1"]))


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "http://8.8.8.8/",
        "https://[2606:4700::1111]/",
        "http://8.8.8.8:11434/v1",
        "https://bücher.example/",
    ],
)
def test_a_public_address_is_fine(url: str) -> None:
    outbound.configure()
    assert outbound.inspect(url) is None


@pytest.mark.parametrize(
    ("allow", "host", "address", "fine"),
    [
        (["loopback"], "localhost", "127.0.0.1", True),
        (["loopback"], "localhost", "::1", True),
        (["loopback"], "x", "::ffff:127.0.0.1", True),
        (["loopback"], "x", "10.0.0.1", False),
        (["10.0.0.0/8"], "x", "10.9.9.9", True),
        (["10.0.0.0/8"], "x", "11.0.0.1", True),
        (["10.0.0.5"], "x", "10.0.0.5", True),
        (["10.0.0.5"], "x", "10.0.0.6", False),
        (["models.lan"], "models.lan", "192.168.1.9", True),
        (["Models.LAN."], "models.lan", "192.168.1.9", True),
        (["models.lan"], "other.lan", "192.168.1.9", False),
        (["models.lan:8080"], "models.lan", "192.168.1.9", True),
        (["models.lan:9999"], "models.lan", "192.168.1.9", False),
        (["models.lan"], "models.lan", "169.254.169.254", False),
        (["169.254.169.254"], "x", "169.254.169.254", True),
        (["models.lan"], "models.lan", "fd12::9", True),
        (["models.lan"], "models.lan", "::1", True),
        (["models.lan"], "models.lan", "::ffff:169.254.169.254", False),
        (["64:ff9b::/96"], "x", "64:ff9b::a9fe:a9fe", True),
    ],
)
def test_the_allow_list(allow: list[str], host: str, address: str, fine: bool) -> None:
    refusal = Policy(tuple(allow)).refusal(host, 8080, ipaddress.ip_address(address))
    assert (refusal is None) is fine


class Resolver:
    """Gives one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[Address]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [ipaddress.ip_address(text) for text in answer]


async def get(url: str, *, answers: list[str]) -> httpx.Response:
    client, _ = outbound.new_client(resolver=Resolver(answers))
    async with client:
        return await client.get(url)


def test_one_inner_address_among_public_ones_is_enough_to_refuse() -> None:
    outbound.configure()
    with pytest.raises(AddressRefused):
        asyncio.run(get("http://rebind.example/", answers=["8.8.8.8", "127.0.0.1"]))


def test_a_name_is_resolved_once_and_the_judged_address_is_called(mock_llm: Served) -> None:
    """A name that answers differently the second time gains nothing: there is no second time."""
    port = httpx.URL(mock_llm.url).port
    resolver = Resolver(["127.0.0.1"], ["127.0.0.2"])

    async def work() -> httpx.Response:
        client, _ = outbound.new_client(resolver=resolver)
        async with client:
            return await client.get(f"http://rebind.example:{port}/health")

    response = asyncio.run(work())
    assert response.status_code == 200
    assert resolver.asked == 1
    assert mock_llm.state.requests[0].headers["host"] == f"rebind.example:{port}"


def test_the_next_address_is_tried_when_one_does_not_answer(mock_llm: Served) -> None:
    port = httpx.URL(mock_llm.url).port
    url = f"http://two.example:{port}/health"
    assert asyncio.run(get(url, answers=["127.0.0.9", "127.0.0.1"])).status_code == 200


def test_a_name_is_asked_for_as_it_is_written_in_the_request(mock_llm: Served) -> None:
    """Python's own encoding of names makes another domain, perhaps somebody else's, of this one."""
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[Address]:
        asked.append(host)
        return [ipaddress.ip_address("127.0.0.1")]

    async def work() -> None:
        client, _ = outbound.new_client(resolver=resolver)
        async with client:
            await client.get(f"http://faß.example:{httpx.URL(mock_llm.url).port}/health")

    asyncio.run(work())
    assert asked == ["xn--fa-hia.example"]
    assert mock_llm.state.requests[0].headers["host"].startswith("xn--fa-hia.example:")


def test_an_answer_that_unpacks_to_a_thousand_times_its_size_is_not_unpacked() -> None:
    """Twice compressed, a kilobyte holds a gigabyte, which would end the process of all runs."""
    packed = gzip.compress(gzip.compress(bytes(1_000_000)))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {len(packed)}"
        writer.write(head.encode() + b"\r\n\r\n" + packed)
        await writer.drain()
        writer.close()

    async def work() -> outbound.PinnedTransport:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client, transport = outbound.new_client()
        async with server, client:
            with pytest.raises(AdapterError) as refused:
                await client.get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            assert (refused.value.code, refused.value.acted) == (Code.BAD_RESULT, True)
        return transport

    assert asyncio.run(work()).active == 0


def test_redirects_proxies_and_cookies_are_not_followed(
    mock_llm: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

    async def work() -> tuple[int, list[str]]:
        client, _ = outbound.new_client()
        async with client:
            body = {"messages": [{"content": "[[mock:status=302;location=http://10.0.0.1/]]"}]}
            response = await client.post(f"{mock_llm.url}/chat/completions", json=body)
            client.cookies.jar.extract_cookies  # noqa: B018
            return response.status_code, [cookie.name for cookie in client.cookies.jar]

    assert asyncio.run(work()) == (302, [])


def test_clients_are_kept_per_profile_and_loop() -> None:
    clients = outbound.Clients()

    async def work() -> tuple[bool, bool, int]:
        first = clients.get("a")
        same = clients.get("a") is first
        other = clients.get("b") is first
        await clients.aclose()
        return same, other, id(first)

    assert asyncio.run(work())[:2] == (True, False)


def test_a_client_in_use_is_not_thrown_away(mock_llm: Served) -> None:
    clients = outbound.Clients()

    async def work() -> bool:
        busy = clients.get("busy")
        async with busy.stream("GET", f"{mock_llm.url}/models") as response:
            for number in range(outbound.MAX_CLIENTS + 5):
                clients.get(f"profile {number}")
            kept = clients.get("busy") is busy
            await response.aread()
        await clients.aclose()
        return kept

    assert asyncio.run(work())


def test_a_client_that_a_run_holds_between_two_calls_still_calls(mock_llm: Served) -> None:
    """Others are many meanwhile. It keeps no connection open that nobody would close."""
    clients = outbound.Clients()

    async def work() -> tuple[list[int], int]:
        held = clients.get("held")
        answers = [(await held.get(f"{mock_llm.url}/models")).status_code]
        for number in range(outbound.MAX_CLIENTS + 5):
            clients.get(f"profile {number}")
        assert clients.get("held") is not held
        try:
            answers.append((await held.get(f"{mock_llm.url}/models")).status_code)
        finally:
            await clients.aclose()
        transport = held._transport
        assert isinstance(transport, outbound.PinnedTransport)
        return answers, len(transport._inner._pool.connections)

    assert asyncio.run(work()) == ([200, 200], 0)
