"""A simulated agent: looks and paces like a real one, thinks nothing and spends nothing.

For a first look without any key, for demonstrations and for load tests. Everything it says is
labelled as simulated. The same run id gives the same transcript.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from agents.adapters.base import (
    AdapterError,
    AnyConfig,
    Brief,
    Check,
    Code,
    Config,
    ConfigClass,
    Done,
    Event,
    Started,
    Step,
    Text,
)

LABEL = "[Simulated] "
ASKS_ONE_IN = 6
WORD_SECONDS = 0.07  # at pace 1
STEP_SECONDS = 1.5


class DemoConfig(Config):
    """`pace` stretches time (0: no waiting at all); `failRate` is a share of runs, 0 to 1."""

    script: Literal["auto", "research", "engineering", "writing"] = "auto"
    pace: float = Field(1.0, ge=0, le=20, allow_inf_nan=False)
    fail_rate: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    questions: bool = True
    on_finish: Literal["done", "in_review"] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """What a kind of work looks like. `{title}` and `{project}` are filled in."""

    thinking: Sequence[str]
    steps: Sequence[tuple[str, dict[str, Any], str]]
    findings: Sequence[str]
    question: str
    words: Sequence[str]  # that hint at this script in a title


SCRIPTS: dict[str, Script] = {
    "research": Script(
        thinking=(
            "What would settle “{title}”? First the facts that can be checked, then what they "
            "mean for us.",
            "Two sources are better than one. I will note where they disagree.",
        ),
        steps=(
            ("search", {"query": "{title}"}, "6 results, 3 of them useful"),
            ("read", {"document": "industry overview"}, "2,140 words, 4 relevant passages"),
            ("read", {"document": "our own notes"}, "1 earlier decision on this topic"),
            ("compare", {"criteria": ["cost", "effort", "risk"]}, "a table of 3 options"),
        ),
        findings=(
            "The second option costs least over a year and can be undone.",
            "Two of three sources agree; the third is older than a year.",
            "No option needs a decision before the end of the month.",
        ),
        question="Which matters more here: a lower price, or being live sooner?",
        words=("research", "compare", "evaluate", "analy", "survey", "market", "investigate"),
    ),
    "engineering": Script(
        thinking=(
            "“{title}”: I will look at how it works today before changing anything.",
            "The smallest change that fixes it, and a test that would have caught it.",
        ),
        steps=(
            ("list_files", {"path": "src"}, "42 files"),
            ("read_file", {"path": "src/orders.py"}, "188 lines"),
            ("edit_file", {"path": "src/orders.py"}, "14 lines added, 6 removed"),
            ("run_tests", {"selection": "tests/test_orders.py"}, "23 passed in 1.8 s"),
        ),
        findings=(
            "The cause was a missing check on an empty list; it is covered by a test now.",
            "The change touches one function and no interface.",
            "All 23 tests of this part pass.",
        ),
        question="May the old spelling of the parameter be dropped, or does someone rely on it?",
        words=("fix", "bug", "implement", "build", "refactor", "test", "deploy", "api", "code"),
    ),
    "writing": Script(
        thinking=(
            "Who reads “{title}”, and what should they do afterwards?",
            "One thought a paragraph, the offer first, no jargon.",
        ),
        steps=(
            ("read", {"document": "style guide"}, "tone: friendly, short sentences"),
            ("outline", {"sections": 4}, "hook, problem, offer, next step"),
            ("draft", {"words": 320}, "a first draft of 318 words"),
            ("revise", {"goal": "shorter"}, "264 words, reading ease up by 9 points"),
        ),
        findings=(
            "The draft opens with the customer's problem and ends with one clear next step.",
            "It is 264 words long and fits a single screen.",
            "Two alternative headlines are included.",
        ),
        question="Shall the text name a price, or send readers to the price page?",
        words=("write", "draft", "post", "blog", "email", "copy", "announce", "page", "content"),
    ),
}


class Demo:
    type: ClassVar[str] = "demo"
    label: ClassVar[str] = "Simulated agent"
    description: ClassVar[str] = (
        "Plays a believable run without any model: no key, no cost, no real work."
    )
    Config: ClassVar[ConfigClass] = DemoConfig
    retry_safe: ClassVar[bool] = True
    uses_tools: ClassVar[bool] = True
    needs_folder: ClassVar[bool] = False
    simulated: ClassVar[bool] = True

    async def run(self, brief: Brief) -> AsyncGenerator[Event, None]:
        try:
            config = DemoConfig.model_validate(dict(brief.config))
        except ValidationError as error:
            raise AdapterError(Code.CONFIG_INVALID, str(error)) from error
        async for event in Play(brief, config).events():
            yield event

    async def test(self, config: AnyConfig, secrets: Mapping[str, str]) -> list[Check]:
        return [Check("Simulated agent", True, "Always ready. It simulates and does no real work.")]

    async def aclose(self) -> None:
        return None


class Play:
    """One performance."""

    def __init__(self, brief: Brief, config: DemoConfig) -> None:
        self.brief = brief
        self.config = config
        self.rng = random.Random(f"{brief.run_id}/{brief.attempt}")  # noqa: S311 (a play)
        self.title = brief.task.title if brief.task else "the regular look at the work"
        self.tools = {tool.name for tool in brief.tools}
        self.step_number = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        script = SCRIPTS[self._script_name()]
        # Drawn in this order always, so that a run's fate does not hang on its configuration.
        fails = self.rng.random() < self.config.fail_rate
        asks = self.rng.randrange(ASKS_ONE_IN) == 0
        yield Started(model="simulated", detail={"simulated": True})
        yield Text(f"{LABEL}No model is involved in this run and nothing is changed outside.\n\n")
        async for event in self._speak(script.thinking[0], "thinking"):
            yield event
        for number, (name, arguments, output) in enumerate(script.steps):
            async for event in self._step(name, arguments, output):
                yield event
            if number == 1:
                async for event in self._speak(script.thinking[1], "thinking"):
                    yield event
                if fails:
                    raise AdapterError(
                        Code.SIMULATED,
                        "Simulated failure: this agent is set to fail now and then (failRate).",
                    )
        if asks and self.config.questions and "ask_operator" in self.tools:
            async for event in self._ask(script.question):
                yield event
            return
        async for event in self._report(script):
            yield event

    async def _ask(self, question: str) -> AsyncGenerator[Event, None]:
        async for event in self._speak("I need one answer before I can go on.", "answer"):
            yield event
        async for event in self._tool("ask_operator", {"question": LABEL + question}):
            yield event
        yield Done(summary=f"{LABEL}Waiting for an answer: {question}", result={"simulated": True})

    async def _report(self, script: Script) -> AsyncGenerator[Event, None]:
        findings = self.rng.sample(list(script.findings), k=len(script.findings))
        async for event in self._speak(f"Finished with “{self.title}”.\n", "answer"):
            yield event
        for finding in findings:
            async for event in self._speak(f"- {finding}\n", "answer"):
                yield event
        lines = "\n".join(f"- {finding}" for finding in findings)
        summary = f"{LABEL}What a real agent would report here:\n\n{lines}"
        if self.brief.task is not None and "comment" in self.tools:
            async for event in self._tool("comment", {"body": summary}):
                yield event
        yield Done(summary=summary, status=self._wish(), result={"simulated": True})

    def _wish(self) -> Literal["done", "in_review"] | None:
        if self.brief.task is None:
            return None
        return self.config.on_finish or self.brief.task.on_finish

    def _script_name(self) -> str:
        if self.config.script != "auto":
            return self.config.script
        title = self.title.lower()
        for name, script in SCRIPTS.items():
            if any(word in title for word in script.words):
                return name
        return random.Random(self.brief.run_id).choice(sorted(SCRIPTS))  # noqa: S311 (a play)

    async def _step(
        self, name: str, arguments: Mapping[str, Any], output: str
    ) -> AsyncGenerator[Event, None]:
        self.step_number += 1
        step_id = f"step-{self.step_number}"
        shown = {key: self._filled(value) for key, value in arguments.items()}
        yield Step(id=step_id, name=name, phase="start", input=shown)
        took = STEP_SECONDS * self.rng.uniform(0.5, 1.6)
        await self._wait(took)
        yield Step(id=step_id, name=name, phase="end", output=output, duration_ms=int(took * 1000))

    async def _tool(self, name: str, arguments: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """A real call of a real tool: what a demo agent says must reach the issue."""
        self.step_number += 1
        step_id = f"step-{self.step_number}"
        yield Step(id=step_id, name=name, phase="start", input=arguments)
        began = time.monotonic()
        result = await self.brief.call_tool(name, arguments)
        yield Step(
            id=step_id,
            name=name,
            phase="end",
            output=result.text,
            is_error=result.is_error,
            duration_ms=int((time.monotonic() - began) * 1000),
        )

    async def _speak(
        self, text: str, channel: Literal["answer", "thinking"]
    ) -> AsyncGenerator[Event, None]:
        words = self._filled(text).split(" ")
        for number, word in enumerate(words):
            yield Text(word if number == 0 else f" {word}", channel)
            await self._wait(WORD_SECONDS * self.rng.uniform(0.4, 1.8))
        if channel == "thinking":
            yield Text("\n", channel)

    def _filled(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value.replace("{title}", self.title)

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.config.pace)
