"""A whole instance under load: `manage.py up`, a protocol server, a company of agents.

`world()` must be entered before Django is set up, because the settings take their data folder from
the environment. It gives rows through the ORM, requests through `Client`, and what the processes
use through psutil.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.bench.client import Client
from tests.house.instance import ROOT, Instance, free_port, wait_for


@dataclass(slots=True)
class World:
    instance: Instance
    mock_port: int
    token: str
    company: Any
    agents: list[Any] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.instance.port

    def client(self) -> Client:
        return Client(self.port, {"authorization": f"Bearer {self.token}"})

    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.mock_port}/v1"

    def memory(self) -> dict[str, float]:
        """Resident megabytes by kind of process (PSS, so that shared pages count once)."""
        use: dict[str, float] = {}
        for process in self.instance.family():
            try:
                kind = kind_of(process)
                use[kind] = use.get(kind, 0.0) + process.memory_full_info().pss / 2**20
            except psutil.Error:
                continue
        return use

    def processes(self, kind: str) -> list[psutil.Process]:
        return [p for p in self.instance.family() if kind_of(p) == kind]


def kind_of(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    if "postgres" in line:
        return "postgres"
    if "granian" in line:
        return "web"
    name = process.environ().get("Q_CLUSTER_NAME", "")
    return f"qcluster {name or 'default'}" if "qcluster" in line else "other"


@contextmanager
def mock_server() -> Iterator[int]:
    """The protocol server in a process of its own."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mock_llm", "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert wait_for(lambda: listening(port)), "the protocol server did not start"
        yield port
    finally:
        process.terminate()
        process.wait(10)


def listening(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def world(*, agents: int = 1, runs_per_agent: int = 100, **env: str) -> Iterator[World]:
    """Start everything, make one company with `agents` agents, stop everything."""
    with tempfile.TemporaryDirectory(prefix="paperclip-bench-") as folder:
        os.chmod(folder, 0o755)  # the database runs as an ordinary user
        data = Path(folder) / "data"
        instance = Instance(data, **env)
        os.environ.update(instance.env, DJANGO_SETTINGS_MODULE="paperclip.settings")
        instance.start()
        try:
            with mock_server() as mock_port:
                yield people(instance, mock_port, agents, runs_per_agent)
        finally:
            from django.db import connections

            connections.close_all()
            instance.stop()


def people(instance: Instance, mock_port: int, agents: int, runs_per_agent: int) -> World:
    """A company with room for everything, and its owner's key."""
    import django

    django.setup()
    from companies import operator_keys
    from companies.models import Company
    from tests import factories

    owner = factories.user("Bench", email=f"bench-{time.time_ns()}@example.com")
    company = factories.company("Bench", "BEN", owner=owner)
    Company.objects.filter(id=company.id).update(max_concurrent_agents=1000)
    from django.utils import timezone

    _, token = operator_keys.create(user=owner, name="bench", now=timezone.now())
    made = World(instance=instance, mock_port=mock_port, token=token, company=company)
    os.environ["BENCH_API_KEY"] = "none"
    made.agents = [
        factories.agent(
            company,
            f"Worker {number}",
            adapter_type="openai",
            adapter_config={"baseUrl": made.base_url(), "model": "mock", "tools": False},
            max_concurrent_runs=runs_per_agent,
            on_finish="done",
        )
        for number in range(agents)
    ]
    return made
