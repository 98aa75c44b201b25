"""The command `paperclip` that agents find on their PATH: one call of the API, as themselves.

A program of its own, standard library only; started with `-I -S`, so nothing of the server is
in reach. Neither the key nor a body ever stands in an argument list that we make.

    api_command.py ACCESS_FILE METHOD PATH [JSON | -]
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
USAGE = "usage: paperclip GET|POST|PATCH|PUT|DELETE /api/PATH [JSON | -]"
SECONDS = 60
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key is for one address only."""

    def redirect_request(self, *args: object) -> None:
        return None


def main() -> int:
    if len(sys.argv) not in (4, 5) or sys.argv[2].upper() not in METHODS:
        sys.stderr.write(USAGE + "\n")
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        access = json.load(file)
    method, path = sys.argv[2].upper(), sys.argv[3]
    for name in ("issue", "company", "agent", "run"):
        path = path.replace("{" + name + "}", access[name])
    if not path.startswith("/"):
        path = "/" + path
    if not path.startswith("/api/"):
        path = "/api" + path
    body = None
    if len(sys.argv) == 5:
        text = sys.stdin.read() if sys.argv[4] == "-" else sys.argv[4]
        try:
            body = json.dumps(json.loads(text)).encode()
        except ValueError as error:
            sys.stderr.write(f"The body is not JSON: {error}\n")
            return 2
    request = urllib.request.Request(  # noqa: S310 (the address is our own)
        access["url"].rstrip("/").removesuffix("/api") + path, data=body, method=method
    )
    request.add_header("Authorization", "Bearer " + access["key"])
    request.add_header("X-Paperclip-Run-Id", access["run"])
    request.add_header("Content-Type", "application/json")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects())
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            sys.stdout.write(answer.read(MAX_ANSWER_BYTES).decode("utf-8", "replace") + "\n")
        return 0
    except urllib.error.HTTPError as error:
        said = error.read(64 * 1024).decode("utf-8", "replace")
        sys.stderr.write(f"HTTP {error.code}: {said}\n")
    except OSError as error:
        sys.stderr.write(f"Paperclip cannot be reached from here: {error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
