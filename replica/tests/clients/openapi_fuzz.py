"""schemathesis makes requests from the replica's own OpenAPI document: whatever comes, no answer is a 5xx.

    python3 replica/tests/clients/openapi_fuzz.py target/debug/flotilla-replica

needs the schemathesis package; without it the test is skipped. Answers must also have the documented form, and
requests that break the document in their structure must be refused.
"""

import importlib.util
import os
import subprocess
import sys
import unittest

import replica

if not importlib.util.find_spec("schemathesis"):
    replica.skip("the schemathesis package is missing")

BINARY = sys.argv.pop(1)
# Bounds that make every answer short: what is tested is what is understood, not how much is generated.
LIMITS = ["--max-model-len", "256", "--max-num-seqs", "64", "--queue-max", "4096"]
CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance"
# Made anew in each run they would find other things on other days; a longer hunt sets them.
SEED = os.environ.get("FLOTILLA_FUZZ_SEED", "1")
EXAMPLES = os.environ.get("FLOTILLA_FUZZ_EXAMPLES", "40")
DEADLINE_S = 60 + 12 * int(EXAMPLES)


class Document(unittest.TestCase):
    def test_no_request_made_from_the_document_is_a_fault_of_the_servers(self):
        server = replica.Replica(BINARY, *LIMITS)
        try:
            command = [os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run"]
            command += [f"{server.url}/openapi.json", "--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", SEED]
            command += ["--suppress-health-check", "all", "--request-timeout", "30", "--workers", "1"]
            done = subprocess.run(command, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, "schemathesis names the requests above")
        finally:
            server.end()


if __name__ == "__main__":
    replica.main()
