"""Chat templates as models come with them, and the special tokens that they write."""

from __future__ import annotations

# Gemma 3's, without its branches for images.
GEMMA = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {{- message['content'] | trim }}
    {{- '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""
GEMMA_SPECIAL = ("<start_of_turn>", "<end_of_turn>")

# ChatML with tools, as Qwen 2.5 and Hermes have it.
CHATML = r"""{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\nAnswer with <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>" }}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "tool" %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.function.name + '", "arguments": ' }}
            {{- tool_call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
CHATML_SPECIAL = ("<|im_start|>", "<|im_end|>")

# FunctionGemma's, with less in a declaration.
FUNCTION_GEMMA = r"""{{ bos_token }}
{%- for message in messages %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {{- message.content }}
    {%- if tools and loop.first %}
        {%- for tool in tools %}
            {{- '<start_function_declaration>declaration:' + tool.function.name }}
            {{- '{description:<escape>' + tool.function.description + '<escape>}' }}
            {{- '<end_function_declaration>' }}
        {%- endfor %}
    {%- endif %}
    {%- for call in message.tool_calls %}
        {{- '<start_function_call>call:' + call.function.name + '{}<end_function_call>' }}
    {%- endfor %}
    {{- '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %}
"""
FUNCTION_GEMMA_SPECIAL = (
    *GEMMA_SPECIAL,
    "<start_function_declaration>",
    "<end_function_declaration>",
    "<start_function_call>",
    "<end_function_call>",
    "<start_function_response>",
    "<escape>",
)

# With reasoning and tools, as Qwen 3 has it: earlier reasoning is left out, and enable_thinking can
# turn it off.
THINKING = r"""{%- set ns = namespace(last_query=-1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.last_query < 0 and message.role == "user" %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- if tools %}
    {{- '<|im_start|>system\n<tools>' }}
    {%- for tool in tools %}
        {{- "\n" ~ (tool | tojson) }}
    {%- endfor %}
    {{- '\n</tools>\n<tool_call>...</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and reasoning %}
            {{- '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
    {%- else %}
        {{- content }}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""
# The same, with the reasoning begun in the prompt, as in the models that always reason.
ALWAYS_THINKING = THINKING.replace(
    """    {%- if enable_thinking is defined""",
    """    {{- '<think>\\n' }}\n    {%- if false and x""",
)
