"""A real llama.cpp beside a replica of ours, behind one gateway.

Run with the folder of the binaries as its argument, by a Python that has `xllamacpp` (the wheel that runs llama.cpp's
own server). Ends in a line that cargo test would print, so that the counts add up.
"""

import glob
import json
import os
import random
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

try:
    import xllamacpp
except ImportError:
    print("SKIPPED llama.cpp in a fleet: the package xllamacpp is missing")
    sys.exit(0)

BINARIES = sys.argv.pop(1) if len(sys.argv) > 1 else ""
MODEL = "smol"
DEADLINE_S = 300
QUESTION = {"model": MODEL, "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "Say hi."}]}


def weights():
    """The default model's file, as `flotilla model fetch` leaves it."""
    out = subprocess.run([os.path.join(BINARIES, "flotilla"), "model", "fetch"], capture_output=True, text=True)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = glob.glob(os.path.join(home, "flotilla", "models", "SmolLM2*.gguf"))
    if not found:
        raise RuntimeError("there is no model: " + out.stderr)
    return found[0]


def serve_llamacpp(path, port):
    """Runs llama.cpp's server in this process, for ever."""
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.hostnames = path, port, ["127.0.0.1"]
    params.model_alias = {MODEL}
    params.n_parallel, params.n_ctx = 2, 4096
    params.endpoint_metrics = params.endpoint_slots = params.use_jinja = True
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    while True:
        time.sleep(1)


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


def get(url, body=None):
    """Status, headers and text of an answer."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def until(what, found):
    """Waits until `found()` is true and gives it back."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            if value := found():
                return value
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {DEADLINE_S} s")
        time.sleep(0.1)


class Fleet:
    """One replica of each kind, and a gateway that takes turns between them."""

    def __init__(self):
        path = weights()
        ports = [free_port() for _ in range(4)]
        self.llamacpp, self.ours = (f"127.0.0.1:{port}" for port in ports[:2])
        self.public, self.admin = (f"http://127.0.0.1:{port}" for port in ports[2:])
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        binary = lambda name: os.path.join(BINARIES, name)
        replica = [binary("flotilla-replica"), "--model", path, "--served-model-name", MODEL, "--host", "127.0.0.1"]
        replica += ["--port", str(ports[1]), "--max-model-len", "2048"]
        gateway = [binary("flotilla-gateway"), "--host", "127.0.0.1", "--port", str(ports[2]), "--admin-port"]
        gateway += [str(ports[3]), "--replica", f"http://{self.llamacpp}", "--replica", f"http://{self.ours}"]
        # Its policy is the plain one: each gets its turn, however fast the other is.
        settings = {**os.environ, "FLOTILLA__ROUTING__POLICY": "round_robin"}
        serving = [sys.executable, __file__, "--serve", path, str(ports[0])]
        self.server = subprocess.Popen(serving, **quiet)
        self.processes = [self.server, subprocess.Popen(replica, **quiet), subprocess.Popen(gateway, env=settings, **quiet)]

    def entries(self):
        return {entry["id"]: entry for entry in json.loads(get(self.admin + "/fleet")[2])["replicas"]}

    def wait_until_both_serve(self):
        serves = lambda entry: entry["state"] in ("ready", "warming")
        until("both serve", lambda: all(map(serves, self.entries().values())))

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class LlamaCpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet()
        cls.addClassCleanup(cls.fleet.end)
        cls.fleet.wait_until_both_serve()
        cls.chat = cls.fleet.public + "/v1/chat/completions"

    def test_1_each_engine_is_found_out_and_tells_its_load(self):
        entries = self.fleet.entries()
        engines = {entries[self.fleet.llamacpp]["engine"], entries[self.fleet.ours]["engine"]}
        self.assertEqual(engines, {"llama.cpp", "flotilla"})
        entry = entries[self.fleet.llamacpp]
        self.assertEqual((entry["models"], entry["running"], entry["isolates_tenants"]), ([MODEL], 0, False))

    def test_2_both_answer_and_stream_under_one_name(self):
        for streams in (False, True):
            answered = set()
            for _ in range(6):
                status, headers, text = get(self.chat, {**QUESTION, "stream": streams})
                self.assertEqual(status, 200, text)
                answered.add(headers["x-flotilla-replica"])
                if streams:
                    self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
                    self.assertEqual(headers["content-type"].split(";")[0], "text/event-stream")
                else:
                    self.assertTrue(json.loads(text)["choices"][0]["message"]["content"], text)
            self.assertEqual(answered, {self.fleet.llamacpp, self.fleet.ours})

    def test_3_its_own_refusals_pass_unchanged(self):
        long = {**QUESTION, "messages": [{"role": "user", "content": "word " * 6000}]}
        for _ in range(2):
            status, _, text = get(self.chat, long)
            self.assertEqual(status, 400, text)

    def test_4_when_it_is_killed_nobody_notices(self):
        self.fleet.server.kill()
        for _ in range(6):
            status, headers, text = get(self.chat, QUESTION)
            self.assertEqual((status, headers["x-flotilla-replica"]), (200, self.fleet.ours), text)
        until("it is out", lambda: self.fleet.entries()[self.fleet.llamacpp]["state"] in ("ejected", "down"))


if __name__ == "__main__":
    if BINARIES == "--serve":
        serve_llamacpp(sys.argv[1], int(sys.argv[2]))
    result = unittest.main(verbosity=2, exit=False).result
    failed = len(result.failures) + len(result.errors)
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {result.testsRun - failed} passed; {failed} failed; 0 ignored")
    sys.exit(bool(failed))
