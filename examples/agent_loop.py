#!/usr/bin/env python3
"""The whole loop of an agent, with nothing but Python: look, take, read, work, report.

A process agent: set its command to `python3` and its argument to this file. The same calls work
with a long-lived agent key, from anywhere.
"""

# ruff: noqa: T201, S310 (printing is how a program reports; the address is the operator's)

import json
import os
import urllib.error
import urllib.request
from datetime import UTC, datetime

BASE, KEY = os.environ["PAPERCLIP_API_URL"], os.environ["PAPERCLIP_API_KEY"]


def call(method, path, body=None):
    """One call; returns what came back. Raises HTTPError, whose body says why."""
    request = urllib.request.Request(
        f"{BASE}/api{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def work(title, comments):
    """Put your own work here."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"# {title}\n\nIt was {now}, and {len(comments)} comments had been made.\n"


def main():
    me = call("GET", "/agents/me")
    for row in call("GET", "/agents/me/inbox-lite"):
        if not row["dependencyReady"]:
            continue
        issue = f"/issues/{row['id']}"
        try:
            call("POST", f"{issue}/checkout", {"agentId": me["id"]})
        except urllib.error.HTTPError as error:
            if error.code == 409:  # somebody else has it: never repeat a 409
                continue
            raise
        context = call("GET", f"{issue}/heartbeat-context")
        comments = call("GET", f"{issue}/comments?order=asc")
        result = work(context["issue"]["title"], comments)
        call("PUT", f"{issue}/documents/result", {"title": "Result", "body": result})
        call("PATCH", issue, {"status": "done", "comment": "The result is a document."})
        print("Done:", context["issue"]["title"])
        return
    print("Nothing to do.")


if __name__ == "__main__":
    main()
