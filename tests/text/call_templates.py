"""How families' chat templates write tool calls, in templates with little else."""

from __future__ import annotations

_TURNS = r"""{%- macro items(call) -%}{%- endmacro -%}
{%- for tool in tools or [] -%}{{- "<|tool|>" + (tool | tojson) -}}{%- endfor -%}
{%- for message in messages -%}
    {{- "<|" + message.role + "|>" + (message.content or "") -}}
    {%- if message.tool_calls -%}%CALLS%{%- endif -%}
    {{- "<|end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|assistant|>" -}}{%- endif -%}
"""


def _template(calls: str) -> str:
    return _TURNS.replace("%CALLS%", calls)


def _each(call: str, begin: str = "", end: str = "", between: str = "") -> str:
    """A template of calls, with texts around them all and between them."""
    text = f"{{{{- {begin!r} -}}}}" if begin else ""
    text += "{%- for call in message.tool_calls -%}{%- set f = call.function -%}" + call
    text += f"{{{{- {between!r} if not loop.last -}}}}" if between else ""
    text += "{%- endfor -%}"
    return _template(text + (f"{{{{- {end!r} -}}}}" if end else ""))


def _json(before: str, named: str, after: str = "", **around: str) -> str:
    call = f"{{{{- {before!r} + f.name + {named!r} + (f.arguments | tojson) + {after!r} -}}}}"
    return _each(call, **around)


def _xml(before: str, named: str, parameter: str, after: str, **around: str) -> str:
    """A template of calls in XML, where `parameter` uses k, v and t, the value as a text."""
    call = (
        f"{{{{- {before!r} + f.name + {named!r} -}}}}{{%- for k, v in f.arguments | items -%}}"
        "{%- set t = v if v is string else v | tojson -%}"
        f"{{{{- {parameter} -}}}}{{%- endfor -%}}{{{{- {after!r} -}}}}"
    )
    return _each(call, **around)


_NAMED = '", "arguments": '
CALL_TEMPLATES = {
    "apertus": _json('{"', '": ', "}", begin="<|tools_prefix|>[", end="]<|tools_suffix|>",
                     between=", "),
    "apriel": _json('{"name": "', _NAMED, "}", begin="\n<tool_calls>[", end="]</tool_calls>",
                    between=", "),
    "command r7b": _each(
        '{{- \'\n    {"tool_call_id": "\' + (loop.index0 | string) + \'", "tool_name": "\' + f.name'
        ' + \'", "parameters": \' + (f.arguments | tojson) + "}" -}}',
        begin="<|START_ACTION|>[", end="\n]<|END_ACTION|>", between=",",
    ),
    "deepseek r1": _json(
        "<\uff5ctool▁call▁begin\uff5c>function<\uff5ctool▁sep\uff5c>", "\n```json\n",
        "\n```<\uff5ctool▁call▁end\uff5c>",
        begin="<\uff5ctool▁calls▁begin\uff5c>", end="<\uff5ctool▁calls▁end\uff5c>", between="\n",
    ),
    "deepseek v3.2": _xml(
        '<\uff5cDSML\uff5cinvoke name="', '">\n',
        "'<\uff5cDSML\uff5cparameter name=\"' + k + '\" string=\"'"
        " + ('true' if v is string else 'false') + '\">' + t + '</\uff5cDSML\uff5cparameter>\n'",
        "</\uff5cDSML\uff5cinvoke>\n",
        begin="\n\n<\uff5cDSML\uff5cfunction_calls>\n", end="</\uff5cDSML\uff5cfunction_calls>",
    ),
    "functionary 3.1": _json("<function=", ">", "</function>"),
    "gigachat 3.1": _template(
        "{%- set f = message.tool_calls[0].function -%}"
        '{{- "<|function_call|>" + ({"name": f.name, "arguments": f.arguments} | tojson) -}}'
    ),
    "glm 4.5": _xml(
        "\n<tool_call>", "\n",
        "'<arg_key>' + k + '</arg_key>\n<arg_value>' + t + '</arg_value>\n'", "</tool_call>",
    ),
    "glm 4.7": _xml(
        "<tool_call>", "", "'<arg_key>' + k + '</arg_key><arg_value>' + t + '</arg_value>'",
        "</tool_call>",
    ),
    "kimi k2": _each(
        "{{- '<|tool_call_begin|>functions.' + f.name + ':' + (loop.index0 | string)"
        " + '<|tool_call_argument_begin|>' + (f.arguments | tojson) + '<|tool_call_end|>' -}}",
        begin="<|tool_calls_section_begin|>", end="<|tool_calls_section_end|>",
    ),
    "lfm 2.5": _each(
        "{{- f.name + '(' -}}{%- for k, v in f.arguments | items -%}{{- k + '=' -}}"
        "{{- \"'\" + v + \"'\" if v is string else v | tojson -}}{{- ', ' if not loop.last -}}"
        "{%- endfor -%}{{- ')' -}}",
        begin="<|tool_call_start|>[", end="]<|tool_call_end|>", between=", ",
    ),
    "minicpm 5": _xml(
        '<function name="', '">',
        "'<param name=\"' + k + '\">' + ('<![CDATA[' + t + ']]>' if '<' in t or '\n' in t else t)"
        " + '</param>'",
        "</function>", between="\n",
    ),
    "minimax m2": _xml(
        '<invoke name="', '">\n', "'<parameter name=\"' + k + '\">' + t + '</parameter>\n'",
        "</invoke>\n", begin="\n<minimax:tool_call>\n", end="</minimax:tool_call>",
    ),
    "nemotron nano 2": _json('{"name": "', _NAMED, "}", begin="<TOOLCALL>[", end="]</TOOLCALL>",
                             between=", "),
    "seed oss": _xml(
        "<seed:tool_call>\n<function=", ">\n", "'<parameter=' + k + '>' + t + '</parameter>\n'",
        "</function>\n</seed:tool_call>", between="\n",
    ),
}  # fmt: skip
# They write no calls, and describe the form to the model in words.
SILENT_TEMPLATES = {
    "lfm 2": _template("").replace("<|tool|>", "List of tools: <|tool_list_start|>["),
    "granite 3.3": _template("").replace("<|assistant|>", "<|start_of_role|>"),
}
