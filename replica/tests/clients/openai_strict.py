"""The official client against a replica: every typed response must validate strictly.

    flotilla-replica --model fake --chat-template replica/tests/api/hermes.jinja --port 8001 &
    pip install openai && python3 replica/tests/clients/openai_strict.py http://127.0.0.1:8001/v1
"""

import asyncio
import sys

from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8001/v1"
KEY = "unused"
client = OpenAI(base_url=BASE, api_key=KEY, max_retries=0, _strict_response_validation=True)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model


def ask(text, **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=messages, temperature=0, **more)


# Chat, whole and in events, with logprobs and usage.
whole = ask("[[say:Hello there]]", logprobs=True, top_logprobs=2)
assert whole.choices[0].message.content == "Hello there" and whole.usage.completion_tokens == 12
chunks = list(ask("[[say:Hello there]]", stream=True, logprobs=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello there"
assert chunks[-1].usage.completion_tokens == 12 and chunks[0].choices[0].delta.role == "assistant"
with client.chat.completions.stream(model=model, messages=[{"role": "user", "content": "[[say:hi]]"}]) as stream:
    assert stream.get_final_completion().choices[0].message.content == "hi"

# Completions.
text = client.completions.create(model=model, prompt="[[say:ok]]", temperature=0, logprobs=2)
assert text.choices[0].text == "ok" and len(text.choices[0].logprobs.token_logprobs) == 2
echo = client.completions.create(model=model, prompt="[[say:ok]]", temperature=0, echo=True)
assert echo.choices[0].text == "[[say:ok]]ok"
# The client's own type has no null finish reason here, which every chunk but the last one has (OpenAI's too).
loose = OpenAI(base_url=BASE, api_key=KEY, max_retries=0)
parts = loose.completions.create(model=model, prompt="[[say:ok]]", temperature=0, stream=True)
assert "".join(part.choices[0].text for part in parts) == "ok"

# Tools.
tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
call = '[[say:<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>]]'
called = ask(call, tools=tools).choices[0]
assert called.finish_reason == "tool_calls" and called.message.tool_calls[0].function.arguments == '{"a": 1}'
told = [c.choices[0] for c in ask(call, tools=tools, stream=True)]
assert "".join(d.delta.tool_calls[0].function.arguments for d in told if d.delta.tool_calls) == '{"a": 1}'


# Structured output, parsed into a type.
class Answer(BaseModel):
    count: int


parsed = client.chat.completions.parse(
    model=model, messages=[{"role": "user", "content": '[[say:{"count": 7}]]'}], response_format=Answer, temperature=0
)
assert parsed.choices[0].message.parsed.count == 7

# Responses, whole, in events, parsed.
response = client.responses.create(model=model, input="[[say:Hello]]", temperature=0)
assert response.output_text == "Hello" and response.status == "completed"
events = list(client.responses.create(model=model, input="[[say:Hello]]", temperature=0, stream=True))
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello"
assert events[-1].type == "response.completed" and events[-1].response.output_text == "Hello"
assert client.responses.parse(model=model, input='[[say:{"count": 7}]]', text_format=Answer).output_parsed.count == 7

# Embeddings.
vectors = client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
assert len(vectors.data) == 2
# By default the client asks for base64 and unpacks it itself, which its strict mode is not ready for.
assert len(loose.embeddings.create(model=model, input="a").data[0].embedding) == len(vectors.data[0].embedding)

# Refusals are typed too.
try:
    ask("x", max_tokens=-1)
    raise AssertionError("not refused")
except BadRequestError as error:
    assert error.param == "max_tokens" and error.code == "invalid_value"
try:
    client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])
    raise AssertionError("not refused")
except NotFoundError as error:
    assert error.code == "model_not_found"


async def together():
    many = AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=0, _strict_response_validation=True)
    messages = [{"role": "user", "content": "[[say:async]]"}]
    answers = await asyncio.gather(*(many.chat.completions.create(model=model, messages=messages) for _ in range(8)))
    assert all(answer.choices[0].message.content == "async" for answer in answers)
    stream = await many.chat.completions.create(model=model, messages=messages, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "async"


asyncio.run(together())
print("the official client agrees")
