"""Plays a recorded output of a command-line agent through its reader."""

import json
from dataclasses import dataclass
from pathlib import Path

from agents.adapters.base import Event, Step, Text, Usage
from agents.adapters.claude_local import ClaudeReader
from agents.adapters.cli_reader import Ending, Expectation, Lines, Reader, Tokens
from agents.adapters.codex_local import CodexReader
from agents.adapters.gemini_local import GeminiReader
from agents.adapters.opencode_local import OpenCodeReader

FIXTURES = Path(__file__).parents[1] / "cli_fixtures"
READERS: dict[str, type[Reader]] = {
    "claude": ClaudeReader,
    "codex": CodexReader,
    "gemini": GeminiReader,
    "opencode": OpenCodeReader,
}


@dataclass
class Replayed:
    reader: Reader
    events: list[Event]
    ending: Ending
    usages: list[Usage]

    def text(self, channel: str = "answer") -> str:
        return "".join(e.text for e in self.events if isinstance(e, Text) and e.channel == channel)

    def steps(self, phase: str) -> list[Step]:
        return [e for e in self.events if isinstance(e, Step) and e.phase == phase]


def cases() -> list[str]:
    """Every recording, as program/name."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in FIXTURES.glob("*/*.jsonl"))


def exit_code(case: str) -> int | None:
    meta = FIXTURES / f"{case}.meta"
    told = json.loads(meta.read_text().splitlines()[0]) if meta.exists() else {"exit_code": 0}
    code = told.get("exit_code", told.get("rc"))
    return code if isinstance(code, int) and code != 124 else None  # 124: stopped by the recorder


def replay(
    case: str, *, session_id: str = "", session_usage: Tokens | None = None, pieces: int = 0
) -> Replayed:
    """The recording `case` read in whole lines, or cut into `pieces` of that many characters."""
    reader = READERS[case.partition("/")[0]](
        Expectation(
            provider="vendor",
            model="asked-model",
            prompt_chars=400,
            session_id=session_id,
            session_usage=session_usage or Tokens(),
            first_party=True,
        )
    )
    events: list[Event] = []
    stderr = FIXTURES / f"{case}.stderr"
    if stderr.exists():
        for line in stderr.read_text().splitlines():
            events += reader.error_line(line)
    text = (FIXTURES / f"{case}.jsonl").read_text()
    lines = Lines()
    size = pieces or max(1, len(text))
    for begin in range(0, len(text), size):
        for line in lines.feed(text[begin : begin + size]):
            events += reader.line(line)
    for line in lines.close():
        events += reader.line(line)
    reader.open_steps()
    ending = reader.give_up or reader.ending(exit_code(case))
    usages = [e for e in events if isinstance(e, Usage)] + reader.usages()
    return Replayed(reader, events, ending, usages)
