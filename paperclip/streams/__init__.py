"""Live streams: native async, apart from Django's request handling.

`hub.py` hears what changed and reads it once for everybody; `feeds.py` holds what several viewers
of one run or company share; `service.py` speaks HTTP. A viewer costs a coroutine and a place in a
set: no thread, no connection, no buffer of their own.
"""

from paperclip.streams.service import app

__all__ = ["app"]
