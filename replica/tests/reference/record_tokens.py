"""Records what llama.cpp's /tokenize makes of corpus.json, with the tokenizer of a GGUF file.

    python3 -m venv v && v/bin/pip install xllamacpp
    v/bin/python record_tokens.py MODEL.gguf > tokens_NAME.json
"""

import json
import pathlib
import sys
import urllib.request

import xllamacpp


def main():
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.port = 0
    params.n_ctx = 512
    params.n_parallel = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    corpus = json.loads((pathlib.Path(__file__).parent / "corpus.json").read_text())
    recorded = [tokenize(server.listening_address, line) for line in corpus]
    print("[" + ",\n".join(json.dumps(tokens, separators=(",", ":")) for tokens in recorded) + "]")


def tokenize(address, text):
    # add_special is off: our tests ask about a beginning of sequence apart.
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    request = urllib.request.Request(address + "/tokenize", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["tokens"]


main()
