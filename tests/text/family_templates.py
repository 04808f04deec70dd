"""Chat templates with the features of known families, written for these tests."""

from __future__ import annotations

from tests.server import templates
from tests.text.later_templates import LATER

# Llama 3: a date, tools in the first question, JSON with an indent, one call at a time.
LLAMA_3 = r"""{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- endif %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no first question to put the tools into") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- 'Answer with {"name": function, "parameters": arguments}.\n\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

# Mistral: filters over messages, ids of nine characters, tools before the last question.
MISTRAL = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages | rejectattr("role", "equalto", "tool") %}
    {%- if not message.tool_calls is defined %}
        {%- if message["role"] not in ["user", "assistant"] %}
            {{- raise_exception("Only user and assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {{- ", " if not loop.last else "]" }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs have nine characters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"] + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS]{"content": ' + message.content|string }}
        {{- ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""

# Granite: a preset system message, tools with an indent, variables that a request can set.
GRANITE = r"""{%- if messages[0]['role'] == 'system' %}
     {%- set system_message = messages[0]['content'] %}
     {%- set loop_messages = messages[1:] %}
 {%- else %}
     {%- set system_message = "Today's Date: " + date_string + ".\nYou are Granite." %}
     {%- if tools and documents %}
        {%- set system_message = system_message + " Use tools and documents." %}
     {%- elif tools %}
        {%- set system_message = system_message + " Call tools with <|tool_call|> and a list." %}
     {%- elif thinking %}
        {%- set system_message = system_message + " Think between <think> and </think>." %}
     {%- endif %}
     {%- set loop_messages = messages %}
 {%- endif %}
 {{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}
 {%- if tools %}
     {{- '<|start_of_role|>tools<|end_of_role|>' }}
     {{- tools | tojson(indent=4) }}
     {{- '<|end_of_text|>\n' }}
 {%- endif %}
 {%- for message in loop_messages %}
     {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] }}
     {%- for call in message.tool_calls or [] %}
         {{- '<|tool_call|>' + ([call.function] | tojson) }}
     {%- endfor %}
     {{- '<|end_of_text|>\n' }}
     {%- if loop.last and add_generation_prompt %}
         {{- '<|start_of_role|>assistant' }}
         {%- if controls %}
             {{- ' ' + controls | tojson() }}
         {%- endif %}
         {{- '<|end_of_role|>' }}
     {%- endif %}
 {%- endfor %}
