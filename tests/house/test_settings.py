"""Settings from the environment."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.house.instance import ROOT, environment, manage


def settings(names: str, data_dir: Path, **env: str) -> dict[str, object]:
    """The values of the settings that a new process sees."""
    code = (
        "import json, sys; from paperclip import settings as s;"
        "print(json.dumps({n: getattr(s, n) for n in sys.argv[1].split()}, default=str))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, names],
        env=environment(data_dir, 8123, **env),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    values: dict[str, object] = json.loads(done.stdout)
    return values


def test_the_secret_key_is_made_once_and_kept_for_its_owner_only(data_dir: Path) -> None:
    first = settings("SECRET_KEY", data_dir)["SECRET_KEY"]
    second = settings("SECRET_KEY", data_dir)["SECRET_KEY"]

    assert first == second
    assert len(str(first)) >= 50
    assert stat.S_IMODE((data_dir / "secret-key").stat().st_mode) == 0o600


def test_a_given_secret_key_is_used_and_not_kept(data_dir: Path) -> None:
    values = settings("SECRET_KEY SECRET_KEY_FALLBACKS", data_dir, SECRET_KEY="new" * 20)

    assert values["SECRET_KEY"] == "new" * 20
    assert not (data_dir / "secret-key").exists()


def test_adapters_reach_the_own_machine_on_a_laptop_only(data_dir: Path) -> None:
    laptop = settings("OUTBOUND_ALLOW", data_dir)
    production = settings("OUTBOUND_ALLOW", data_dir, PAPERCLIP_PROFILE="production")

    assert "127.0.0.0/8" in str(laptop["OUTBOUND_ALLOW"])
    assert production["OUTBOUND_ALLOW"] == []


def test_production_does_not_show_its_inside(data_dir: Path) -> None:
    """Django's page for a fault tells settings, with the addresses of databases and their words."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        settings("DEBUG", data_dir, PAPERCLIP_PROFILE="production", DEBUG="1")

    assert "DEBUG" in refused.value.stderr.splitlines()[-1]
    assert settings("DEBUG", data_dir, PAPERCLIP_PROFILE="production") == {"DEBUG": False}


@pytest.mark.parametrize("key", ["changeme", "x" * 60, "django-insecure-" + "abcdefghij" * 5])
def test_production_takes_no_key_that_others_could_guess(data_dir: Path, key: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        settings("PORT", data_dir, PAPERCLIP_PROFILE="production", SECRET_KEY=key)

    assert "SECRET_KEY" in refused.value.stderr.splitlines()[-1]
    assert key not in refused.value.stderr.splitlines()[-1]
    assert settings("PORT", data_dir, SECRET_KEY=key) == {"PORT": 8123}


def test_a_proxy_cannot_name_another_host(data_dir: Path) -> None:
    """Whoever sends X-Forwarded-Host could have links made that lead elsewhere."""
    code = "from django.conf import settings as s; print(s.USE_X_FORWARDED_HOST)"
    env = environment(data_dir, 8123, PAPERCLIP_PROFILE="production")
    assert manage("shell", "-v", "0", "-c", code, env=env).stdout.strip() == "False"


def test_the_address_of_a_database_is_taken_apart(data_dir: Path) -> None:
    url = "postgresql://olga:s%20cret@db.example:6543/clip?sslmode=require"
    database = settings("DATABASES DIRECT_DSN", data_dir, DATABASE_URL=url)
    default = database["DATABASES"]["default"]  # type: ignore[index]

    assert default["HOST"] == "db.example"
    assert default["PORT"] == "6543"
    assert default["NAME"] == "clip"
    assert default["PASSWORD"] == "s cret"
    assert default["OPTIONS"]["sslmode"] == "require"
    direct = conninfo_to_dict(str(database["DIRECT_DSN"]))
    assert direct.items() >= conninfo_to_dict(url).items()
    assert direct.keys() - conninfo_to_dict(url).keys() == {
        "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
    }  # fmt: skip
    assert default["OPTIONS"]["tcp_user_timeout"] == 15_000


def test_two_instances_on_one_machine_share_no_cookie(data_dir: Path) -> None:
    one = settings("SESSION_COOKIE_NAME CSRF_COOKIE_NAME", data_dir)
    two = settings("SESSION_COOKIE_NAME CSRF_COOKIE_NAME", data_dir, PAPERCLIP_PORT="8124")

    assert set(one.values()).isdisjoint(two.values())


def test_instances_behind_one_address_share_their_cookies(data_dir: Path) -> None:
    names = "SESSION_COOKIE_NAME CSRF_COOKIE_NAME"
    address = {"PAPERCLIP_BASE_URL": "http://paperclip.example:8080"}
    one = settings(names, data_dir, **address)
    two = settings(names, data_dir, PAPERCLIP_PORT="8124", **address)

    assert one == two


def test_the_production_profile_passes_djangos_own_check(data_dir: Path) -> None:
    env = environment(
        data_dir,
        8123,
        PAPERCLIP_PROFILE="production",
        PAPERCLIP_BASE_URL="https://clip.example",
    )
    done = manage("check", "--deploy", "--fail-level", "WARNING", env=env)

    assert done.returncode == 0, done.stderr


def test_a_value_that_makes_no_sense_is_named_without_a_traceback(data_dir: Path) -> None:
    done = manage("check", env=environment(data_dir, 8123, PAPERCLIP_WEB_WORKERS="many"))

    assert done.returncode != 0
    assert "PAPERCLIP_WEB_WORKERS" in done.stderr
    assert "Traceback" not in done.stderr
