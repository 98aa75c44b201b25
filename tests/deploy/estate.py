"""Two instances behind a proxy, with a pooler before the database: docs/deploy, running."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.flows.office import EMAIL, PASSWORD
from tests.house.instance import ROOT, Instance, database_address, free_port, wait_for

DEPLOY = ROOT / "docs" / "deploy"
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")


@dataclass(frozen=True)
class Estate:
    port: int  # of the proxy
    instances: tuple[Instance, Instance]
    direct: str  # the database past the pooler

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of commands that are for both."""
        return self.instances[0].env


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(folder: Path) -> Iterator[Estate]:
    """Starts all of it in `folder`, and ends it."""
    folder.chmod(0o711)
    with database() as direct, _pooler(folder, direct) as pooled:
        port = free_port()
        instances = (
            _instance(folder / "first", port, pooled, direct),
            _instance(folder / "second", port, pooled, direct),
        )
        try:
            for instance in instances:
                instance.start()
            with _proxy(folder, port, [instance.port for instance in instances]):
                yield Estate(port, instances, direct)
        finally:
            for instance in instances:
                _end(instance)
                print(instance.output()[-5_000:])  # shown when a test fails


def _instance(data: Path, port: int, pooled: str, direct: str) -> Instance:
    data.mkdir()
    return Instance(
        data,
        DATABASE_URL=pooled,
        DATABASE_DIRECT_URL=direct,
        SECRET_KEY="one key for all instances on one database",
        PAPERCLIP_BASE_URL=f"http://127.0.0.1:{port}",
        PAPERCLIP_TRUSTED_PROXIES="127.0.0.1",
        PAPERCLIP_SHIFTS="1",
        PAPERCLIP_ADMIN_EMAIL=EMAIL,
        PAPERCLIP_ADMIN_PASSWORD=PASSWORD,
    )


def _end(instance: Instance) -> None:
    if instance.process is not None:
        try:
            instance.stop()
        finally:
            instance.process.kill()
            instance.process.wait(10)


@contextmanager
def database() -> Iterator[str]:
    """A database of its own on the tests' server."""
    name = f"estate_{uuid.uuid4().hex[:8]}"
    server = make_conninfo(database_address(), dbname="postgres")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            admin.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


@contextmanager
def _pooler(folder: Path, direct: str) -> Iterator[str]:
    assert PGBOUNCER is not None
    port, server = free_port(), conninfo_to_dict(direct)
    target = f"host={server['host']} user={server['user']} dbname={server['dbname']}"
    config = (DEPLOY / "pgbouncer.ini").read_text()
    config = re.sub(r"(?m)^paperclip = .*$", f"paperclip = {target}", config)
    config = re.sub(r"(?m)^listen_port = .*$", f"listen_port = {port}", config)
    # The tests' server asks nobody for a password, and is reachable for its own user only.
    config = re.sub(r"(?m)^auth_(type|file) = .*\n", "", config) + "auth_type = any\n"
    if os.geteuid() == 0:
        config += f"user = {Path(str(server['host'])).owner()}\n"
    path = folder / "pgbouncer.ini"
    path.write_text(config)
    path.chmod(0o644)
    with _process([PGBOUNCER, "-q", str(path)], folder / "pgbouncer.log", port):
        yield f"postgresql://{server['user']}@127.0.0.1:{port}/paperclip"


@contextmanager
def _proxy(folder: Path, port: int, instances: list[int]) -> Iterator[None]:
    assert NGINX is not None
    site = (DEPLOY / "nginx.conf").read_text()
    for example, real in zip((8001, 8002), instances, strict=True):
        site = site.replace(f"127.0.0.1:{example}", f"127.0.0.1:{real}")
    (folder / "site.conf").write_text(site.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    places = "".join(
        f"{kind}_temp_path {folder}/nginx-{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        ("user root;\n" if os.geteuid() == 0 else "")
        + f"daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr warn;\n"
        f"events {{ worker_connections 512; }}\n"
        f"http {{ access_log off;\n{places}include {folder}/site.conf; }}\n"
    )
    argv = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    with _process(argv, folder / "nginx.log", port):
        yield


@contextmanager
def _process(argv: list[str], log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
    try:
        ready = wait_for(lambda: process.poll() is not None or listening(port))
        assert ready, log.read_text()
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait(10)
