"""Chat templates with the features of mixtures of experts of 2025, written for these tests."""

from __future__ import annotations

# Ling 2.0: roles in tags, whether the model thinks in the turn of the system, calls as in Hermes.
LING_2 = r"""{{- "<role>SYSTEM</role>" -}}
{%- if messages[0].role == "system" -%}{{- messages[0].content + "\n" -}}{%- endif -%}
{%- if tools -%}
    {{- "# Tools\n\n<tools>" -}}
    {%- for tool in tools -%}{{- "\n" + (tool | tojson) -}}{%- endfor -%}
    {{- "\n</tools>\n\n<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>\n" -}}
{%- endif -%}
{{- "detailed thinking off<|role_end|>" -}}
{%- for message in messages -%}
    {%- if message.role == "user" -%}
        {{- "<role>HUMAN</role>" + message.content + "<|role_end|>" -}}
    {%- elif message.role == "assistant" -%}
        {{- "<role>ASSISTANT</role>" + message.content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- "\n" if message.content or not loop.first else "" -}}
            {{- "<tool_call>\n{\"name\": \"" + call.function.name + "\", \"arguments\": " -}}
            {{- (call.function.arguments | tojson) + "}\n</tool_call>" -}}
        {%- endfor -%}
        {{- "<|role_end|>" -}}
    {%- elif message.role == "tool" -%}
        {%- if loop.first or loop.previtem.role != "tool" -%}
            {{- "<role>OBSERVATION</role>" -}}
        {%- endif -%}
        {{- "\n<tool_response>\n" + message.content + "\n</tool_response>" -}}
        {%- if loop.last or loop.nextitem.role != "tool" -%}{{- "<|role_end|>" -}}{%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<role>ASSISTANT</role>" -}}{%- endif -%}
"""

# K-EXAONE: roles are tokens, thoughts are kept after the latest question, results by turn.
K_EXAONE = r"""{%- set thinks = enable_thinking | default(true) -%}
{%- set ns = namespace(question=-1) -%}
{%- for message in messages -%}
    {%- if message.role == "user" -%}{%- set ns.question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- if messages[0].role == "system" or tools -%}
    {{- "<|system|>\n" -}}
    {{- messages[0].content if messages[0].role == "system" else "" -}}
    {%- if tools -%}
        {{- "\n\n# Tools" -}}
        {%- for tool in tools -%}
            {{- "\n<tool>" + (tool | tojson(ensure_ascii=False)) + "</tool>" -}}
        {%- endfor -%}
    {%- endif -%}
    {{- "<|endofturn|>\n" -}}
{%- endif -%}
{%- for message in messages if message.role != "system" -%}
    {%- set content = message.content | string -%}
    {%- if message.role == "assistant" -%}
        {%- set thought = message.reasoning_content or "" -%}
        {%- set thought = thought if loop.index0 > ns.question else "" -%}
        {{- "<|assistant|>\n<think>\n" + thought + "\n</think>\n\n" + content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- "<tool_call>" + (call.function | tojson(ensure_ascii=False)) + "</tool_call>" -}}
        {%- endfor -%}
    {%- elif message.role == "tool" -%}
        {{- "<|tool|>\n<tool_result>" + content + "</tool_result>" -}}
    {%- else -%}
        {{- "<|user|>\n" + content -}}
    {%- endif -%}
    {{- "<|endofturn|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|assistant|>\n" + ("<think>\n" if thinks else "<think>\n\n</think>\n\n") -}}
{%- endif -%}
"""

# MiniMax M2: a default system message, calls in XML with a name for each argument, and a prompt
# that begins a thought.
MINIMAX_M2 = r"""{%- macro text_of(content) -%}
    {%- if content is string -%}{{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set begin, end = "<minimax:tool_call>", "</minimax:tool_call>" -%}
{%- set ns = namespace(system="You are a helpful assistant.", question=-1) -%}
{%- if messages[0].role == "system" -%}
    {%- set ns.system, messages = text_of(messages[0].content), messages[1:] -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == "user" -%}{%- set ns.question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{{- "]~!b[]~b]system\n" + ns.system -}}
{%- if tools -%}
    {{- "\n\n# Tools\n\n<tools>\n" -}}
    {%- for tool in tools -%}
        {{- "<tool>" + (tool.function | tojson(ensure_ascii=False)) + "</tool>\n" -}}
    {%- endfor -%}
    {{- "</tools>\n\n" + begin + "\n<invoke name=\"name\">\n<parameter name=\"a\">value" -}}
    {{- "</parameter>\n</invoke>\n" + end -}}
{%- endif -%}
{{- "[e~[\n" -}}
{%- for message in messages -%}
    {%- if message.role == "assistant" -%}
        {{- "]~b]ai\n" -}}
        {%- if message.reasoning_content and loop.index0 > ns.question -%}
            {{- "<think>\n" + message.reasoning_content + "\n</think>\n\n" -}}
        {%- endif -%}
        {{- text_of(message.content) -}}
        {%- if message.tool_calls -%}
            {{- "\n" + begin + "\n" -}}
            {%- for call in message.tool_calls -%}
                {{- "<invoke name=\"" + call.function.name + "\">\n" -}}
                {%- for name, value in call.function.arguments | items -%}
                    {{- "<parameter name=\"" + name + "\">" -}}
                    {{- value if value is string else value | tojson(ensure_ascii=False) -}}
                    {{- "</parameter>\n" -}}
                {%- endfor -%}
                {{- "</invoke>\n" -}}
            {%- endfor -%}
            {{- end -}}
        {%- endif -%}
        {{- "[e~[\n" -}}
    {%- elif message.role == "tool" -%}
        {%- if loop.first or loop.previtem.role != "tool" -%}{{- "]~b]tool" -}}{%- endif -%}
        {{- "\n<response>" + text_of(message.content) + "</response>" -}}
        {%- if loop.last or loop.nextitem.role != "tool" -%}{{- "[e~[\n" -}}{%- endif -%}
    {%- else -%}
        {{- "]~b]user\n" + text_of(message.content) + "[e~[\n" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "]~b]ai\n<think>\n" -}}{%- endif -%}
"""

# Llama 4: headers with other tokens than Llama 3's, and calls as JSON.
LLAMA_4 = r"""{{- bos_token -}}
{%- macro turn(role, text) -%}
    {{- "<|header_start|>" + role + "<|header_end|>\n\n" + text + "<|eot|>" -}}
{%- endmacro -%}
{%- if messages[0]["role"] == "system" -%}
    {{- turn("system", messages[0]["content"] | trim) -}}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message["role"] == "tool" -%}
        {{- turn("ipython", message["content"] | tojson) -}}
    {%- elif message["tool_calls"] -%}
        {%- set call = message["tool_calls"][0]["function"] -%}
        {%- set written = '{"name": "' + call["name"] + '", "parameters": ' -%}
        {{- turn("assistant", written + (call["arguments"] | tojson) + "}") -}}
    {%- elif loop.first and tools -%}
        {%- set ns = namespace(listed="") -%}
        {%- for tool in tools -%}
            {%- set ns.listed = ns.listed + (tool | tojson(indent=4)) + "\n\n" -%}
        {%- endfor -%}
        {{- turn(message["role"], ns.listed + message["content"] | trim) -}}
    {%- else -%}
        {{- turn(message["role"], message["content"] | trim) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|header_start|>assistant<|header_end|>\n\n" -}}
{%- endif -%}
"""

MIXTURES = {"k-exaone": K_EXAONE, "ling 2": LING_2, "llama 4": LLAMA_4, "minimax m2": MINIMAX_M2}
