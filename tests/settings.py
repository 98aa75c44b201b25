"""The settings of the tests: the product's own, on a database that may be lost."""

from paperclip import postgres
from paperclip.settings import *  # noqa: F403
from paperclip.settings import DATA_DIR, DATABASE_URL, DATABASES

# Settings are read before any fixture runs, so the place of the socket must follow from the path.
TEST_PG_DIR = DATA_DIR / "test-pg"
if not DATABASE_URL:
    DATABASES["default"]["HOST"] = str(postgres.socket_dir(TEST_PG_DIR))

SECRET_KEY = "a key for tests only"
# Tests look at counts when they want to; a thread would write into the next test's tables.
METER_SECONDS = 0
# Signing in is not what most tests are about; the real hasher takes 50 ms each time.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
# A test's transaction stays open for as long as the test lasts.
DATABASES["default"]["OPTIONS"].pop("options", None)
