"""Settings, read from the environment; the defaults run on a laptop.

docs/operating.md lists the variables. Two profiles: the default one serves plain http on loopback,
PAPERCLIP_PROFILE=production expects TLS in front and lets adapters call the public internet only.
"""

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from environs import Env, EnvError
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from paperclip import logs, postgres

env = Env()

BASE_DIR = Path(__file__).resolve().parent.parent

PROFILE = env.str("PAPERCLIP_PROFILE", "laptop")
if PROFILE not in ("laptop", "production"):
    raise EnvError("PAPERCLIP_PROFILE is laptop or production.")
PRODUCTION = PROFILE == "production"

DEBUG = env.bool("DEBUG", False)
if DEBUG and PRODUCTION:
    raise EnvError("DEBUG shows the inside to everybody who meets a fault: not in production.")

# --- The instance ---------------------------------------------------------------------------------

DATA_DIR = Path(env.str("PAPERCLIP_DATA_DIR", str(BASE_DIR / ".data"))).expanduser().resolve()
HOST = env.str("PAPERCLIP_HOST", "127.0.0.1")
PORT = env.int("PAPERCLIP_PORT", 8000)
BASE_URL = env.str(
    "PAPERCLIP_BASE_URL",
    f"http://{'127.0.0.1' if HOST in ('0.0.0.0', '::', '') else HOST}:{PORT}",  # noqa: S104
).rstrip("/")
DEMO = env.bool("PAPERCLIP_DEMO", not PRODUCTION)
WEB_WORKERS = env.int("PAPERCLIP_WEB_WORKERS", 1)
SHIFTS = env.int("PAPERCLIP_SHIFTS", 2)
# Runs that one shift carries at the same time, and how long they may go on when it is shut down.
SHIFT_CAPACITY = env.int("PAPERCLIP_SHIFT_CAPACITY", 250)
# How long a cluster of background workers may be silent before it is started again.
WATCHDOG_SECONDS = env.float("PAPERCLIP_WATCHDOG_SECONDS", 180.0)
# How often a process adds what it has counted to the database; 0: never by itself.
METER_SECONDS = env.float("PAPERCLIP_METER_SECONDS", 5.0)
# Who may read /metrics: its bearer, or without one whoever is on the machine.
METRICS_TOKEN = env.str("PAPERCLIP_METRICS_TOKEN", "")
# Runs of one agent program (claude_local and its like) that an instance carries at the same time:
# each is a tree of processes with hundreds of megabytes.
CLI_RUNS = env.int("PAPERCLIP_CLI_RUNS", 2)
GRACE_SECONDS = env.float("PAPERCLIP_GRACE", 5.0)
# Calls of the API a minute, by one person and by one agent or run; 0: as many as they like.
API_CALLS_A_MINUTE = env.int("PAPERCLIP_API_CALLS_A_MINUTE", 60_000)
AGENT_CALLS_A_MINUTE = env.int("PAPERCLIP_AGENT_CALLS_A_MINUTE", 6_000)
# The text of a run beyond this many characters is left out.
# Where the loop breaker's limits differ from those of `agents/loop_limits.py`: name=number, ….
LOOP_LIMITS: dict[str, int] = env.dict("PAPERCLIP_LOOP_LIMITS", {}, subcast_values=int)
OUTPUT_LIMIT_CHARS = env.int("PAPERCLIP_OUTPUT_LIMIT", 20_000_000)
ADMIN_EMAIL = env.str("PAPERCLIP_ADMIN_EMAIL", "")
ADMIN_PASSWORD = env.str("PAPERCLIP_ADMIN_PASSWORD", "")

# Hosts and networks beyond the public internet that adapters may call. On a laptop the loopback
# is open, so that a local model server works at once.
OUTBOUND_ALLOW: list[str] = env.list(
    "PAPERCLIP_OUTBOUND_ALLOW", [] if PRODUCTION else ["127.0.0.0/8", "::1/128", "localhost"]
)


def _kept_secret_key(path: Path) -> str:
    """Returns the key kept at `path`; makes one, readable by its owner only, when there is none."""
    postgres.make_data_dir(path.parent)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise EnvError(f"The secret key {path} cannot be read: {error.strerror}.") from None
    key = secrets.token_urlsafe(50)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(key + "\n")
    try:
        # link() refuses to replace: of two processes that start at once, one key wins for both.
        os.link(draft, path)
    except FileExistsError:
        return path.read_text().strip()
    finally:
        draft.unlink()
    return key


SECRET_KEY = env.str("SECRET_KEY", "") or _kept_secret_key(DATA_DIR / "secret-key")
if PRODUCTION and (len(SECRET_KEY) < 32 or len(set(SECRET_KEY)) < 8 or "insecure" in SECRET_KEY):
    # Sessions and every sealed secret are worth as much as it is. (Its words are not repeated.)
    raise EnvError("SECRET_KEY is short or well known: 32 random letters or more in production.")
