"""`manage.py up`: everything starts under one parent, and nothing is left behind."""

import re
import signal
import socket
import uuid
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.house.instance import (
    Instance,
    database_address,
    environment,
    free_port,
    manage,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(120)]


def test_it_serves_pages_and_prints_a_sign_in_link(running: Instance) -> None:
    assert wait_for(running.serves)
    assert re.search(rf"http://127\.0\.0\.1:{running.port}/sign-in/\S{{20,}}", running.output())


def test_a_second_start_on_the_same_data_is_refused_in_a_sentence(running: Instance) -> None:
    second = manage("up", env=environment(running.data_dir, free_port()))

    assert second.returncode != 0
    assert "already runs on" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    assert wait_for(running.serves)


def test_a_taken_port_is_refused_in_a_sentence(running: Instance, data_dir: Path) -> None:
    second = manage("up", env=environment(data_dir, running.port))

    assert second.returncode != 0
    assert f"Port {running.port} on 127.0.0.1 is taken" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1


def test_a_key_for_an_operator_is_printed_while_it_runs(running: Instance) -> None:
    link = manage("sign_in_link", "--email", "operator@localhost", env=running.env)
    assert running.status("/" + link.stdout.split("/", 3)[3].strip()) == 200
    done = manage("operator_key", "--email", "operator@localhost", env=running.env)

    assert done.stdout.startswith("pcb_"), done.stderr
    assert manage("operator_key", "--email", "nobody@localhost", env=running.env).returncode != 0


def test_a_shell_without_its_port_is_told_where_it_answers(running: Instance) -> None:
    """The data folder knows; a port of the shell's own goes before that."""
    bare = {name: value for name, value in running.env.items() if name != "PAPERCLIP_PORT"}
    link = ("sign_in_link", "--email", "operator@localhost")
    assert manage(*link, env=bare).stdout.startswith(f"http://127.0.0.1:{running.port}/sign-in/")
    assert manage(*link, env=bare | {"PAPERCLIP_PORT": "7999"}).stdout.startswith(
        "http://127.0.0.1:7999/"
    )
    loaded = manage("load", "--users", "1", "--ramp", "0", "--hold", "1", env=bare)
    assert loaded.returncode == 0, loaded.stderr
    assert "cold, 1 user" in loaded.stdout


@pytest.mark.parametrize("part", ["granian", "qcluster", "postgres"])
def test_a_killed_child_is_started_again(running: Instance, part: str) -> None:
    before = running.named(part)
    old = {process.pid for process in running.named(part)}

    before[0].kill()

    def is_back() -> bool:
        new = {process.pid for process in running.named(part)}
        return len(new) >= len(old) and before[0].pid not in new and running.serves()

    assert wait_for(is_back), running.output()


def test_a_killed_sentinel_takes_its_workers_along_and_the_cluster_comes_back(
    running: Instance,
) -> None:
    parent = running.named("qcluster")[0]
    assert wait_for(lambda: len(parent.children(recursive=True)) >= 4)
    sentinel = parent.children()[0]
    workers = sentinel.children()

    sentinel.kill()

    _, alive = psutil.wait_procs([parent, *workers], timeout=10)
    assert alive == []
    assert wait_for(lambda: len(running.named("qcluster")) >= 8), running.output()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(used_dir: Path, signum: signal.Signals) -> None:
    instance = Instance(used_dir).start()

    assert instance.stop(signum) == 0
    assert instance.family() == []


def test_kill_9_of_the_parent_leaves_nothing_and_the_next_start_recovers(used_dir: Path) -> None:
    instance = Instance(used_dir).start()

    instance.stop(signal.SIGKILL)

    assert wait_for(lambda: instance.family() == [], seconds=10), instance.family()
    again = Instance(used_dir, port=instance.port).start()
    assert wait_for(again.serves)
    assert again.stop() == 0


def test_a_data_folder_that_cannot_be_made_is_named_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    done = manage("up", env=environment(tmp_path / "file" / "data", free_port()))

    assert done.returncode != 0
    assert "data folder" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_database_that_does_not_answer_is_named_in_a_sentence(data_dir: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://someone@127.0.0.1:{nobody.getsockname()[1]}/paperclip"
        done = manage("up", env=environment(data_dir, free_port(), DATABASE_URL=url))

    assert done.returncode != 0
    assert "The database cannot be reached" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "nobody_here"}, 'role "nobody_here" does not exist'),
    ],
)
def test_a_wrong_address_of_a_database_is_named_in_a_sentence(
    data_dir: Path, db: None, change: dict[str, str], words: str
) -> None:
    url = make_conninfo(database_address(), **change)
    done = manage("up", env=environment(data_dir, free_port(), DATABASE_URL=url))

    assert done.returncode != 0
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_database_that_cannot_hold_all_letters_is_refused(data_dir: Path, db: None) -> None:
    name = f"ascii_{uuid.uuid4().hex[:8]}"
    server = make_conninfo(database_address(), dbname="postgres")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
        try:
            url = make_conninfo(database_address(), dbname=name)
            done = manage("up", env=environment(data_dir, free_port(), DATABASE_URL=url))
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    assert done.returncode != 0
    assert "keeps text as SQL_ASCII" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
