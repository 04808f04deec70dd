"""Chat templates with the features that families of 2025 and later use, written for these tests."""

from __future__ import annotations

from tests.text.mixture_templates import MIXTURES

# EXAONE 4: tools as lines of JSON, an empty thought in the prompt, results by turn.
EXAONE_4 = r"""{%- set thinks = enable_thinking | default(false) -%}
{%- if messages[0].role == "system" or tools -%}
    {{- "[|system|]\n" -}}
    {%- if messages[0].role == "system" -%}{{- messages[0].content -}}{%- endif -%}
    {%- if tools -%}
        {{- "\n\n# Tools\n" -}}
        {%- for tool in tools -%}
            {{- "<tool>" + (tool.function | tojson(ensure_ascii=False)) + "</tool>\n" -}}
        {%- endfor -%}
    {%- endif -%}
    {{- "[|endofturn|]\n" -}}
{%- endif -%}
{%- for message in messages if message.role != "system" -%}
    {{- "[|" + message.role + "|]\n" -}}
    {%- if message.role == "tool" -%}
        {{- "<tool_result>" + message.content + "</tool_result>" -}}
    {%- else -%}
        {{- message.content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- "<tool_call>" + (call.function | tojson(ensure_ascii=False)) + "</tool_call>" -}}
        {%- endfor -%}
    {%- endif -%}
    {{- "[|endofturn|]\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "[|assistant|]\n" + ("<think>\n" if thinks else "<think>\n\n</think>\n\n") -}}
{%- endif -%}
"""

# Ministral 3: a default system message, tools in one list, calls with their arguments apart.
MINISTRAL_3 = r"""{%- set default_system = "You are Ministral." -%}
{{- bos_token -}}
{%- if messages[0]["role"] == "system" -%}
    {%- set system, rest = messages[0]["content"], messages[1:] -%}
{%- else -%}
    {%- set system, rest = default_system, messages -%}
{%- endif -%}
{{- "[SYSTEM_PROMPT]" + system + "[/SYSTEM_PROMPT]" -}}
{%- if tools -%}{{- "[AVAILABLE_TOOLS]" + (tools | tojson) + "[/AVAILABLE_TOOLS]" -}}{%- endif -%}
{%- for message in rest -%}
    {%- if message["role"] == "user" -%}
        {{- "[INST]" + message["content"] + "[/INST]" -}}
    {%- elif message["role"] == "assistant" -%}
        {{- message["content"] -}}
        {%- for call in message["tool_calls"] or [] -%}
            {%- set arguments = call["function"]["arguments"] -%}
            {%- if arguments is not string -%}
                {%- set arguments = arguments | tojson | string -%}
            {%- endif -%}
            {{- "[TOOL_CALLS]" + call["function"]["name"] + "[ARGS]" + arguments -}}
        {%- endfor -%}
        {{- eos_token -}}
    {%- elif message["role"] == "tool" -%}
        {{- "[TOOL_RESULTS]" + (message["content"] | string) + "[/TOOL_RESULTS]" -}}
    {%- else -%}
        {{- raise_exception("Only user, assistant and tool, got " + message["role"]) -}}
    {%- endif -%}
{%- endfor -%}
"""

# Hunyuan: a word of the question that turns thinking off, a marker behind each part.
HUNYUAN = r"""{%- if messages[0]["role"] == "system" -%}
    {{- bos_token + messages[0]["content"] + "<|hy_place_holder_3|>" -}}
    {%- set messages = messages[1:] -%}
{%- else -%}
    {{- bos_token -}}
{%- endif -%}
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
    {%- if message["role"] == "user" -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message["role"] == "user" -%}
        {%- set thinks = enable_thinking | default(true) -%}
        {%- set off = not thinks and loop.index0 == ns.last -%}
        {{- "<|hy_User|>" + ("/no_think" if off else "") + message["content"] -}}
    {%- elif message["role"] == "assistant" -%}
        {{- "<|hy_Assistant|>" + message["content"].split("</think>")[-1].strip() -}}
        {{- "<|hy_place_holder_2|>" -}}
    {%- else -%}
        {{- "<tool_responses>" + message["content"] + "</tool_responses>" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|hy_Assistant|>" -}}{%- endif -%}
"""

# ERNIE 4.5: roles as words, an end only behind answers.
ERNIE_4_5 = r"""{%- if not add_generation_prompt is defined -%}
    {%- set add_generation_prompt = true -%}
{%- endif -%}
{{- "<|begin_of_sentence|>" -}}
{%- for message in messages -%}
    {%- if message["role"] == "user" -%}
        {{- "User: " + message["content"] + "\n" -}}
    {%- elif message["role"] == "assistant" -%}
        {{- "Assistant: " -}}
        {% generation %}{{- message["content"] + "<|end_of_sentence|>" -}}{% endgeneration %}
    {%- elif message["role"] == "system" -%}
        {{- message["content"] + "\n" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "Assistant: " -}}{%- endif -%}
"""