SECRET_KEY_FALLBACKS: list[str] = env.list("SECRET_KEY_FALLBACKS", [])

# --- Applications ---------------------------------------------------------------------------------

INSTALLED_APPS = [
    "paperclip",
    "billing",
    "issues",
    "agents",
    "companies",
    "django_q",
    "django_htmx",
    "csp",
    "paperclip.data_site.DataConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "paperclip.middleware.ContentPolicy",
    "paperclip.middleware.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "paperclip.middleware.Users",
    "paperclip.middleware.Messages",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "paperclip.middleware.Htmx",
]

ROOT_URLCONF = "paperclip.urls"
WSGI_APPLICATION = "paperclip.wsgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "paperclip.shell.frame",
            ],
        },
    },
]

# --- Database -------------------------------------------------------------------------------------

PG_DIR = DATA_DIR / "pg"
DATABASE_URL = env.str("DATABASE_URL", "")
# Where LISTEN and session locks go when a pooler stands between; the same server otherwise.
DATABASE_DIRECT_URL = env.str("DATABASE_DIRECT_URL", "") or DATABASE_URL
# A peer that is gone without a word is given up after seconds, not after the hours that systems
# take by default. Unix sockets know none of this.
_NETWORK = {
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def _direct_dsn(url: str) -> str:
    try:
        return make_conninfo("", **{**_NETWORK, **conninfo_to_dict(url)})
    except ProgrammingError:
        raise EnvError("DATABASE_DIRECT_URL is not the address of a PostgreSQL database.") from None


DIRECT_DSN = (
    _direct_dsn(DATABASE_DIRECT_URL) if DATABASE_DIRECT_URL else postgres.dsn(PG_DIR, "paperclip")
)


def _database(url: str, pg_dir: Path) -> dict[str, Any]:
    """Returns Django's settings of the PostgreSQL at `url`, or of the embedded one at `pg_dir`."""
    options: dict[str, Any] = {}
    pooled = bool(url and env.str("DATABASE_DIRECT_URL", ""))
    if url:
        try:
            options = dict(conninfo_to_dict(url))
        except ProgrammingError:
            raise EnvError("DATABASE_URL is not the address of a PostgreSQL database.") from None
    web_timeout = env.int("PAPERCLIP_STATEMENT_TIMEOUT_SECONDS", 0)
    # A pooler refuses connections that bring settings of their own.
    if (url or web_timeout) and not pooled:
        # Nothing here waits for anybody within a transaction; the embedded server does the same.
        timeouts = "-c idle_in_transaction_session_timeout=10s"
        if web_timeout:
            timeouts += f" -c statement_timeout={web_timeout}s -c lock_timeout={web_timeout}s"
        options["options"] = f"{options.get('options') or ''} {timeouts}".strip()
    options.setdefault("application_name", env.str("PAPERCLIP_PROCESS", "paperclip"))
    options.setdefault("connect_timeout", 5)
    # A statement that comes again is parsed and planned once a connection. Behind a pooler the next
    # statement may go to another session, which has not prepared it.
    options["server_side_binding"] = True
    options["prepare_threshold"] = None if pooled else 3
    if url:
        options = {**_NETWORK, **options}
    return {
        "ENGINE": "paperclip.database",
        "NAME": options.pop("dbname", None) or "paperclip",
        "USER": options.pop("user", None) or ("" if url else postgres.USER),
        "PASSWORD": options.pop("password", None) or "",
        "HOST": options.pop("host", None) or ("" if url else str(postgres.socket_dir(pg_dir))),
        "PORT": str(options.pop("port", None) or ""),
        "OPTIONS": options,
        # Threads and workers live long: a connection each, checked before use, is several times
        # cheaper than one a request.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        # A pooler in transaction mode cannot keep a server-side cursor.
        "DISABLE_SERVER_SIDE_CURSORS": pooled,
    }


DATABASES = {"default": _database(DATABASE_URL, PG_DIR)}
# A streaming replica that reports and dashboards read from: `billing/replica.py`.
DATABASE_REPLICA_URL = env.str("DATABASE_REPLICA_URL", "")
if DATABASE_REPLICA_URL:
    DATABASES["replica"] = _database(DATABASE_REPLICA_URL, PG_DIR) | {"TEST": {"MIRROR": "default"}}
    DATABASES["replica"]["OPTIONS"]["connect_timeout"] = 2  # the primary can do it as well
    DATABASE_ROUTERS = ["billing.replica.Router"]
    MIDDLEWARE.append("billing.replica.middleware")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Background work ------------------------------------------------------------------------------

# At least once is all that a queue gives: every task is short, may come twice, takes ids only and
# returns None. What must happen exactly once is decided by rows of our own.
Q_CLUSTER: dict[str, Any] = {
    # The name salts the signature of queued tasks: a new name would drop them without a word.
    "name": "default",
    "workers": 2,
    # Longer than any task may take, so that the time-out never fires in a healthy instance: a
    # worker that is killed while it hands over a result can block the result queue of all.
    "timeout": 30,
    # Counted from the moment a task is taken off the table, also while it waits in memory, so it
    # must exceed several time-outs or a task runs twice at the same time.
    "retry": 600,
    # The defaults repeat a failing task for ever; retries with back-off live in our own tables.
    "max_attempts": 1,
    "ack_failures": True,
    # Nothing waits in a cluster's memory that another cluster, or the next start, could do.
    "bulk": 1,
    "queue_limit": 2,
    # The tasks are no hurry (wakes go by NOTIFY): one look a second keeps an idle cluster cheap.
    "poll": 1,
    "guard_cycle": 1,
    # Missed minutes are not made up for: each task looks at the state of now.
    "catch_up": False,
    "recycle": 500,
    # Keeping every success would lock all kept rows at each save.
    "save_limit": 50,
    "label": "Background tasks",
    "log_level": "WARNING",
    "ALT_CLUSTERS": {
        # Each worker of this cluster carries one shift, for hours.
        "dispatch": {
            "workers": SHIFTS,
            "queue_limit": SHIFTS or 1,
            # A shift ends by itself; a time-out would cut live runs.
            "timeout": None,
            # Longer than any shift. A bell that is lost rings again by the minute's schedule.
            "retry": 86_400,
            # Not 1: at a stop somebody must be left to take the bells that wait in memory, or the
            # cluster waits for ever for its own queue.
            "recycle": 20,
            # The default cluster fires the schedules.
            "scheduler": False,
        },
    },
}
REDIS_URL = env.str("REDIS_URL", "")
if REDIS_URL:
    Q_CLUSTER["redis"] = REDIS_URL
else:
    Q_CLUSTER["orm"] = "default"

# --- People ---------------------------------------------------------------------------------------

AUTH_USER_MODEL = "companies.User"
LOGIN_URL = "/sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
    "django.contrib.auth.hashers.ScryptPasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# --- Security -------------------------------------------------------------------------------------

_base = urlsplit(BASE_URL)
ALLOWED_HOSTS: list[str] = env.list(
    "PAPERCLIP_ALLOWED_HOSTS",
    [_base.hostname or "localhost"]
    + ([] if PRODUCTION else ["localhost", "127.0.0.1", "[::1]", *([HOST] if HOST else [])]),
)
# Networks of the proxies in front. What they say of a caller's address is believed, nobody else.
TRUSTED_PROXIES: list[str] = env.list("PAPERCLIP_TRUSTED_PROXIES", [])
CSRF_TRUSTED_ORIGINS = [f"{_base.scheme}://{_base.netloc}"]

# Two systems on one machine share a host name, and cookies know no ports. The address that people
# use tells them apart; instances behind one proxy have it in common.
_cookie_suffix = "" if PRODUCTION else f"_{_base.port or ''}"
SESSION_ENGINE = "companies.sessions"
SESSION_COOKIE_NAME = f"{'__Host-' if PRODUCTION else ''}paperclip_session{_cookie_suffix}"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_COOKIE_NAME = f"{'__Host-' if PRODUCTION else ''}paperclip_csrf{_cookie_suffix}"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = PRODUCTION
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
DEFAULT_EXCEPTION_REPORTER_FILTER = "paperclip.fault_pages.Filter"
if PRODUCTION:
    SECURE_SSL_REDIRECT = env.bool("PAPERCLIP_SSL_REDIRECT", True)
    # Probes and Prometheus ask the process itself, behind the proxy that brings TLS.
    SECURE_REDIRECT_EXEMPT = [r"^metrics$", r"^api/health(/ready)?$"]
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    },
}

# --- The rest -------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATIC_ROOT = (
    Path(env.str("PAPERCLIP_STATIC_ROOT", str(BASE_DIR / "staticfiles"))) if PRODUCTION else None
)
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": (
            "whitenoise.storage.CompressedManifestStaticFilesStorage"
            if PRODUCTION
            else "django.contrib.staticfiles.storage.StaticFilesStorage"
        )
    },
}
# On a laptop files are served from where they lie, without collecting them first.
WHITENOISE_USE_FINDERS = not PRODUCTION
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_AUTOREFRESH = DEBUG

DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024
EMAIL_BACKEND = env.str("EMAIL_BACKEND", "django.core.mail.backends.console.EmailBackend")

LOG_FORMAT = env.str("PAPERCLIP_LOG_FORMAT", "text")
if LOG_FORMAT not in ("text", "json"):
    raise EnvError("PAPERCLIP_LOG_FORMAT is text or json.")
LOGGING = logs.config(log_format=LOG_FORMAT, level=env.str("PAPERCLIP_LOG_LEVEL", "WARNING"))
