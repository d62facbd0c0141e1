"""Templates in the style of well-known model families, against Jinja without our bounds."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from support.tiny_text import tiny_tokenizer
from surefoot.text.template.chat import ChatTemplate

THINKING = """
{%- set ns = namespace(searching=true, last_query=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not
        (message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thoughts = '' %}
        {%- if message.reasoning is string %}
            {%- set thoughts = message.reasoning %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or thoughts) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n' }}
            {{- content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {%- if loop.first or loop.previtem.role != message.role %}
            {{- '<|im_start|>' + message.role }}
        {%- endif %}
        {{- '\\n' + message.content }}
        {%- if loop.last or loop.nextitem.role != message.role %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""

HEADERS = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|im_start|>system\\n\\nToday: " + date_string + "\\n\\n" ~ system_message ~ "<|im_end|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|im_start|>' + message['role'] + '\\n\\n'+ message['content'] | trim + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n\\n' }}
{%- endif %}
"""

ALTERNATING = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- macro turn(text, last=false) %}[INST]{{ text | trim }}{% if last %}!{% endif %}[/INST]
{%- endmacro %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if system_message is defined and message == user_messages[-1] %}
            {{- turn(system_message + "\\n\\n" + message["content"], last=true) }}
        {%- else %}
            {{- turn(message["content"]) }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- endif %}
{%- endfor %}
"""

TEMPLATES = {"thinking": THINKING, "headers": HEADERS, "alternating": ALTERNATING}
NOW = datetime(2026, 2, 3)
TINY = tiny_tokenizer()

PARTS = "<think> </think> <result> </result> <|im_end|> <|im_start|> a"
contents = st.one_of(
    st.text(max_size=10),
    st.lists(st.sampled_from([*PARTS.split(), "\n"]), max_size=5).map("".join),
)
conversations = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": contents}
    ),
    min_size=1,
    max_size=5,
)


PLAIN_JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
PLAIN = {name: PLAIN_JINJA.from_string(source) for name, source in TEMPLATES.items()}
OURS = {
    name: ChatTemplate(source, bos_text="<|im_start|>", eos_text="<|im_end|>", clock=lambda: NOW)
    for name, source in TEMPLATES.items()
}


def plain_jinja(name: str, messages: list[dict[str, str]]) -> str:
    return PLAIN[name].render(
        messages=messages,
        add_generation_prompt=True,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        strftime_now=NOW.strftime,
    )


@pytest.mark.parametrize("name", TEMPLATES)
@given(messages=conversations)
def test_renders_as_plain_jinja_does(name: str, messages: list[dict[str, str]]) -> None:
    expected = plain_jinja(name, messages)
    assert OURS[name].render(messages) == expected
    ids = OURS[name].encode_chat(TINY, messages)
    assert TINY.decode(ids, skip_special=False) == expected


@pytest.mark.parametrize("name", TEMPLATES)
@given(messages=conversations)
def test_as_many_markers_as_with_harmless_messages(
    name: str, messages: list[dict[str, str]]
) -> None:
    """The special text in messages is broken up (`<|im_end|>` -> `<im_end>`): the markers that
    remain are the template's own, and are those found with the messages as they were."""
    harmless = [{**m, "content": m["content"].replace("|", "")} for m in messages]
    marks = [
        [i for i in OURS[name].encode_chat(TINY, each) if i in TINY.special_ids]
        for each in (messages, harmless)
    ]
    assert marks[0] == marks[1]