# Apertus: a developer message that says what may be done, types of arguments, calls in a list.
APERTUS = r"""{%- macro type_of(schema) -%}
    {%- if schema.type == "object" -%}
        {{- "{" -}}
        {%- for name, inner in schema.properties.items() -%}
            {{- name + ("" if name in (schema.required or []) else "?") + ": " -}}
            {{- type_of(inner) + (", " if not loop.last else "") -}}
        {%- endfor -%}
        {{- "}" -}}
    {%- else -%}
        {{- schema.type -}}
    {%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- if messages[0].role == "system" -%}
    {{- "<|system_start|>" + messages[0].content + "<|system_end|>" -}}
    {%- set messages = messages[1:] -%}
{%- else -%}
    {{- "<|system_start|>You are Apertus. Date: " + date_string + "<|system_end|>" -}}
{%- endif -%}
{{- "<|developer_start|>Deliberation: " -}}
{{- "enabled\n" if enable_thinking is defined and enable_thinking else "disabled\n" -}}
{{- "Tool Capabilities:" -}}
{%- for tool in tools or [] -%}
    {{- "\n// " + tool.function.description + "\ntype " + tool.function.name -}}
    {{- " = (_: " + type_of(tool.function.parameters) + ") => any;" -}}
{%- else -%}
    {{- " disabled" -}}
{%- endfor -%}
{{- "<|developer_end|>" -}}
{%- for message in messages -%}
    {%- if message.role == "assistant" -%}
        {{- "<|assistant_start|>" + message.content -}}
        {%- if message.tool_calls -%}
            {{- "<|tools_prefix|>[" -}}
            {%- for call in message.tool_calls -%}
                {{- {call.function.name: call.function.arguments} | tojson -}}
                {{- ", " if not loop.last -}}
            {%- endfor -%}
            {{- "]<|tools_suffix|>" -}}
        {%- endif -%}
        {{- "<|assistant_end|>" -}}
    {%- elif message.role == "tool" -%}
        {{- "[" + message.content + "]" -}}
    {%- else -%}
        {{- "<|" + message.role + "_start|>" + message.content + "<|" + message.role + "_end|>" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|assistant_start|>" -}}{%- endif -%}
"""

