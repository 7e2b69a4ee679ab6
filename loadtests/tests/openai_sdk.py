"""The official openai package, curl and a plain socket against a fleet on the real small model.

Run by deploy/test.sh with the folder of the binaries as its argument. Ends in a line that cargo test would
print, so that the counts add up.
"""

import asyncio
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

import openai

BINARIES = sys.argv.pop(1)
START_DEADLINE_S = 300
ANSWER_DEADLINE_S = 120
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


STORY = [{"role": "user", "content": "Tell me a long story about a lighthouse keeper."}]


def free_port():
    """A port below those that the system hands out to clients, so that none of them takes it meanwhile."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def until(what, deadline_s, found):
    """Waits until `found()` is true and gives it back."""
    deadline = time.monotonic() + deadline_s
    while not (value := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {deadline_s} s")
        time.sleep(0.05)
    return value


def descendants(pid):
    """Process ids and names below `pid`; names as the kernel has them, cut to 15 characters."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                name, _, rest = stat.read().partition("(")[2].rpartition(")")
        except OSError:
            continue
        children.setdefault(int(rest.split()[1]), []).append((int(entry), name))
    found, waiting = {}, [pid]
    while waiting:
        for child, name in children.get(waiting.pop(), []):
            found[child] = name
            waiting.append(child)
    return found


class Fleet:
    """`flotilla up` with its default model and two replicas."""

    def __init__(self):
        self.port = free_port()
        command = [os.path.join(BINARIES, "flotilla"), "up", "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.wait_until_ready()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def wait_until_ready(self):
        seen, deadline = [], time.monotonic() + START_DEADLINE_S
        while True:
            try:
                line = self.lines.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.process.kill()
                raise RuntimeError("the fleet did not become ready:\n" + "".join(seen))
            seen.append(line)
            if "Try:" in line:
                return

    def replicas(self):
        return {pid for pid, name in descendants(self.process.pid).items() if name == "flotilla-replic"}

    def end(self):
        """Ctrl-C; the exit code, and what is left of its processes."""
        below = set(descendants(self.process.pid))
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=60)
        return status, {pid for pid in below if os.path.exists(f"/proc/{pid}")}


def setUpModule():
    global fleet, base, client, model
    fleet = Fleet()
    base = f"http://127.0.0.1:{fleet.port}/v1"
    client = openai.OpenAI(base_url=base, api_key="unused", timeout=ANSWER_DEADLINE_S)
    model = client.models.list().data[0].id


def tearDownModule():
    status, left = fleet.end()
    assert status == 0, f"flotilla up ended with {status}"
    assert not left, f"flotilla up left processes behind: {left}"


def body(stream):
    return {"model": model, "messages": QUESTION, "max_tokens": 24, "temperature": 0, "stream": stream}


def text_of_stream(payload):
    """Joins the deltas of an SSE answer; exactly one [DONE], at its end."""
    events = [line[6:] for line in payload.splitlines() if line.startswith("data: ")]
    assert events.count("[DONE]") == 1 and events[-1] == "[DONE]", events[-3:]
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


class OpenAiPackage(unittest.TestCase):
    def test_a_chat_is_answered_with_sense(self):
        answer = client.chat.completions.create(**body(False))
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertGreater(answer.usage.prompt_tokens, 0)

    def test_a_stream_gives_the_same_text_word_by_word(self):
        whole = client.chat.completions.create(**body(False)).choices[0].message.content
        deltas = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**body(True))]
        self.assertEqual("".join(deltas), whole)
        self.assertGreater(len([delta for delta in deltas if delta]), 3)

    def test_sixteen_async_streams_at_once_agree(self):
        async def one(caller):
            stream = await caller.chat.completions.create(**body(True))
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async def all_of_them():
            async with openai.AsyncOpenAI(base_url=base, api_key="unused", timeout=ANSWER_DEADLINE_S) as caller:
                return await asyncio.gather(*(one(caller) for _ in range(16)))

        self.assertEqual(len(set(asyncio.run(all_of_them()))), 1)

    def test_a_completion_is_answered(self):
        answer = client.completions.create(model=model, prompt="1, 2, 3, 4,", max_tokens=4, temperature=0)
        self.assertIn("5", answer.choices[0].text)

    def test_a_wrong_field_raises_a_bad_request_that_names_it(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=model, messages=QUESTION, max_tokens=-1)
        self.assertEqual(caught.exception.param, "max_tokens")

    def test_an_unknown_model_is_not_found(self):
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="no-such-model", messages=QUESTION)


class OtherClients(unittest.TestCase):
    def test_curl_streams(self):
        command = ["curl", "-sSN", "--max-time", str(ANSWER_DEADLINE_S), f"{base}/chat/completions"]
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(body(True))]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertIn("Paris", text_of_stream(answer.stdout))

    def test_a_plain_socket_gets_a_plain_answer(self):
        payload = json.dumps(body(False)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", fleet.port), ANSWER_DEADLINE_S) as sock:
            sock.sendall(head.encode() + payload)
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        head, _, rest = answer.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200"), head)
        self.assertIn(b"Paris", rest)


class ReplicaKilled(unittest.TestCase):
    def test_sixteen_streams_go_on_elsewhere_and_it_comes_back(self):
        """Of two replicas one is killed under sixteen greedy streams: each text is the undisturbed one, and a new
        process takes the dead one's place."""
        wanted = {**body(True), "messages": STORY, "max_tokens": 200}
        chunks = [chunk for chunk in client.chat.completions.create(**wanted) if chunk.choices]
        undisturbed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        begun, texts = threading.Semaphore(0), [None] * 16

        def one(place):
            text, first = "", True
            for chunk in client.chat.completions.create(**wanted):
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                if first and text:
                    begun.release()
                    first = False
            texts[place] = text

        threads = [threading.Thread(target=one, args=(place,)) for place in range(16)]
        for thread in threads:
            thread.start()
        for _ in threads:
            self.assertTrue(begun.acquire(timeout=ANSWER_DEADLINE_S))
        before = fleet.replicas()
        self.assertEqual(len(before), 2)
        os.kill(min(before), signal.SIGKILL)
        for thread in threads:
            thread.join(ANSWER_DEADLINE_S)
        self.assertEqual(texts, [undisturbed] * 16)
        until("a new replica", 60, lambda: len(fleet.replicas() - before) == 1 and len(fleet.replicas()) == 2)
        self.assertIn("Paris", client.chat.completions.create(**body(False)).choices[0].message.content)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    broken = len(result.failures) + len(result.errors)
    word = "FAILED" if broken else "ok"
    print(f"test result: {word}. {max(result.testsRun - broken, 0)} passed; {broken} failed; 0 ignored")
    sys.exit(1 if broken else 0)
