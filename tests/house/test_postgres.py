"""The embedded PostgreSQL: made once, never half, ended with its starter."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from paperclip import postgres
from tests.house.instance import ROOT, wait_for


@pytest.fixture
def pg_dir(data_dir: Path) -> Path:
    return data_dir / "pg"


@pytest.mark.django_db
def test_the_database_of_the_tests_answers() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_the_socket_path_is_short_however_long_the_folder_is(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-long-folder-name"] * 20)

    assert len(os.fsencode(postgres.socket_dir(deep) / ".s.PGSQL.5432")) < 104
    assert postgres.socket_dir(deep) != postgres.socket_dir(deep / "other")


def test_only_its_user_may_enter_the_socket_folder(pg_dir: Path) -> None:
    server = postgres.start(pg_dir, for_tests=True)
    try:
        sockets = postgres.socket_dir(pg_dir)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        with psycopg.connect(postgres.dsn(pg_dir)) as own:
            assert own.execute("SHOW listen_addresses").fetchone() == ("",)
    finally:
        server.stop()

    assert not postgres.answers(pg_dir)
    assert not sockets.exists()


def test_what_was_committed_is_there_after_the_server_was_killed(pg_dir: Path) -> None:
    server = postgres.start(pg_dir, for_tests=True)
    postgres.create_database(pg_dir, "kept")
    server.process.kill()
    server.process.wait()
    server.stop()

    again = postgres.start(pg_dir, for_tests=True)
    try:
        with psycopg.connect(postgres.dsn(pg_dir, "kept")) as own:
            assert own.execute("SELECT current_database()").fetchone() == ("kept",)
    finally:
        again.stop()


def test_a_half_made_database_is_made_anew(pg_dir: Path) -> None:
    draft = pg_dir.with_name("pg.new")
    (draft / "base").mkdir(parents=True)
    (draft / "PG_VERSION").write_text("18\n")
    # The data folder of an interrupted first start, as that start would have made it.
    pg_dir.parent.chmod(0o711)

    server = postgres.start(pg_dir, for_tests=True)
    server.stop()

    assert not draft.exists()
    assert (pg_dir / "PG_VERSION").is_file()


def test_a_number_kept_from_before_a_restart_of_the_machine_does_not_matter(pg_dir: Path) -> None:
    postgres.start(pg_dir, for_tests=True).stop()
    # The number is alive again, but it is another program's: that of this very test.
    pid_file = pg_dir / "postmaster.pid"
    pid_file.write_text(f"{os.getppid()}\n{pg_dir}\n1700000000\n5432\n/tmp\n\n\nready\n")
    shutil.chown(pid_file, pg_dir.stat().st_uid, pg_dir.stat().st_gid)

    server = postgres.start(pg_dir, for_tests=True)

    assert postgres.answers(pg_dir)
    server.stop()


def test_a_database_of_another_version_is_refused_in_a_sentence(pg_dir: Path) -> None:
    pg_dir.mkdir(parents=True)
    (pg_dir / "PG_VERSION").write_text("12\n")
    pg_dir.parent.chmod(0o711)

    with pytest.raises(postgres.PostgresError, match=r"was made by PostgreSQL 12 and this is"):
        postgres.start(pg_dir, for_tests=True)


def test_a_folder_with_something_else_in_it_is_left_alone(pg_dir: Path) -> None:
    pg_dir.mkdir(parents=True)
    (pg_dir / "photos.zip").write_text("dear to somebody")
    pg_dir.parent.chmod(0o711)

    with pytest.raises(postgres.PostgresError, match="is not empty and holds no database"):
        postgres.start(pg_dir, for_tests=True)
    assert (pg_dir / "photos.zip").read_text() == "dear to somebody"


def test_programs_that_are_not_there_are_named_in_a_sentence(
    pg_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPERCLIP_PG_BIN", "/nowhere")

    with pytest.raises(postgres.PostgresError, match="PAPERCLIP_PG_BIN"):
        postgres.start(pg_dir, for_tests=True)


def test_a_socket_folder_of_somebody_else_is_refused(pg_dir: Path) -> None:
    sockets = postgres.socket_dir(pg_dir)
    sockets.symlink_to(pg_dir.parent.parent)
    try:
        with pytest.raises(postgres.PostgresError, match="belongs to somebody else"):
            postgres.start(pg_dir, for_tests=True)
    finally:
        sockets.unlink()


@pytest.mark.faults
def test_the_server_ends_with_a_starter_that_is_killed(pg_dir: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from paperclip import postgres;"
        "postgres.start(Path(sys.argv[1]), for_tests=True); print('up', flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, pg_dir], cwd=ROOT, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        starter.send_signal(signal.SIGKILL)

    assert wait_for(lambda: not postgres.answers(pg_dir), seconds=10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as somebody else")
def test_under_a_private_home_the_database_lies_elsewhere_behind_a_link(tmp_path: Path) -> None:
    private = tmp_path / "home"
    private.mkdir(mode=0o700)
    pg_dir = private / "data" / "pg"

    server = postgres.start(pg_dir, for_tests=True)
    try:
        assert pg_dir.is_symlink()
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        server.stop()
        server = postgres.start(pg_dir, for_tests=True)
        assert postgres.answers(pg_dir)
    finally:
        server.stop()
        shutil.rmtree(pg_dir.resolve().parent)


def test_a_server_that_runs_is_used_and_not_ended_by_a_command(pg_dir: Path) -> None:
    server = postgres.start(pg_dir, for_tests=True)
    try:
        with postgres.available(pg_dir):
            assert postgres.answers(pg_dir)
        assert postgres.answers(pg_dir)
        with pytest.raises(postgres.PostgresError, match="Another process uses the database"):
            postgres.start(pg_dir, for_tests=True)
    finally:
        server.stop()


def test_a_command_starts_the_server_for_itself_when_none_runs(pg_dir: Path) -> None:
    with postgres.available(pg_dir):
        assert postgres.answers(pg_dir)

    assert not postgres.answers(pg_dir)
