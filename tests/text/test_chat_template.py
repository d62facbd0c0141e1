"""Chat templates against the reference, and what of a model file or a client they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from support.tiny_text import CHATML, tiny_metadata, tiny_tokenizer
from surefoot.errors import InvalidRequestError, ModelError
from surefoot.text.template.budget import RenderLimits
from surefoot.text.template.chat import ChatTemplate
from surefoot.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "hi"}]


SMALL = RenderLimits(max_steps=20_000, max_chars=1_000_000)


def refusal(source: str, messages: Any = HI) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        ChatTemplate(source, limits=SMALL).render(messages)
    assert refused.value.param == "messages"
    return str(refused.value)


@pytest.mark.parametrize("key", ["with_generation_prompt", "without_generation_prompt"])
def test_every_conversation_of_the_reference(
    default_metadata: Mapping[str, object],
    default_tokenizer: Tokenizer,
    golden_chat: dict[str, Any],
    key: str,
) -> None:
    template = ChatTemplate.from_gguf_metadata(default_metadata)
    assert template is not None
    assert default_metadata["tokenizer.chat_template"] == golden_chat["chat_template"]
    for item in golden_chat["conversations"]:
        wanted, prompt = item[key], key == "with_generation_prompt"
        assert template.render(item["messages"], prompt) == wanted["text"]
        ids = template.encode_chat(default_tokenizer, item["messages"], prompt)
        assert ids == wanted.get("ids_content_plain", wanted["ids"]), item["name"]


def test_jinja_as_hugging_face_templates_expect_it() -> None:
    template = ChatTemplate(
        "{% for m in messages %}\n"
        "    {% if loop.index0 == 1 %}{% continue %}{% endif %}\n"
        "{{ loop.index }}/{{ loop.length }}:{{ m | tojson }}\n"
        "    {% if loop.index == 3 %}{% break %}{% endif %}\n"
        "{% endfor %}\n"
        "{% generation %}g{% endgeneration %}"
        "{{ bos_token ~ eos_token }}|{{ strftime_now('%Y-%m-%d') }}|{{ tools is none }}|"
        "{{ {'é': [1, 2.5, none, true]} | tojson(indent=1) }}|{{ 'a,b'.split(',') | join('-') }}|"
        "{%- set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}",
        bos_text="<s>",
        eos_text="</s>",
        clock=lambda: datetime(2026, 2, 3),
    )
    messages = [{"role": "user", "content": f"<{i}>"} for i in range(4)]
    assert template.render(messages) == (
        '1/4:{"role": "user", "content": "<0>"}\n3/4:{"role": "user", "content": "<2>"}\n'
        "g<s></s>|2026-02-03|True|"
        '{\n "é": [\n  1,\n  2.5,\n  null,\n  true\n ]\n}|a-b|6'
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'x%sx' % 'y' }}{{ '%s-%s' | format(1, 'b') }}{{ '{}{}'.format('c', 3) }}", "xyx1-bc3"),
        ("{{ 'aXbX' | replace('X', '--', 1) }}{{ 'aXbX'.replace('X', '+') }}", "a--bXa+b+"),
        ("{{ 'a\nb' | indent(2) }}{{ 'a\n\nb' | indent('>', true, true) }}", "a\n  b>a\n>\n>b"),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ messages | join('/', attribute='content') }}{{ ' '.join(['p', 'q']) }}", "hip q"),
        ("{{ [1, 2] + [3] }}{{ (1, 2) }}{{ 'ab' * 2 }}{{ 2 ** 10 }}{{ 7 % 4 }}", None),
        ("{{ 5 | string ~ 1 ~ none ~ missing }}", "51None"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}", "a1B"),
        ("{% macro m(a, b='z') %}{{ a ~ b }}{% endmacro %}{{ m('q') }}{{ m('q', b=1) }}", "qzq1"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}{{ loop(x) }}"
         "{% else %}{{ x }}{% endif %}{% endfor %}", "123"),
        ("{% for x in range(5) if x is odd %}{{ x }}{% else %}none{% endfor %}", "13"),
        ("{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "none"),
        ("{{ dict(a=1).a }}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}", "112"),
    ],
)  # fmt: skip
def test_the_sandbox_changes_nothing_that_ends(source: str, text: str | None) -> None:
    expected = "[1, 2, 3](1, 2)abab10243" if text is None else text
    assert ChatTemplate(source).render(HI) == expected


def test_a_template_that_raises_answers_with_its_own_message() -> None:
    source = (
        "{% if messages[0].role != 'user' %}{{ raise_exception('Only user may begin, not ' "
        "+ messages[0].role) }}{% endif %}"
    )
    message = refusal(source, [{"role": "wizard", "content": "x"}])
    assert message == "the chat template refuses these messages: Only user may begin, not wizard"
    assert ChatTemplate(source).render(HI) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ messages['__class__'] }}",
        "{{ messages | attr('__class__') }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ '%s' % range }}",
        "{{ range }}",
        "{{ [range] }}",
        "{{ namespace }}",
        "{{ raise_exception | string }}",
        "{{ cycler ~ 'x' }}",
        "{{ [joiner] | join }}",
        "{{ messages.append }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ 1 .to_bytes(3, 'big') }}",
        "{% for a in messages.__iter__.__self__ %}{% endfor %}",
    ],
)
def test_the_sandbox_keeps_the_interpreter_out(source: str) -> None:
    assert refusal(source) == "the chat template reaches for something outside the sandbox"


DOUBLINGS = {
    "ns.x + ns.x": "'x'",
    "ns.x ~ ns.x": "'x'",
    "[ns.x, ns.x] | join": "'x'",
    "''.join([ns.x, ns.x])": "'x'",
    "ns.x | replace('x', ns.x)": "'xx'",
    "ns.x.replace('x', ns.x)": "'xx'",
    "'%s%s' % (ns.x, ns.x)": "'x'",
    "'%s%s' | format(ns.x, ns.x)": "'x'",
    "'{0}{0}'.format(ns.x)": "'x'",
    "ns.x | tojson": "'\"'",
    "ns.x | indent(ns.x, true)": "'x'",
    "ns.x + ns.x + []": "[1]",
    "[ns.x, ns.x]": "1",
    "(ns.x, ns.x)": "1",
    "{'a': ns.x, 'b': ns.x}": "1",
    "dict(a=ns.x, b=ns.x)": "1",
    "namespace(a=ns.x, b=ns.x)": "1",
    "ns.x * ns.x": "9",
}


@pytest.mark.parametrize(("doubled", "first"), DOUBLINGS.items(), ids=DOUBLINGS.keys())
def test_what_doubles_does_not_grow_without_end(doubled: str, first: str) -> None:
    loop = f"{{% for i in range(99) %}}{{% set ns.x = {doubled} %}}{{% endfor %}}"
    message = refusal(f"{{% set ns = namespace(x={first}) %}}{loop}")
    assert message.startswith("the chat template does not end within its limits")


NEVER_ENDING = [
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'x' * 10**9 }}",
    "{{ 10**9 * 'x' }}",
    "{{ [1] * 10**9 }}",
    "{{ 9**(9**9) }}",
    "{% set ns = namespace(x='x') %}{% for i in range(99) %}"
    "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%(a)1000000000d' % {'a': 1} }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% for a in range(9999) %}" + "text" * 99 + "{% endfor %}",
    "{{ range(9999) | map('string') | join('x' * 9999) }}",
    "{{ ((range(9999) | list) * 99) | length }}",
]


@pytest.mark.parametrize("source", NEVER_ENDING)
def test_what_does_not_end_is_refused(source: str) -> None:
    assert refusal(source).startswith("the chat template does not end within its limits")


@pytest.mark.parametrize(
    "source",
    ["{{ 'x'.center(10**9) }}", "{{ 'x'.zfill(10**9) }}", "{{ '\t'.expandtabs(10**9) }}"],
)
def test_padding_methods_are_not_there(source: str) -> None:
    assert refusal(source) == "the chat template reaches for something outside the sandbox"


def test_long_conversations_stay_far_within_the_limits() -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 2000
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}"
        "{% endfor %}" + CHATML
    )
    text = ChatTemplate(source).render(messages)
    assert len(text) == 2000 * (len("<|im_start|>user\n<|im_end|>\n") + 1000) + len(
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for m in messages %}", "has an error in line 1"),
        ("x\n{{ 'a' | no_such_filter }}", "line 2: No filter named 'no_such_filter'"),
        ("{{ 'a' | center(9) }}", "No filter named 'center'"),
        ("{% include 'x' %}{% nope %}", "unknown tag 'nope'"),
        ("{{ if .System }}{{ .System }}{{ end }}", "is a Go template"),
        ("{{- range .Messages }}{{ .Content }}{{ end }}", "is a Go template"),
        ("{{ .Prompt }}", "is a Go template"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    ],
)
def test_what_is_no_template_is_refused_at_load(source: str, message: str) -> None:
    with pytest.raises(ModelError) as refused:
        ChatTemplate(source)
    assert message in str(refused.value)


@pytest.mark.parametrize("template", [None, "", " \n"])
def test_a_file_without_a_template_has_none(template: str | None) -> None:
    """Who serves it says so, once."""
    metadata = tiny_metadata(**{"tokenizer.chat_template": template})
    assert ChatTemplate.from_gguf_metadata(metadata) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ nothing.there }}", "misses something in these messages: 'nothing' is undefined"),
        (
            "{{ messages[0].name.first }}",
            "misses something in these messages: 'dict object' has no attribute 'name'",
        ),
        ("{{ 'a' + 1 }}", "cannot render these messages"),
        ("{{ 1 / 0 }}", "cannot render these messages"),
        ("{{ [range] | tojson }}", "reaches for something outside the sandbox"),
        ("{% include 'x' %}", "cannot render these messages"),
    ],
)
def test_a_template_that_fails_says_so_in_one_line(source: str, message: str) -> None:
    assert refusal(source) == f"the chat template {message}"


def test_begin_token_comes_once() -> None:
    tokenizer = tiny_tokenizer(add_bos_token=True)
    hi = tokenizer.encode("hi", parse_special=False)
    with_bos = ChatTemplate("{{ bos_token + messages[0].content }}", bos_text="<|im_start|>")
    without = ChatTemplate("{{ messages[0].content }}")
    assert with_bos.encode_chat(tokenizer, HI) == [1, *hi]
    assert without.encode_chat(tokenizer, HI) == [1, *hi]
    assert without.encode_chat(tiny_tokenizer(), HI) == hi


def test_metadata_gives_begin_and_end_texts() -> None:
    metadata = tiny_metadata(**{"tokenizer.chat_template": "{{ bos_token }}{{ eos_token }}"})
    template = ChatTemplate.from_gguf_metadata(metadata)
    assert template is not None
    assert template.render(HI) == "<|im_start|><|im_end|>"


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        (CHATML, {2}),
        ("{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}", {0}),
        ("{% for m in messages %}{{ m.content }}\n<|endoftext|>{% endfor %}", {0}),
        ("{% for m in messages %}{{ m.content }} end <|im_end|>{% endfor %}", set()),
        ("{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>", set()),
        ("{{ messages[0].content }}<|im_end|>", set()),
        ("{{ raise_exception('no') }}", set()),
    ],
)
def test_the_token_after_an_answer_ends_a_turn(source: str, ends: set[int]) -> None:
    assert ChatTemplate(source).end_of_turn_ids(tiny_tokenizer()) == ends
