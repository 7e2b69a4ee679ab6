"""The official client against a replica: every typed response must validate strictly.

    python3 replica/tests/clients/openai_strict.py target/debug/flotilla-replica

needs the openai package; without it the test is skipped.
"""

import asyncio
import sys
import unittest

import replica

try:
    import openai
    from pydantic import BaseModel
except ImportError:
    replica.skip("the openai package is missing")

BINARY = sys.argv.pop(1)
CALL = '[[say:<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>]]'
ARGUMENTS = '{"a": 1}'
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}]


def setUpModule():
    global server, client, loose, model
    server = replica.Replica(BINARY)
    client = official(openai.OpenAI, strict=True)
    # For the two places where the client's own types are narrower than what OpenAI itself sends.
    loose = official(openai.OpenAI, strict=False)
    model = client.models.list().data[0].id


def tearDownModule():
    client.close()
    loose.close()
    server.end()


def official(kind, strict):
    return kind(
        base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60, _strict_response_validation=strict
    )


def user(text):
    return [{"role": "user", "content": text}]


def ask(text, **more):
    return client.chat.completions.create(model=model, messages=user(text), temperature=0, **more)


def complete(text, caller=None, **more):
    return (caller or client).completions.create(model=model, prompt=text, temperature=0, **more)


def respond(text, **more):
    return client.responses.create(model=model, input=text, temperature=0, **more)


class Answer(BaseModel):
    count: int


class Models(unittest.TestCase):
    def test_a_model_of_the_list_can_be_retrieved(self):
        self.assertEqual(client.models.retrieve(model).id, model)

    def test_an_unknown_one_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="nobody", messages=user("x"))
        self.assertEqual(caught.exception.code, "model_not_found")


class Chat(unittest.TestCase):
    def test_a_whole_answer_validates(self):
        answer = ask("[[say:Hello there]]")
        self.assertEqual(answer.choices[0].message.content, "Hello there")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        # A token a letter, and the one that ends it.
        self.assertEqual(answer.usage.completion_tokens, 12)

    def test_several_choices_validate(self):
        answer = ask("[[say:ok]]", n=3)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])

    def test_a_stream_validates_and_ends_in_the_usage(self):
        chunks = list(ask("[[say:Hello there]]", stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, "Hello there")
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)

    def test_the_stream_helper_gathers_the_answer(self):
        with client.chat.completions.stream(model=model, messages=user("[[say:hi]]")) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.content, "hi")

    def test_logprobs_validate_whole_and_in_events(self):
        whole = ask("[[say:hi]]", logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual([bytes(token.bytes) for token in whole], [b"h", b"i"])
        self.assertTrue(all(len(token.top_logprobs) == 2 for token in whole))
        chunks = ask("[[say:hi]]", logprobs=True, top_logprobs=2, stream=True)
        told = [chunk.choices[0].logprobs for chunk in chunks]
        self.assertEqual([token for logprobs in told if logprobs for token in logprobs.content], whole)

    def test_a_schema_is_parsed_into_a_type(self):
        parsed = client.chat.completions.parse(
            model=model, messages=user('[[say:{"count": 7}]]'), response_format=Answer, temperature=0
        )
        self.assertEqual(parsed.choices[0].message.parsed, Answer(count=7))

    def test_a_wrong_field_is_named(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask("x", max_tokens=-1)
        self.assertEqual((caught.exception.param, caught.exception.code), ("max_tokens", "invalid_value"))


class Tools(unittest.TestCase):
    def test_a_call_validates(self):
        choice = ask(CALL, tools=TOOLS).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        [call] = choice.message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), ("add", ARGUMENTS))

    def test_streamed_arguments_add_up(self):
        deltas = [chunk.choices[0].delta for chunk in ask(CALL, tools=TOOLS, stream=True)]
        calls = [call for delta in deltas for call in delta.tool_calls or []]
        self.assertEqual("".join(call.function.arguments or "" for call in calls), ARGUMENTS)
        self.assertEqual([call.function.name for call in calls if call.id], ["add"])

    def test_a_result_of_a_call_is_taken_back(self):
        asked = ask(CALL, tools=TOOLS).choices[0].message
        result = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "2"}
        messages = [*user("add"), asked, result]
        answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS, max_tokens=4)
        self.assertTrue(answer.choices[0].message.content)


class Completions(unittest.TestCase):
    def test_a_whole_answer_validates_with_logprobs(self):
        choice = complete("[[say:ok]]", logprobs=2).choices[0]
        self.assertEqual((choice.text, len(choice.logprobs.token_logprobs)), ("ok", 2))

    def test_an_echo_begins_with_the_prompt(self):
        self.assertEqual(complete("[[say:ok]]", echo=True).choices[0].text, "[[say:ok]]ok")

    def test_a_stream_gives_the_same_text(self):
        # The client's type wants a finish reason on every chunk; OpenAI's API has it on the last alone.
        chunks = complete("[[say:ok]]", loose, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), "ok")


class Responses(unittest.TestCase):
    def test_a_whole_response_validates(self):
        response = respond("[[say:Hello]]")
        self.assertEqual((response.output_text, response.status), ("Hello", "completed"))
        self.assertEqual(response.usage.output_tokens, 6)

    def test_the_events_validate_and_agree(self):
        events = list(respond("[[say:Hello]]", stream=True))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), "Hello")
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual(events[-1].response.output_text, "Hello")

    def test_a_call_validates_whole_and_in_events(self):
        tools = [{"type": "function", "name": "add", "parameters": PARAMETERS, "strict": False}]
        [item] = respond(CALL, tools=tools).output
        self.assertEqual((item.type, item.name, item.arguments), ("function_call", "add", ARGUMENTS))
        events = list(respond(CALL, tools=tools, stream=True))
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        self.assertEqual("".join(deltas), ARGUMENTS)
        self.assertEqual(events[-1].response.output[0].arguments, ARGUMENTS)

    def test_a_schema_is_parsed_into_a_type(self):
        parsed = client.responses.parse(model=model, input='[[say:{"count": 7}]]', text_format=Answer)
        self.assertEqual(parsed.output_parsed, Answer(count=7))


class Embeddings(unittest.TestCase):
    def test_vectors_validate(self):
        vectors = client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
        self.assertEqual([vector.index for vector in vectors.data], [0, 1])
        # Without a format the client asks for base64 and unpacks it itself, which its strict mode is not ready for.
        packed = loose.embeddings.create(model=model, input="a").data[0].embedding
        self.assertEqual(len(packed), len(vectors.data[0].embedding))
        self.assertAlmostEqual(packed[0], vectors.data[0].embedding[0], places=5)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_answers_come_side_by_side(self):
        async with official(openai.AsyncOpenAI, strict=True) as many:
            one = lambda **more: many.chat.completions.create(model=model, messages=user("[[say:both]]"), **more)
            answers = await asyncio.gather(*(one() for _ in range(8)))
            self.assertEqual({answer.choices[0].message.content for answer in answers}, {"both"})
            stream = await one(stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            self.assertEqual(text, "both")


if __name__ == "__main__":
    replica.main()
