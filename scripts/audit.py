"""`make audit`: is something known against a pinned requirement?

pip-audit asks the database, and takes a package that it could not ask about for a good one. Here
that is a failure with words of its own, so that a machine without a database never says "clean".
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ("requirements.txt", "requirements-tracing.txt")
CLEAN, FOUND, UNKNOWN = 0, 1, 2
SECONDS = 300


def main() -> int:
    """Says what is known, and returns 0 (nothing), 1 (something) or 2 (it could not be asked)."""
    command = [
        str(Path(sys.executable).with_name("pip-audit")),
        *("--format", "json", "--progress-spinner", "off", "--timeout", "10"),
        *("--require-hashes", "--disable-pip"),
        *(word for name in REQUIREMENTS for word in ("--requirement", str(ROOT / name))),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        code, words = UNKNOWN, f"The database has not answered within {SECONDS} s."
    else:
        code, words = judge(done.stdout, done.stderr)
    print(words)  # noqa: T201 - this is its answer
    return code


def judge(answer: str, complaint: str = "") -> tuple[int, str]:
    """The exit code and the words for what pip-audit has written."""
    try:
        packages = json.loads(answer)["dependencies"]
    except (ValueError, TypeError, KeyError):
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        return UNKNOWN, f"NOT AUDITED: no database of vulnerabilities was reached ({last[:300]})."
    bad = [_words(each, one) for each in packages for one in each.get("vulns", ())]
    unasked = sorted(each["name"] for each in packages if "skip_reason" in each)
    if bad:
        return FOUND, "\n".join([*bad, *_unasked(unasked, len(packages))])
    if unasked or not packages:
        return UNKNOWN, "\n".join(_unasked(unasked, len(packages)) or ["NOT AUDITED: no packages."])
    return CLEAN, f"{len(packages)} packages, nothing known against any of them."


def _words(package: dict[str, Any], one: dict[str, Any]) -> str:
    fixed = ", ".join(one.get("fix_versions") or ()) or "no version yet"
    return f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}"


def _unasked(names: list[str], every: int) -> list[str]:
    if not names:
        return []
    if len(names) == every:
        return [f"NOT AUDITED: no database of vulnerabilities knows any of the {every} packages."]
    return [f"NOT AUDITED, {len(names)} of {every} packages: {', '.join(names)}."]


if __name__ == "__main__":
    sys.exit(main())