# gpt-oss: messages in channels, tools as types of TypeScript, thoughts kept up to an answer.
HARMONY = r"""{%- macro type_of(schema) -%}
    {%- if schema.enum -%}
        {{- '"' + schema.enum | join('" | "') + '"' -}}
    {%- elif schema.type == "array" -%}
        {{- type_of(schema["items"]) + "[]" -}}
    {%- else -%}
        {{- {"integer": "number", "object": "object"}.get(schema.type, schema.type) -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro written_tools() -%}
    {{- "# Tools\n\n## functions\n\nnamespace functions {\n\n" -}}
    {%- for tool in tools -%}
        {%- set tool = tool.function -%}
        {{- "// " + tool.description + "\ntype " + tool.name + " = " -}}
        {%- if tool.parameters and tool.parameters.properties -%}
            {{- "(_: {\n" -}}
            {%- for name, schema in tool.parameters.properties.items() -%}
                {{- "// " + schema.description + "\n" if schema.description -}}
                {{- name + ("" if name in tool.parameters.required or [] else "?") -}}
                {{- ": " + type_of(schema) + ",\n" -}}
            {%- endfor -%}
            {{- "}) => any;\n\n" -}}
        {%- else -%}
            {{- "() => any;\n\n" -}}
        {%- endif -%}
    {%- endfor -%}
    {{- "} // namespace functions" -}}
{%- endmacro -%}
{%- macro thought(text) -%}
    {{- "<|start|>assistant<|channel|>analysis<|message|>" + text + "<|end|>" -}}
{%- endmacro -%}
{{- "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" -}}
{{- "Knowledge cutoff: 2024-06\nCurrent date: " -}}
{{- date_string | default(strftime_now("%Y-%m-%d")) -}}
{{- "\n\nReasoning: " + reasoning_effort | default("medium") + "\n\n# Valid channels: " -}}
{{- "analysis, commentary, final. Channel must be included for every message." -}}
{%- if tools -%}
    {{- "\nCalls to these tools must go to the commentary channel: 'functions'." -}}
{%- endif -%}
{{- "<|end|>" -}}
{%- set instructions, rest = "", messages -%}
{%- if messages[0].role in ("developer", "system") -%}
    {%- set instructions, rest = messages[0].content, messages[1:] -%}
{%- endif -%}
{%- if instructions or tools -%}
    {{- "<|start|>developer<|message|>" -}}
    {%- if instructions -%}{{- "# Instructions\n\n" + instructions + "\n\n" -}}{%- endif -%}
    {%- if tools -%}{{- written_tools() -}}{%- endif -%}
    {{- "<|end|>" -}}
{%- endif -%}
{%- set called = namespace(name=none) -%}
{%- for message in rest -%}
    {%- set reasoning = message.thinking or message.reasoning_content -%}
    {%- if message.role == "user" -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" -}}
    {%- elif message.role == "tool" -%}
        {{- raise_exception("a result without a call") if called.name is none -}}
        {{- "<|start|>functions." + called.name + " to=assistant<|channel|>commentary" -}}
        {{- "<|message|>" -}}
        {{- message.content | tojson + "<|end|>" -}}
    {%- elif "tool_calls" in message -%}
        {%- set later = namespace(answer=false) -%}
        {%- for next in rest[loop.index:] if next.role == "assistant" -%}
            {%- if "tool_calls" not in next -%}{%- set later.answer = true -%}{%- endif -%}
        {%- endfor -%}
        {%- set call = message.tool_calls[0].function -%}
        {%- if message.content and reasoning -%}
            {{- raise_exception("a call with both content and thinking") -}}
        {%- elif (message.content or reasoning) and not later.answer -%}
            {{- thought(message.content or reasoning) -}}
        {%- endif -%}
        {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json" -}}
        {{- "<|message|>" + call.arguments | tojson + "<|call|>" -}}
        {%- set called.name = call.name -%}
    {%- else -%}
        {%- set is_end = loop.last and not add_generation_prompt -%}
        {%- if is_end and reasoning -%}{{- thought(reasoning) -}}{%- endif -%}
        {{- "<|start|>assistant<|channel|>final<|message|>" + message.content -}}
        {{- "<|return|>" if is_end else "<|end|>" -}}
        {%- set called.name = none -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|start|>assistant" -}}{%- endif -%}
"""

# Qwen 3.5: calls in XML, results in turns of the user, thoughts of the latest question alone, and a
# prompt that begins a thought or ends an empty one.
QWEN_3_5 = r"""{%- macro text_of(content) -%}
    {%- if content is string -%}{{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set system = text_of(messages[0].content) | trim if messages[0].role == "system" else "" -%}
{%- if tools and tools is iterable and tools is not mapping -%}
    {{- "<|im_start|>system\n# Tools\n\n<tools>" -}}
    {%- for tool in tools -%}{{- "\n" -}}{{- tool | tojson -}}{%- endfor -%}
    {{- "\n</tools>\n\nReply as follows:\n\n<tool_call>\n<function=name>\n<parameter=a>" -}}
    {{- "\nvalue\n</parameter>\n</function>\n</tool_call>" -}}
    {{- ("\n\n" + system if system else "") + "<|im_end|>\n" -}}
{%- elif messages[0].role == "system" -%}
    {{- "<|im_start|>system\n" + system + "<|im_end|>\n" -}}
{%- endif -%}
{%- set ns = namespace(question=messages | length - 1, found=false) -%}
{%- for message in messages[::-1] -%}
    {%- if not ns.found and message.role == "user" -%}
        {%- set ns.found, ns.question = true, messages | length - 1 - loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- if not ns.found -%}{{- raise_exception("no question") -}}{%- endif -%}
{%- for message in messages -%}
    {%- set content = text_of(message.content) | trim -%}
    {%- if message.role == "user" -%}
        {{- "<|im_start|>user\n" + content + "<|im_end|>\n" -}}
    {%- elif message.role == "assistant" -%}
        {%- set thought = "" -%}
        {%- if message.reasoning_content is string -%}
            {%- set thought = message.reasoning_content -%}
        {%- elif "</think>" in content -%}
            {%- set thought = content.split("</think>")[0].split("<think>")[-1].strip("\n") -%}
            {%- set content = content.split("</think>")[-1].lstrip("\n") -%}
        {%- endif -%}
        {{- "<|im_start|>assistant\n" -}}
        {%- if loop.index0 > ns.question -%}
            {{- "<think>\n" + thought | trim + "\n</think>\n\n" -}}
        {%- endif -%}
        {{- content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- ("\n\n" if loop.first and content else "" if loop.first else "\n") -}}
            {{- "<tool_call>\n<function=" + call.function.name + ">\n" -}}
            {%- for name, value in call.function.arguments | items -%}
                {%- set is_json = value is mapping or value is sequence and value is not string -%}
                {{- "<parameter=" + name + ">\n" -}}
                {{- value | tojson | safe if is_json else value | string -}}
                {{- "\n</parameter>\n" -}}
            {%- endfor -%}
            {{- "</function>\n</tool_call>" -}}
        {%- endfor -%}
        {{- "<|im_end|>\n" -}}
    {%- elif message.role == "tool" -%}
        {%- if loop.previtem and loop.previtem.role != "tool" -%}
            {{- "<|im_start|>user" -}}
        {%- endif -%}
        {{- "\n<tool_response>\n" + content + "\n</tool_response>" -}}
        {%- if loop.last or loop.nextitem.role != "tool" -%}{{- "<|im_end|>\n" -}}{%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\n" -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}
        {{- "<think>\n\n</think>\n\n" -}}
    {%- else -%}
        {{- "<think>\n" -}}
    {%- endif -%}
{%- endif -%}
"""

