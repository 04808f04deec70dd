"""Tool calls for models whose chat template has no form for them, as llama.cpp's generic form.

{"tool_calls": [{"name": "f", "arguments": {"a": 1}}]}    or    {"response": "text"}

The prompt describes this form (text/templates/generic_messages.py), and the grammar of the answer
enforces it. Source: common_chat_params_init_generic in llama.cpp's common/chat.cpp. Unlike there, a
single call has the same form as several, and calls have no ids.
"""

from __future__ import annotations

from hearthd.text.tool_calls.call_format import SPACE, CallFormat
from hearthd.text.tool_calls.json_calls import named_objects

GENERIC = CallFormat(
    marker="{",
    opening=(SPACE, '"tool_calls"', SPACE, ":", SPACE, "[", SPACE),
    **named_objects(),
    separator=(SPACE, ",", SPACE),
    closing=(SPACE, "]", SPACE, "}"),
    response=(("{", SPACE, '"response"', SPACE, ":", SPACE, '"'), (SPACE, "}")),
    only_first=True,
)
