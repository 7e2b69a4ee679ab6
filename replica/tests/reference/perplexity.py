"""Perplexity of one GGUF file by our replica and by llama.cpp, on the same token ids:
    perplexity.py FLOTILLA_REPLICA MODEL.gguf
Needs `llama_cpp_cffi` (PyPI; its dependencies are not used: pip install --no-deps) and `cffi`, `numpy`. Texts are the
longer prompts of greedy.json, so MODEL must have their tokenizer (SmolLM2)."""
import importlib.machinery, importlib.util, json, math, pathlib, socket, subprocess, sys, time, urllib.request
import numpy

HERE = pathlib.Path(__file__).parent
BATCH = 2048  # tokens; a text goes in one batch


def texts():
    cases = json.loads((HERE / "greedy.json").read_text())["cases"]
    return [c["prompt_ids"] for c in cases if 200 <= len(c["prompt_ids"]) < 1600]


def of_replica(binary, model, all_texts):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([binary, "--model", model, "--port", str(port)], stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{base}/ready", timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        logprobs = []
        for text in all_texts:
            body = {"model": "any", "prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1}
            body["model"] = json.load(urllib.request.urlopen(f"{base}/v1/models"))["data"][0]["id"]
            asked = urllib.request.Request(
                f"{base}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
            answer = json.load(urllib.request.urlopen(asked, timeout=300))
            logprobs += answer["choices"][0]["logprobs"]["token_logprobs"][1:len(text)]
        return logprobs
    finally:
        server.terminate()
        server.wait()


def llama_cpp():
    root = importlib.util.find_spec("llama").submodule_search_locations[0]
    path = next(pathlib.Path(root).glob("_llama_cpp_cpu.*.so"))
    loader = importlib.machinery.ExtensionFileLoader("_llama_cpp_cpu", str(path))
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("_llama_cpp_cpu", loader))
    loader.exec_module(module)
    return module.lib, module.ffi


def of_llama_cpp(model, all_texts):
    lib, ffi = llama_cpp()
    lib.llama_backend_init()
    loaded = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
    width = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(loaded))
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = BATCH
    params.n_threads = params.n_threads_batch = 2
    logprobs = []
    for text in all_texts:
        context = lib.llama_init_from_model(loaded, params)
        batch = lib.llama_batch_init(len(text), 0, 1)
        batch.n_tokens = len(text)
        for i, token in enumerate(text):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        assert lib.llama_decode(context, batch) == 0
        for i, token in enumerate(text[1:]):
            row = numpy.frombuffer(ffi.buffer(lib.llama_get_logits_ith(context, i), 4 * width), numpy.float32)
            row = row.astype(numpy.float64)
            logprobs.append(row[token] - row.max() - math.log(numpy.exp(row - row.max()).sum()))
        lib.llama_batch_free(batch)
        lib.llama_free(context)
    return logprobs


def main():
    binary, model = sys.argv[1:]
    all_texts = texts()
    ours, theirs = of_replica(binary, model, all_texts), of_llama_cpp(model, all_texts)
    assert len(ours) == len(theirs) == sum(len(text) - 1 for text in all_texts)
    ours, theirs = (math.exp(-sum(values) / len(values)) for values in (ours, theirs))
    print(f"{len(all_texts)} texts, {sum(map(len, all_texts))} tokens: ours {ours:.4f}, llama.cpp {theirs:.4f}, "
          f"ratio {ours / theirs:.5f}")


if __name__ == "__main__":
    main()
