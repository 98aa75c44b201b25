"""A company full of secrets, whose agents say them wherever an agent can say something."""

from __future__ import annotations

import json
import secrets
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.flows.office import Office
from tests.house.instance import manage

# What is hidden on purpose nowhere: the audit is worth nothing where it does not find this.
CONTROL = f"control-{secrets.token_hex(8)}"

_ROWS = """
import json, os
import pyotp
from django.utils import timezone
from agents import connections
from companies import cli_login, keys, operator_keys, second_factor, secrets, sign_in, tenancy
from companies.activity import SYSTEM
from companies.models import Company, User
now, wanted = timezone.now(), json.loads(os.environ["PLANT"])
company = Company.objects.get(id=wanted["company"])
for name, value in wanted["stored"]:
    secrets.put(company=company, name=name, value=value, actor=SYSTEM, now=now)
known = {}
for role in ("operator", "viewer"):
    member = tenancy.invite(company=company, email=f"{role}@example.com", role=role, actor=SYSTEM)
    member.user.set_password(wanted["password"])
    member.user.save()
stranger = tenancy.invite(company=company, email="new@example.com", role="viewer", actor=SYSTEM)
known["sign-in link"] = sign_in.link_for_inviter(membership=stranger, now=now).rpartition("/")[2]
second_factor.begin(user=stranger.user, now=now)
known["key of an authenticator"] = second_factor.enrolment(user=stranger.user, now=now).key
first = pyotp.TOTP(known["key of an authenticator"]).at(now)
known["recovery code"] = second_factor.confirm(user=stranger.user, code=first, now=now)[0]
rival = User.objects.create_user(email="rival@example.com", password=wanted["password"])
other = tenancy.create(name="Rival", prefix="RIV", owner=rival, now=now)
known["operator key of another"] = operator_keys.create(user=rival, name="r", now=now)[1]
asked = cli_login.ask(command="login", client_name="box", address="127.0.0.1", now=now)
known["command-line login"], known["its key"] = asked.secret, asked.token
row = connections.create(company=company, kind="openai", name="Line", base_url=wanted["url"],
    key_secret="CONNECTION_KEY", actor=SYSTEM, now=now)
known["connection"] = str(row.id)
print(json.dumps(known))
"""

# Says all that it knows: its environment, its work, its token in two pieces, and the same again
# on the other channel and as its result.
PROGRAM = """
import json, os, sys, time
token = os.environ["PAPERCLIP_API_KEY"]
open(sys.argv[1], "w").write(token)
known = json.dumps(dict(os.environ))
print(known, sys.stdin.read(), flush=True)
for piece in (token[:20], token[20:], "\\n"):
    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.3)
print(known, file=sys.stderr)
result = {"summary": "My key is " + os.environ["PROGRAM_KEY"] + " and " + token,
          "result": {"env": dict(os.environ)}}
open(os.environ["PAPERCLIP_RESULT_FILE"], "w").write(json.dumps(result))
"""


class _Echo(BaseHTTPRequestHandler):
    """A service that answers with everything it was told, headers first."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        said = json.dumps(dict(self.headers)) + body
        if "refuse" in self.path:
            self._answer(401, {"error": {"message": f"Wrong key: {said}", "code": "bad"}})
        elif "chat/completions" in self.path:
            choice = {"index": 0, "finish_reason": "stop", "message": {"content": said}}
            use = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            self._answer(200, {"id": "1", "model": "echo", "choices": [choice], "usage": use})
        else:
            self._answer(200, {"summary": said[:3_500], "result": {"heard": said}})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def value(name: str) -> str:
    return f"canary-{name.lower().replace('_', '-')}-{secrets.token_hex(12)}"


STORED = (
    "MODEL_KEY", "HEADER_KEY", "CONNECTION_KEY", "PROGRAM_KEY", "SIGNING_KEY", "UNUSED_KEY",
    "REFUSED_KEY",
)  # fmt: skip


@dataclass
class Planted:
    """What must be seen nowhere, by its name, and the things to look at."""

    password: str
    secrets: dict[str, str] = field(default_factory=dict)
    issues: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)


def environment() -> dict[str, str]:
    """What is secret in the environment of an instance."""
    return {
        "SECRET_KEY": value("SECRET_KEY") + secrets.token_hex(20),
        "SECRET_KEY_FALLBACKS": value("FALLBACK") + secrets.token_hex(20),
        "PAPERCLIP_METRICS_TOKEN": value("METRICS"),
        "HOUSE_MODEL_KEY": value("HOUSE"),
    }


def plant(office: Office, url: str, folder: Path, password: str, known: dict[str, str]) -> Planted:
    """Secrets everywhere, and agents that have said them all."""
    stored = {name: value(name) for name in STORED}
    before = {"MODEL_KEY, before": value("old")}
    written = [("MODEL_KEY", before["MODEL_KEY, before"]), *stored.items()]
    plan = {"company": office.company, "stored": written, "password": password, "url": url}
    done = manage(
        *("shell", "-v", "0", "-c", _ROWS), env=office.instance.env | {"PLANT": json.dumps(plan)}
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    connection = rows.pop("connection")
    planted = Planted(password, known | stored | before | rows | {"operator key": office.key})
    planted.secrets["plain value of a program"] = value("plain")

    program, token = folder / "talker.py", folder / "token"
    program.write_text(textwrap.dedent(PROGRAM))
    program.chmod(0o755)
    chat = {"model": "echo", "tools": False}
    staff = {
        "Talker": ("process", {
            "command": "python3", "args": [str(program), str(token)],
            "env": {
                "PROGRAM_KEY": {"type": "secret_ref", "secret": "PROGRAM_KEY"},
                "PLAIN_TOKEN": planted.secrets["plain value of a program"],
            },
        }),
        "Model": ("openai", {
            **chat, "baseUrl": f"{url}/v1", "apiKeySecret": "MODEL_KEY",
            "headers": {"x-more": "{{secret:HEADER_KEY}}"},
        }),
        "House": ("openai", {**chat, "baseUrl": f"{url}/v1", "apiKeyEnv": "HOUSE_MODEL_KEY"}),
        "Line": ("openai", {**chat, "connectionId": connection}),
        "Refused": ("openai", {
            **chat, "baseUrl": f"{url}/refuse/v1", "apiKeySecret": "REFUSED_KEY",
        }),
        "Service": ("http", {
            "url": f"{url}/hook", "secretRef": "SIGNING_KEY",
            "headers": {"x-more": "{{secret:HEADER_KEY}}"},
        }),
    }  # fmt: skip
    for name, (adapter, config) in staff.items():
        agent = office.hire(name, adapter, config, onFinish="done")
        issue = office.give(agent, f"Say all, {CONTROL}", f"{CONTROL} of {name}")
        office.see_through(issue, seconds=60)
        planted.agents.append(agent)
        planted.issues.append(issue["id"])
    made = office.post(f"/agents/{planted.agents[0]}/keys", name="key")
    planted.secrets["agent key"] = made["token"]
    planted.secrets["run token"] = token.read_text()
    assert planted.secrets["run token"].startswith("pcr_")
    return planted
