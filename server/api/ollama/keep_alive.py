"""`keep_alive`: how long a model stays loaded after a request.

A number of seconds, or a text in the form of Go's durations, such as 5m or 1h30m. 0 unloads the
model after the request, and a negative value keeps it loaded.
"""

import math
import re
from contextlib import suppress
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_UNITS)})")
_DURATION = re.compile(rf"[+-]?(?:(?:{_PART.pattern})+|0)")
_EXPECTED = "seconds, or a duration such as 5m, 1h30m or -1s"


def _seconds(value: Any) -> float:
    """The seconds of a duration; infinite for a negative one."""
    if isinstance(value, str) and len(value) <= 64 and _DURATION.fullmatch(value):
        seconds = sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(value))
        return math.inf if value.startswith("-") and seconds else seconds
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer that no float has
            seconds = float(value)
            if not math.isnan(seconds):
                return math.inf if seconds < 0 else seconds
    raise ValueError(_EXPECTED)


KeepAlive = Annotated[
    float, PlainValidator(_seconds), WithJsonSchema({"type": ["number", "string"]})
]
KEEP_ALIVE = (
    f"How long the model stays loaded after this request: {_EXPECTED}. 0 unloads it, a negative "
    "value keeps it. By default as --idle-timeout says. A model of --pin stays loaded."
)
