"""Records what Python's Jinja makes of chat templates, set up as transformers sets it up.

    python3 -m venv v && v/bin/pip install jinja2
    v/bin/python record_templates.py > templates.json
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent


class Generation(jinja2.ext.Extension):
    """A block that shows its content."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return made


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather in a <city> & \"country\".",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "größe": {"type": "number", "default": 1.5}, "x": {"enum": [1, None, True]}},
            "required": ["city"],
        },
    },
}
USER = {"role": "user", "content": "Hi there, 你好 😀 "}
SYSTEM = {"role": "system", "content": " Be <brief> & 'kind'. "}
ASSISTANT = {"role": "assistant", "content": " Hello!\n"}
THINKING = {"role": "assistant", "content": "<think>\nhm\n\n</think>\n\nHello."}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "n": [1, 2.5], "deep": {"a": None, "b": False}}}}],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "{\"sky\": \"grey\"}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}]}

CONVERSATIONS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ASSISTANT, USER],
    "system turns": [SYSTEM, USER, ASSISTANT, USER, ASSISTANT],
    "thinking": [USER, THINKING, USER, THINKING],
    "tools": [SYSTEM, USER, CALL, RESULT],
    "tools then user": [USER, CALL, RESULT, ASSISTANT, USER],
    "parts": [PARTS],
    "twice the user": [USER, USER],
    "two calls": [USER, {**CALL, "tool_calls": CALL["tool_calls"] * 2}, RESULT, RESULT],
}

SNIPPETS = [
    "{{ '  a b  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}|{{ ' a'.lstrip() }}",
    "{{ 'a,b,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1)[1] }}|{{ 'a</t>b'.split('</t>')[-1] }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }}",
    "{{ 'hello world'.title() }} {{ 'hello'.capitalize() }} {{ 'aB'.upper() }} {{ 'aB'.lower() }}",
    "{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abab'.count('a') }}",
    "{% for k, v in {'b': 1, 'a': [2]}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'b': 1}.keys() | list }}{{ {'b': 1}.values() | list }}",
    "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 7) }}",
    "{{ messages[::-1][0].role }} {{ messages[-1].role }} {{ messages[1:] | length }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::-2] }} {{ 'abc'[:-1] }}",
    "{% set ns = namespace(a=1, b='x') %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{% else %}x{% endfor %}",
    "{% for i in range(5) %}{{ loop.previtem if loop.previtem is defined }}>{{ loop.nextitem if loop.nextitem is defined }} {% endfor %}{{ loop is defined }}",
    "{% for i in [] %}{{ i }}{% else %}none{% endfor %}|{% for i in range(6) if i % 2 %}{{ loop.index }}{{ i }}{% endfor %}",
    "{{ true }} {{ false }} {{ none }} {{ 1.0 }} {{ 1.5 }} {{ 10 // 3 }} {{ 10 / 4 }} {{ 2 ** 5 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }}",
    "{{ ['a', 1, none, true, 'it\\'s', {'k': 'v\"'}] }} {{ (1, 2) | list }} {{ {'a': {'b': []}} }}",
    "{{ 'a' ~ 1 ~ 'b' }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ 'a' in 'abc' }} {{ 'x' not in ['y'] }} {{ 'k' in {'k': 1} }}",
    "{{ {'a': 'é<&>\\'\"\\n\\u0001\\u007f😀', 'b': [1, 2.5, none, true], 'c': {}} | tojson }}",
    "{{ {'a': 'é', 'b': [], 'c': {}, 'd': [1, {'e': 2}]} | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true) }} {{ ['é😀'] | tojson(ensure_ascii=true) }} {{ {'a': [1, 2]} | tojson(separators=(',', ':')) }}",
    "{{ tool | tojson }}",
    "{{ tool.function | tojson(indent=4) }}",
    "{{ missing }}|{{ missing is defined }}|{{ missing | default('d') }}|{{ none | default('d') }}|{{ none | default('d', true) }}",
    "{{ 'x' is string }} {{ 1 is number }} {{ {} is mapping }} {{ [] is iterable }} {{ [] is sequence }} {{ none is none }} {{ true is boolean }} {{ 'a' is iterable }} {{ 1 is integer }} {{ 1.5 is float }}",
    "{{ true is true }} {{ false is false }} {{ 1 is odd }} {{ 2 is even }} {{ 4 is divisibleby 2 }} {{ 1 is not none }} {{ 'a' is not string }}",
    "{{ ' a ' | trim }}|{{ 'abc' | length }}|{{ [3, 1, 2] | sort }}|{{ [1, 2, 3] | first }}|{{ [1, 2, 3] | last }}|{{ ['a', 'b'] | join('-') }}|{{ 'a b' | upper }}",
    "{{ [{'n': 1, 'r': 'u'}, {'n': 2, 'r': 'v'}] | selectattr('r', 'equalto', 'v') | map(attribute='n') | list }}",
    "{{ [{'n': 1}, {'n': 2}] | rejectattr('n', 'equalto', 1) | list | length }} {{ ['a', 'B'] | map('upper') | join }} {{ [0, 1, none] | select | list }}",
    "{{ 'a\\nb' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'abc' | replace('b', 'x') }}|{{ 'abc' | reverse }}|{{ [1, 2] | reverse | list }}",
    "{% for k, v in {'b': 2, 'a': 1} | dictsort %}{{ k }}{{ v }}{% endfor %} {% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %} {{ '3' | int + 1 }} {{ '2.5' | float }} {{ 3.7 | int }} {{ [1, 2, 2] | unique | list }}",
    "{{ 5 | string + 'a' }} {{ true | string }} {{ none | string }} {{ [1, 'a'] | string }} {{ -3 | abs }} {{ 2.567 | round(1) }} {{ [1, 2, 3] | sum }} {{ [1, 5, 2] | max }}",
    "{% macro greet(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ greet('a') }}{{ greet('b', mark='?') }}",
    "{% macro outer() %}[{{ caller() }}]{% endmacro %}{% call outer() %}in{% endcall %}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% filter upper %}abc{% endfilter %}",
    "{% if messages[0].role == 'user' and not (1 > 2) or false %}yes{% elif true %}no{% else %}never{% endif %}{{ 'a' if false }}{{ 'a' if 1 else 'b' }}",
    "  {% if true %}\n  x\n  {% endif %}\n  y\n{%- if true -%}\n  z  \n{%- endif %}\n\n{# comment #}\nw\n",
    "a\n  {%- for m in messages %}\n    {{- m.role }}\n  {%- endfor %}\n{% generation %}\nb\n{% endgeneration %}\nc\n\n",
    "{% raw %}{{ x }}{% endraw %}{{ '{{' }}{{ \"a\\tb\\n\" }}{{ 'it''s' if false else 'ok' }}",
    "{{ raise_exception('no ' + messages[0].role) }}",
    "{{ messages[0].content.nothing.more }}",
    "{{ 'abc'.islower() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ '-'.join(['a', 'b']) }} {{ 'a\\nb'.splitlines() }}",
    "{{ strftime_now('%Y') | length }} {{ strftime_now is defined }} {{ bos_token }}{{ eos_token }} {{ add_generation_prompt }} {{ tools is none }}",
    "{{ ['a', none] | trim }} {{ 'xax' | trim('x') }} {{ none is iterable }} {{ 1 is iterable }} {{ missing is iterable }} {{ {} is iterable }}",
    "{{ dict(a=1) }} {{ range(3) | list }} {{ [1, 2, 3][1] }} {{ 'abc'[0] }} {{ 'abc' | list }} {{ 1 if 0 else 2 }} {{ 1 < 2 < 3 }} {{ not true }}",
    "{{ 'é' | length }} {{ '😀' | length }} {{ 'ß'.upper() }} {{ '%s-%d' | format('a', 3) }} {{ 'a {} {x}'.format(1, x=2) }}",
]