# Granite 4: a default system message, calls as in Hermes, results in turns of the user.
GRANITE_4 = r"""{%- set ns = namespace(tools="", system="You are Granite.") -%}
{%- for tool in tools or [] -%}
    {%- set ns.tools = ns.tools + "\n" + (tool | tojson) -%}
{%- endfor -%}
{%- if ns.tools -%}
    {%- set ns.tools = "Tools:\n<tools>" + ns.tools + "\n</tools>\nCall them:\n<tool_call>\n" -%}
    {%- set ns.tools = ns.tools + '{"name": <name>, "arguments": <object>}' + "\n</tool_call>." -%}
    {%- set ns.system = ns.tools -%}
{%- endif -%}
{%- if messages[0].role == "system" -%}
    {%- set ns.system = messages[0].content + ("\n\n" + ns.tools if ns.tools else "") -%}
{%- endif -%}
{{- "<|start_of_role|>system<|end_of_role|>" + ns.system + "<|end_of_text|>\n" -}}
{%- for message in messages -%}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) -%}
        {{- "<|start_of_role|>" + message.role + "<|end_of_role|>" + message.content -}}
        {{- "<|end_of_text|>\n" -}}
    {%- elif message.role == "assistant" -%}
        {{- "<|start_of_role|>assistant<|end_of_role|>" + message.content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- "\n" if message.content or not loop.first else "" -}}
            {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' -}}
            {%- set arguments = call.function.arguments -%}
            {{- (arguments if arguments is string else arguments | tojson) + "}\n</tool_call>" -}}
        {%- endfor -%}
        {{- "<|end_of_text|>\n" -}}
    {%- elif message.role == "tool" -%}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" -%}
            {{- "<|start_of_role|>user<|end_of_role|>" -}}
        {%- endif -%}
        {{- "\n<tool_response>\n" + message.content + "\n</tool_response>" -}}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" -%}
            {{- "<|end_of_text|>\n" -}}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|start_of_role|>assistant<|end_of_role|>" -}}{%- endif -%}
"""

# Command R: roles are tokens, and tools and their results are texts in the turn of the system.
COMMAND_R = r"""{{- bos_token -}}
{%- macro turn(role, text) -%}
    {{- "<|START_OF_TURN_TOKEN|><|" + role + "_TOKEN|>" + text + "<|END_OF_TURN_TOKEN|>" -}}
{%- endmacro -%}
{%- set roles = {"user": "USER", "assistant": "CHATBOT", "system": "SYSTEM", "tool": "SYSTEM"} -%}
{%- for message in messages -%}
    {{- turn(roles[message["role"]], message["content"] | trim) -}}
{%- endfor -%}
{%- for tool in tools or [] -%}{{- turn("SYSTEM", tool["function"]["name"]) -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" -}}{%- endif -%}
"""

# dots.llm1: a token before and after each turn.
DOTS_1 = r"""{%- set names = {"user": "userprompt", "assistant": "response", "system": "system"} -%}
{%- for message in messages -%}
    {%- set name = names[message.role] | default("userprompt") -%}
    {{- "<|" + name + "|>" + message.content + "<|endof" + name + "|>" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|response|>" -}}{%- endif -%}
"""

LATER = {
    "command r": COMMAND_R,
    "dots 1": DOTS_1,
    "exaone 4": EXAONE_4,
    "ministral 3": MINISTRAL_3,
    "hunyuan": HUNYUAN,
    "ernie 4.5": ERNIE_4_5,
    "apertus": APERTUS,
    "harmony": HARMONY,
    "qwen 3.5": QWEN_3_5,
    "granite 4": GRANITE_4,
    **MIXTURES,
}
