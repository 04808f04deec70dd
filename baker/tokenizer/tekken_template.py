"""A chat template for tekken.json, whose folders leave it to mistral_common.

Source: InstructTokenizerV7 of mistral_common (2026), the version of Voxtral.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = "v7"
_TEMPLATE = """\
{%- macro text(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content or [] %}
            {{- part.text if part.type == "text" else "[BEGIN_AUDIO][AUDIO]" }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set users = messages | selectattr("role", "equalto", "user") | list %}
{%- set counted = namespace(users=0) %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == "system" %}
        {{- "[SYSTEM_PROMPT]" + text(message.content) + "[/SYSTEM_PROMPT]" }}
    {%- elif message.role == "user" %}
        {%- set counted.users = counted.users + 1 %}
        {%- if tools and counted.users == users | length %}
            {{- "[AVAILABLE_TOOLS]" + tools | tojson + "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST]" + text(message.content) + "[/INST]" }}
    {%- elif message.role == "tool" %}
        {{- "[TOOL_RESULTS]" + message.tool_call_id + "[TOOL_CONTENT]" }}
        {{- text(message.content) + "[/TOOL_RESULTS]" }}
    {%- elif message.role == "assistant" %}
        {{- text(message.content) }}
        {%- for call in message.tool_calls or [] %}
            {{- "[TOOL_CALLS][" if loop.first else ", " }}
            {{- '{"name": ' + call.function.name | tojson }}
            {{- ', "arguments": ' + call.function.arguments | tojson }}
            {{- ', "id": ' + call.id | tojson + "}" }}
            {{- "]" if loop.last }}
        {%- endfor %}
        {{- eos_token }}
    {%- else %}
        {{- raise_exception("Only system, user, assistant and tool roles are supported") }}
    {%- endif %}
{%- endfor %}
"""


def tekken_template(data: Mapping[str, Any]) -> str | None:
    """The template for the content of a tekken.json; None if it is not of a model with sound.

    Folders of other models have a template, or are of models without chats.
    """
    config = data.get("config")
    version = config.get("version") if isinstance(config, dict) else None
    return _TEMPLATE if "audio" in data and version == _VERSION else None
