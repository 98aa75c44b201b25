"""JSON and text as other people's programs write them."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """`text` as PostgreSQL can keep it: NUL and lone surrogates become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text) if _UNSTORABLE.search(text) else text


def loads(text: str | bytes) -> Any:
    """The value in `text`. Raises ValueError.

    Escapes of half a character (servers that count in UTF-16 send an emoji in two pieces) become
    question marks instead of errors here or in the database.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if (b"\\u" if isinstance(text, bytes) else "\\u") not in text:  # type: ignore[operator]
            raise
        try:
            whole = json.dumps(json.loads(text), ensure_ascii=False)
        except RecursionError:
            raise error from None
        return orjson.loads(whole.encode("utf-8", "replace"))
