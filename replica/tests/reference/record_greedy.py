#!/usr/bin/env python3
"""Records what Hugging Face transformers (PyTorch, CPU, float32) answers greedily: greedy.json beside this file.

    pip install torch transformers gguf && python3 record_greedy.py MODEL.gguf

The weights are the GGUF's, dequantised to float32 by transformers itself, so our replica under
`--dtype float32` computes with the very same numbers. For each prompt: its ids, 64 greedy ids (end of sequence
does not stop it), the 50 best logits of the first step, and at every step the distance between the two best
logits, so that a near-tie can be told from a fault.
"""
import hashlib
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS, TOP = 64, 50
STORY = (
    "The lighthouse keeper climbed the narrow stairs every evening before the light failed. He carried a lamp, a "
    "book and a loaf of bread, and he counted the steps aloud, as his father had done. Below him the sea moved "
    "against the rocks, slow and grey, and the gulls came in from the west in long uneven lines. "
)
CODE = '''def merge(left, right):
    """Merges two sorted lists."""
    out = []
    while left and right:
        out.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
    return out + left + right

'''
CHINESE = "上海是中国最大的城市之一，位于长江入海口。每年春天，人们在公园里散步，看花，喝茶，聊天。"

PLAIN = {
    "one token": "The",
    "two words": "Once upon",
    "capital": "The capital of France is",
    "story start": "Once upon a time, in a village by the sea, there lived",
    "list": "Shopping list:\n1. milk\n2. bread\n3.",
    "numbers": "1, 2, 3, 5, 8, 13, 21,",
    "year": "In 1969, the first humans landed on",
    "chinese": CHINESE,
    "chinese question": "问题：中国的首都是哪里？\n回答：",
    "code": CODE + "def quicksort(items):\n",
    "json": '{"name": "Ada", "born": 1815, "fields": ["mathematics",',
    "html": "<html>\n<head><title>Fleet</title></head>\n<body>\n<h1>",
    "emoji": "I love 🍕 and 🎉! My favourite emoji are 😀 👩‍👩‍👧 🚀 because",
    "accents": "Où est la bibliothèque ? Elle est près de l'église, à côté du café",
    "arabic": "مرحبا بالعالم، كيف حالك اليوم؟",
    "white space": "a\n\n\n   b\t\tc      d\n",
    "repeat": "ha " * 40,
    "128 tokens": STORY * 2,
    "300 tokens": STORY * 5,
    "700 tokens": STORY * 11,
    "1000 code tokens": CODE * 14,
    "1500 tokens": STORY * 23,
    "700 chinese": CHINESE * 9,
}
CHAT = {
    "hi": "Say hi.",
    "france": "What is the capital of France? Answer in one sentence.",
    "poem": "Write a short poem about the sea.",
    "sum": "What is 17 + 25? Explain step by step.",
    "sort in python": "Write a Python function that sorts a list of words by length.",
    "translate": "Translate to German: The weather is nice today.",
    "chinese": "请用中文介绍一下长城。",
    "emoji": "Explain what 🌍🔥 means, with emoji.",
    "json": "Give me a JSON object with the fields name, age and city.",
    "summary": "Summarise in one sentence: " + STORY * 3,
    "long summary": "Summarise in one sentence: " + STORY * 17,
    "long code": "What does this code do?\n" + CODE * 6,
    "list planets": "List the planets of the solar system.",
    "roleplay": "You are a pirate. Tell me where the treasure is.",
}


def prompts(tokenizer):
    for name, text in PLAIN.items():
        yield f"plain: {name}", tokenizer(text, add_special_tokens=False)["input_ids"]
    for name, text in CHAT.items():
        messages = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        yield f"chat: {name}", tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.inference_mode()
def record(model, ids):
    answer, gaps, first, cache = [], [], None, None
    feed = torch.tensor([ids])
    for _ in range(STEPS):
        out = model(feed, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1].float()
        best = torch.topk(logits, TOP)
        if first is None:
            first = {"ids": best.indices.tolist(), "values": [round(v, 5) for v in best.values.tolist()]}
        gaps.append(round((best.values[0] - best.values[1]).item(), 6))
        answer.append(best.indices[0].item())
        feed = torch.tensor([[answer[-1]]])
    return {"prompt_ids": ids, "answer_ids": answer, "first_logits": first, "gaps": gaps}


def main(path):
    path = pathlib.Path(path).resolve()
    load = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**load)
    model = AutoModelForCausalLM.from_pretrained(**load, dtype=torch.float32, attn_implementation="eager").eval()
    cases = []
    for name, ids in prompts(tokenizer):
        cases.append({"name": name, **record(model, ids)})
        print(f"{name}: {len(ids)} tokens, smallest gap {min(cases[-1]['gaps']):.5f}", flush=True)
    out = {
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "made_with": {"torch": torch.__version__, "transformers": __import__("transformers").__version__},
        "cases": cases,
    }
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in out.pop("cases"))
    head = json.dumps(out)[1:-1]
    target = pathlib.Path(__file__).with_name("greedy.json")
    target.write_text(f'{{{head}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
