"""Chat templates that --chat-template knows by name, as llama-server does. They take no tools."""

from difflib import get_close_matches

_EACH = "{{ bos_token }}{% for message in messages %}"
_ANSWER = "{% endfor %}{% if add_generation_prompt %}"

NAMED_TEMPLATES = {
    "chatml": _EACH
    + r"{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    + _ANSWER
    + r"{{ '<|im_start|>assistant\n' }}{% endif %}",
    "command-r": _EACH
    + r"""<|START_OF_TURN_TOKEN|>
    {{- {'system': '<|SYSTEM_TOKEN|>', 'assistant': '<|CHATBOT_TOKEN|>'}[message.role]
        | default('<|USER_TOKEN|>') }}
    {{- message.content | trim + '<|END_OF_TURN_TOKEN|>' }}"""
    + _ANSWER
    + "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
    # A system message is put in front of the next message of the user.
    "gemma": r"{% set system = namespace(text='') %}"
    + _EACH
    + r"""
    {%- if message.role == 'system' -%}
        {%- set system.text = message.content | trim + '\n\n' -%}
    {%- elif message.role == 'assistant' -%}
        {{- '<start_of_turn>model\n' + message.content | trim + '<end_of_turn>\n' -}}
    {%- else -%}
        {{- '<start_of_turn>' + message.role + '\n' + system.text -}}
        {{- message.content | trim + '<end_of_turn>\n' -}}
        {%- set system.text = '' -%}
    {%- endif -%}
    """
    + _ANSWER
    + r"{{ '<start_of_turn>model\n' }}{% endif %}",
    "llama3": _EACH
    + r"""{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {{- message.content | trim + '<|eot_id|>' }}"""
    + _ANSWER
    + r"{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "phi3": _EACH
    + r"{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}"
    + _ANSWER
    + r"{{ '<|assistant|>\n' }}{% endif %}",
    "rwkv-world": _EACH
    + r"""{{ {'system': 'System: ', 'assistant': 'Assistant: '}[message.role] | default('User: ') }}
    {{- message.content | trim + '\n\n' }}"""
    + _ANSWER
    + r"{{ 'Assistant:' }}{% endif %}",
    "zephyr": _EACH
    + r"{{ '<|' + message.role + '|>\n' + message.content + '<|endoftext|>\n' }}"
    + _ANSWER
    + r"{{ '<|assistant|>\n' }}{% endif %}",
}


def template_source(text: str) -> str:
    """The source of the template that a text names or is.

    A text without a block or an expression is neither: it would drop every message. Raises
    ValueError, which says what was expected.
    """
    if "{{" in text or "{%" in text:
        return text
    name = text.strip()
    if name in NAMED_TEMPLATES:
        return NAMED_TEMPLATES[name]
    near = get_close_matches(name.lower(), NAMED_TEMPLATES, n=1)
    raise ValueError(
        "the source of a template, which has {{ or {%, or one of "
        f"{', '.join(NAMED_TEMPLATES)}{f'; did you mean {near[0]}?' if near else ''}"
    )
