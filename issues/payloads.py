"""What a question holds and how it reads: its shapes, checked before it is asked, and the words of
it and of its answer as a person sees them. What is accepted here is shown.

    ask_user_questions    {"question", "options": [label or {"label"}]}
                          or {"questions": [{"id", "prompt", "selectionMode", "options": [...]}]}
    request_confirmation  {"prompt", "detailsMarkdown", "target"}
    suggest_tasks         {"tasks": [...]}, see `suggestions.py`

Each may have a title and a summary above. More keys are kept for the asker, unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from companies.errors import Invalid
from issues.models import Interaction

MAX_QUESTIONS = 20
MAX_OPTIONS = 10
MAX_ANSWERS = 50
PROMPT_CHARS, LABEL_CHARS, NAME_CHARS = 4_000, 200, 100
MODES = ("single", "multi", "multiple")
Kind = Interaction.Kind


# --- before it is asked ----------------------------------------------------------------------


def check(kind: str, payload: Mapping[str, Any]) -> None:
    """Let a payload pass. Raises Invalid with the path of what nobody could read."""
    for key in ("title", "summary", "detailsMarkdown"):
        if payload.get(key) is not None:
            _text(payload[key], f"payload.{key}", 20_000)
    if kind == Kind.TASKS:
        return
    if kind == Kind.QUESTION and payload.get("questions") is not None:
        _check_questions(payload["questions"])
        return
    name = "question" if kind == Kind.QUESTION else "prompt"
    given = next((key for key in ("question", "prompt") if payload.get(key) is not None), name)
    _text(payload.get(given), f"payload.{given}", PROMPT_CHARS)
    _check_options(payload.get("options"), "payload.options")


def _check_questions(questions: Any) -> None:
    path = "payload.questions"
    if not isinstance(questions, list) or not 1 <= len(questions) <= MAX_QUESTIONS:
        raise _bad(path, f"is a list of 1 to {MAX_QUESTIONS} questions")
    names = []
    for number, one in enumerate(questions):
        here = f"{path}.{number}"
        if not isinstance(one, dict):
            raise _bad(here, 'is an object with a "prompt"')
        key = "question" if one.get("prompt") is None and one.get("question") else "prompt"
        _text(one.get(key), f"{here}.{key}", PROMPT_CHARS)
        if one.get("selectionMode") is not None and one["selectionMode"] not in MODES:
            raise _bad(f"{here}.selectionMode", "is single or multi")
        if one.get("id") is not None:
            names.append(_text(one["id"], f"{here}.id", NAME_CHARS))
        _check_options(one.get("options"), f"{here}.options")
    if len(set(names)) < len(names):
        raise _bad(path, "has two questions with the same id")


def _check_options(options: Any, path: str) -> None:
    if options is None:
        return
    if not isinstance(options, list) or len(options) > MAX_OPTIONS:
        raise _bad(path, f"is a list of at most {MAX_OPTIONS} options")
    for number, one in enumerate(options):
        here = f"{path}.{number}"
        if isinstance(one, dict):
            _text(one.get("label"), f"{here}.label", LABEL_CHARS)
            if one.get("id") is not None:
                _text(one["id"], f"{here}.id", NAME_CHARS)
        else:
            _text(one, here, LABEL_CHARS)


def _text(value: Any, path: str, limit: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _bad(path, "is text that says something")
    if len(value) > limit:
        raise _bad(path, f"has at most {limit:,} characters")
    return value


def _bad(path: str, what: str) -> Invalid:
    return Invalid("invalid_payload", f"{path} {what}.", field=path)


# --- as it reads -----------------------------------------------------------------------------


def question(payload: Any) -> str:
    """All that is asked, as text, whatever shape the asker gave it."""
    payload = payload if isinstance(payload, dict) else {}
    asked = _listed(payload)
    keys = ("title", "summary", "question", "prompt", "detailsMarkdown")
    parts = [payload[key].strip() for key in keys if isinstance(payload.get(key), str)]
    if len(asked) == 1:
        parts.append(_prompt(asked[0]))
    else:
        parts.append("\n".join(_numbered(number, one) for number, one in enumerate(asked, 1)))
    tasks = payload.get("tasks")
    if isinstance(tasks, list):
        titles = [str(one.get("title") or "") for one in tasks if isinstance(one, dict)]
        parts.append("\n".join(f"- {title}" for title in titles if title))
    return "\n\n".join(dict.fromkeys(part for part in parts if part)) or "A question"


def options(payload: Any) -> list[str]:
    """The answers that can be chosen with one press: those of the only question."""
    payload = payload if isinstance(payload, dict) else {}
    asked = _listed(payload)
    given = asked[0].get("options") if len(asked) == 1 else payload.get("options")
    return list(_labels(given).values())[:MAX_OPTIONS]


def _listed(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    questions = payload.get("questions")
    if not isinstance(questions, list):
        return []
    return [one for one in questions if isinstance(one, dict) and _prompt(one)]


def _prompt(one: Mapping[str, Any]) -> str:
    return str(one.get("prompt") or one.get("question") or "").strip()


def _numbered(number: int, one: Mapping[str, Any]) -> str:
    chosen = " / ".join(_labels(one.get("options")).values())
    return f"{number}. {_prompt(one)}" + (f" ({chosen})" if chosen else "")


def _labels(given: Any) -> dict[str, str]:
    """The labels of options, by their ids or else themselves."""
    found: dict[str, str] = {}
    for one in given if isinstance(given, list) else ():
        label = str(one.get("label") or "") if isinstance(one, dict) else str(one)
        if label:
            found[str(one.get("id") or label) if isinstance(one, dict) else label] = label
    return found


# --- its answer ------------------------------------------------------------------------------


def said(payload: Any, answers: Any) -> str:
    """The words of `answers`: a list of {"questionId", "optionIds", "text"}, or an object of text,
    option ids or such by question. Raises Invalid for what says nothing."""
    given = _by_question(answers)
    if not 1 <= len(given) <= MAX_ANSWERS:
        raise _bad("answers", f"has 1 to {MAX_ANSWERS} answers")
    asked = {
        str(one.get("id")): one for one in _listed(payload if isinstance(payload, dict) else {})
    }
    lines = []
    for place, name, one in given:
        known = asked.get(name, {})
        words = _words(one, f"answers.{place}", _labels(known.get("options")))
        about = _prompt(known) or name
        lines.append(f"{about}: {words}" if about and max(len(given), len(asked)) > 1 else words)
    return "\n".join(lines)


def _by_question(answers: Any) -> list[tuple[str, str, Any]]:
    if isinstance(answers, dict):
        return [(name, name, one) for name, one in answers.items()]
    named = enumerate(answers if isinstance(answers, list) else ())
    return [
        (str(n), str(one.get("questionId") or "") if isinstance(one, dict) else "", one)
        for n, one in named
    ]


def _words(one: Any, path: str, labels: Mapping[str, str]) -> str:
    if isinstance(one, dict):
        chosen = one.get("optionIds")
        own = one.get("otherText") or one.get("text")
        texts = [*(chosen if isinstance(chosen, list) else ()), *([own] if own else ())]
    else:
        texts = one if isinstance(one, list) else [one]
    if not texts or not _are_words(texts):
        raise _bad(path, "is text, option ids, or an object with optionIds or text")
    return ", ".join(labels.get(text, text).strip() for text in texts)


def _are_words(texts: Sequence[Any]) -> bool:
    return all(isinstance(text, str) and text.strip() for text in texts)