"""

# Phi 4 mini: the tools are a field of the system message.
PHI = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] "
    "+ '<|/tool|>' + '<|end|>' }}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
)

# SmolLM3: macros, blocks that mark the model's words, a mode that the system message can set.
SMOLLM3 = r"""{%- if enable_thinking is not defined -%}
    {%- set enable_thinking = true -%}
{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- if messages[0].role == "system" -%}
    {%- if "/no_think" in messages[0].content -%}
        {%- set mode = "/no_think" -%}
    {%- endif -%}
    {%- set custom = messages[0].content.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- macro turn(role, text) -%}
{{ "<|im_start|>" ~ role ~ "\n" ~ text ~ "<|im_end|>\n" }}
{%- endmacro -%}
{{- turn("system", "Mode: " ~ mode ~ ("\n" ~ custom if custom else "")) -}}
{%- if xml_tools or tools -%}
    {%- for tool in xml_tools or tools -%}
        {{- (tool | string) ~ "\n" -}}
    {%- endfor -%}
{%- endif -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "assistant" -%}
        {% generation %}
        {%- if mode == "/think" -%}
            {{- turn("assistant", content.lstrip("\n")) -}}
        {%- else -%}
            {{- turn("assistant", "<think>\n\n</think>\n" ~ content.lstrip("\n")) -}}
        {%- endif -%}
        {% endgeneration %}
    {%- elif message.role != "system" -%}
        {{- turn("user", content) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" ~ ("" if mode == "/think" else "<think>\n\n</think>\n") }}
{%- endif -%}
"""

# GLM: JSON with options, loops with conditions, block assignments, `break`.
GLM = r"""[gMASK]<sop>
{%- if tools -%}
<|system|>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{{ tool.function | tojson(sort_keys=true, separators=(",", ":")) }}
{% endfor %}
{%- endif -%}
{%- macro visible(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable -%}
        {%- for item in content if item.type == 'text' -%}{{ item.text }}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{% set ns.last_user = loop.index0 -%}{%- endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning = m.reasoning_content or '' %}
{%- if loop.index0 > ns.last_user and reasoning -%}
{{ '\n<think>' + reasoning.strip() + '</think>' }}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if visible(m.content).strip() -%}{{ '\n' + visible(m.content).strip() }}{%- endif -%}
{%- for tc in m.tool_calls or [] %}
{{ '\n<call>' + tc.function.name }}
{%- for k, v in tc.function.arguments.items() %}
{{ k }}={{ v | tojson(ensure_ascii=False) if v is not string else v }}
{%- endfor %}
</call>{% endfor %}
{%- elif m.role == 'tool' -%}
{%- set result %}<tool_response>{{ m.content | default("none", true) | upper }}{% endset %}
{{- '\n' ~ result ~ "</tool_response>" -}}
{%- else -%}<|system|>
{{ visible(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- for stop in ["a", "b"] -%}{%- if loop.index > 1 -%}{%- break -%}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{ '\n<think></think>' if no_think else '' }}
{%- endif -%}
"""

# Gemma 4: a macro that calls itself, sorted keys, strings in tokens, thinking that is cut out.
GEMMA_4 = r"""{%- macro value_of(value) -%}
    {%- if value is string -%}
        {{- '<|"|>' + value + '<|"|>' -}}
    {%- elif value is boolean -%}
        {{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {%- set ns = namespace(comma='') -%}
        {{- '{' -}}
        {%- for key, inner in value | dictsort -%}
            {{- ns.comma }}{{ key }}:{{ value_of(inner) -}}
            {%- set ns.comma = ',' -%}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif value is sequence -%}
        [{%- for inner in value -%}
            {{- value_of(inner) }}{{ ',' if not loop.last -}}
        {%- endfor -%}]
    {%- else -%}
        {{- value -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro without_thinking(text) -%}
    {%- set ns = namespace(result='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- set ns.result = ns.result + part.split('<|channel>')[0] -%}
    {%- endfor -%}
    {{- ns.result | trim -}}
{%- endmacro -%}
{%- set ns = namespace(answered=false) -%}
{{ bos_token }}
{%- set thinks = enable_thinking | default(false) -%}
{%- if thinks or tools or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\n' ~ ('<|think|>' if thinks else '') -}}
    {%- if messages[0]['role'] in ['system', 'developer'] -%}
        {{- messages[0]['content'] | trim -}}
        {%- set messages = messages[1:] -%}
    {%- endif -%}
    {%- for tool in tools or [] -%}
        <|tool>declaration:{{ tool['function']['name'] }}{{ value_of(tool['function']) }}<tool|>
    {%- endfor -%}
    {{- '<turn|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set ns.answered = message['role'] == 'tool' -%}
    {{- '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' -}}
    {%- for call in message['tool_calls'] or [] -%}
        {{- '<|tool_call>call:' + call['function']['name'] -}}
        {{- value_of(call['function']['arguments']) + '<tool_call|>' -}}
    {%- endfor -%}
    {{- without_thinking(message['content']) + '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '' if ns.answered else '<|turn>model\n' -}}
    {{- '' if thinks else '<|channel>thought\n<channel|>' -}}
{%- endif -%}
"""

# LFM2: tools as a list of JSON in the system message, which a loop builds.
LFM2 = r"""{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- if messages[0]["role"] == "system" -%}
    {%- set ns.system = messages[0]["content"] -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- if tools -%}
    {%- set ns.system = ns.system + ("\n" if ns.system else "") + "List of tools: [" -%}
    {%- for tool in tools -%}
        {%- if tool is not string -%}{%- set tool = tool | tojson -%}{%- endif -%}
        {%- set ns.system = ns.system + tool + (", " if not loop.last else "") -%}
    {%- endfor -%}
    {%- set ns.system = ns.system + "]" -%}
{%- endif -%}
{%- if ns.system -%}{{- "<|im_start|>system\n" + ns.system + "<|im_end|>\n" -}}{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\n" -}}
    {%- set content = message["content"] -%}
    {%- if content is not string -%}{%- set content = content | tojson -%}{%- endif -%}
    {%- if message["role"] == "tool" -%}
        {%- set content = "<|tool_response_start|>" + content + "<|tool_response_end|>" -%}
    {%- endif -%}
    {{- content + "<|im_end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\n" -}}{%- endif -%}
"""

# OLMo 2: the end token between answers; the last answer has a prompt behind it.
OLMO_2 = r"""{{ bos_token }}{% for message in messages %}
{%- if message['role'] == 'assistant' -%}
    {{ '<|assistant|>\n' + message['content'] + eos_token + ('' if loop.last else '\n') }}
{%- else -%}
    {{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}
{%- endif -%}
{%- if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif -%}
{%- endfor %}"""

FAMILIES = {
    "gemma": templates.GEMMA,
    "function gemma": templates.FUNCTION_GEMMA,
    "chatml": templates.CHATML,
    "qwen 3": templates.THINKING,
    "llama 3": LLAMA_3,
    "mistral": MISTRAL,
    "granite": GRANITE,
    "phi 4": PHI,
    "smollm 3": SMOLLM3,
    "glm": GLM,
    "gemma 4": GEMMA_4,
    "lfm 2": LFM2,
    "olmo 2": OLMO_2,
    **LATER,
}
