"""Records llama.cpp's greedy answers of a GGUF file: 20 prompts, 32 tokens each, and how near the second best was.
Once from the file, and once (`exact`) from the same weights dequantised to F32, where llama.cpp does not round
activations to eight bits.

    python3 -m venv v && v/bin/pip install xllamacpp gguf
    v/bin/python record_llama_greedy.py gemma-3-270m-q4_k_m.gguf > llama_greedy.json
"""

import hashlib
import json
import pathlib
import sys
import tempfile
import urllib.request

import gguf
import numpy
import xllamacpp

TOKENS = 32
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "The three primary colours are",
    "In 1969, the first humans landed on",
    "Water boils at a temperature of",
    "Shopping list:\n1. milk\n2. bread\n3.",
    "1, 2, 3, 5, 8, 13, 21,",
    "def quicksort(items):\n    ",
    "SELECT name, age FROM people WHERE",
    '{"name": "Ada", "born": 1815, "fields": ["mathematics",',
    "<html>\n<head><title>Fleet</title></head>\n<body>\n<h1>",
    "中国的首都是",
    "Der schnellste Weg von Berlin nach München ist",
    "La tour Eiffel se trouve à",
    "I love 🍕 and 🎉! My favourite emoji are 😀 🚀 because",
    "Q: Why is the sky blue?\nA:",
    "The theory of relativity was developed by",
    "To make a good cup of tea, first",
    "The lighthouse keeper climbed the narrow stairs every evening before the light failed. " * 12,
    "Dear Sir or Madam,\n\nI am writing to",
]


def ask(address, path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def record(path):
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.n_ctx, params.n_parallel = path, 0, 1024, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.warmup = False
    server = xllamacpp.Server(params)
    cases = []
    for prompt in PROMPTS:
        ids = ask(server.listening_address, "/tokenize", {"content": prompt, "add_special": True})["tokens"]
        body = {"prompt": ids, "n_predict": TOKENS, "temperature": 0, "samplers": ["top_k"], "top_k": 1, "n_probs": 2,
                "return_tokens": True, "cache_prompt": False}
        answer = ask(server.listening_address, "/completion", body)
        best = [step["top_logprobs"] for step in answer["completion_probabilities"]]
        gaps = [round(step[0]["logprob"] - step[1]["logprob"], 4) for step in best]
        cases.append({"prompt": ids, "answer": answer["tokens"], "gaps": gaps, "text": answer["content"]})
    return cases


def dequantise(path, into):
    """The same file with every tensor as F32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(into, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    cases = record(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        twin = str(pathlib.Path(scratch) / "exact.gguf")
        dequantise(sys.argv[1], twin)
        for case, exact in zip(cases, record(twin)):
            case["exact"], case["exact_gaps"] = exact["answer"], exact["gaps"]
    digest = hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest()
    print(json.dumps({"model_sha256": digest, "cases": cases}, ensure_ascii=True, indent=0))


main()
