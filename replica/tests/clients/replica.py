"""A replica without weights for tests with other people's clients, and results told as cargo test tells them."""

import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = os.path.join(HERE, "..", "api", "hermes.jinja")
START_DEADLINE_S = 60
END_DEADLINE_S = 60


class Replica:
    """A ready replica on a port of the system's choice; its log goes where this program's errors go."""

    def __init__(self, binary, *arguments):
        command = [binary, "--model", "fake", "--chat-template", TEMPLATE, "--port", "0", "--threads", "1"]
        self.process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        _, colon, port = line.strip().rpartition(":")
        if not colon:
            raise RuntimeError(f"no port in {line!r}; exit code {self.process.wait(END_DEADLINE_S)}")
        self.url = f"http://127.0.0.1:{port}"
        try:
            self.wait_until_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def wait_until_ready(self):
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/ready", timeout=5):
                    return
            except urllib.error.HTTPError:
                time.sleep(0.02)
        raise RuntimeError(f"the replica is not ready within {START_DEADLINE_S} s")

    def end(self):
        """Ends it as an operator would; it must have survived, and end by itself."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
        assert status == 0, f"the replica ended with {status}"


def skip(reason):
    """Ends this program as one skipped test."""
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    print(f"SKIPPED {name}: {reason}")
    sys.exit(0)


def main():
    """Runs the tests of the calling module; ends in a line that cargo test would print, so that counts add up."""
    result = unittest.main(exit=False, verbosity=2).result
    broken = len(result.failures) + len(result.errors)
    word = "FAILED" if broken else "ok"
    passed = max(result.testsRun - broken, 0)
    print(f"test result: {word}. {passed} passed; {broken} failed; {len(result.skipped)} ignored")
    sys.exit(1 if broken else 0)