def record(name, template, messages, tools=None, add_generation_prompt=True, **extra):
    case = {"name": name, "template": template, "messages": messages, "tools": tools,
            "add_generation_prompt": add_generation_prompt, "extra": extra}
    try:
        made = environment().from_string(template)
        case["rendered"] = made.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt,
                                       bos_token="<s>", eos_token="</s>", **extra)
    except jinja2.exceptions.UndefinedError:
        case["refused"] = None
    except jinja2.exceptions.TemplateError as error:
        case["refused"] = error.message
    except TypeError:
        case["refused"] = None
    return case


def main():
    cases = [record(f"snippet {index}", snippet, [USER, ASSISTANT], tool=TOOL) for index, snippet in enumerate(SNIPPETS)]
    for path in sorted((HERE / "templates").glob("*.jinja")):
        template = path.read_text()
        for name, messages in CONVERSATIONS.items():
            tools = [TOOL] if "tools" in name else None
            cases.append(record(f"{path.stem}, {name}", template, messages, tools, date_string="26 Jul 2024"))
        cases.append(record(f"{path.stem}, to train", template, [USER, ASSISTANT], None, False, date_string="26 Jul 2024"))
        cases.append(record(f"{path.stem}, no thoughts", template, [USER], None, enable_thinking=False, date_string="1 Jan 2025"))
    for case in cases:
        if not case["name"].startswith("snippet"):
            case["template"] = case["name"].split(",")[0] + ".jinja"
    print("[" + ",\n".join(json.dumps(case) for case in cases) + "]")


main()
