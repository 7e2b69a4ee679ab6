"""Writes tiny random checkpoints of every family, as Hugging Face folders and as GGUF twins, with the logits and
greedy tokens that transformers computes from them.

    python3 -m venv v && v/bin/pip install torch transformers gguf xllamacpp
    v/bin/python make_tiny.py            # writes tiny/NAME/
    v/bin/python make_tiny.py --verify   # also holds llama.cpp's greedy tokens against the recording

Weights are rounded to bfloat16 before anything else, so that folder, GGUF and recording have the very same
numbers. They are larger than training would make them: a wrong window, norm or angle must show.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers

import tiny_gguf

HERE = pathlib.Path(__file__).parent / "tiny"
VOCAB, WINDOW, ORIGINAL, PROMPT = 260, 8, 16, 48
LENGTHS = [1, WINDOW - 1, WINDOW + 1, ORIGINAL + 1, PROMPT]
GREEDY_PROMPT, GREEDY = 20, 16
LOGIT_STRIDE = 4

COMMON = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
    pad_token_id=257, tie_word_embeddings=False,
)


def rope(kind, theta=10000.0, **rest):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **rest}}


def layers(pattern):
    return ["sliding_attention" if local else "full_attention" for local in pattern]


FAMILIES = {
    "llama": (transformers.LlamaConfig, dict(tie_word_embeddings=True, **rope("default"))),
    "llama_biases": (transformers.LlamaConfig, dict(attention_bias=True, mlp_bias=True, **rope("default"))),
    "llama_linear": (transformers.LlamaConfig, rope("linear", factor=2.0)),
    "llama_dynamic": (transformers.LlamaConfig, dict(max_position_embeddings=ORIGINAL, **rope("dynamic", factor=2.0))),
    "llama_bands": (
        transformers.LlamaConfig,
        rope("llama3", 500000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=ORIGINAL),
    ),
    "mistral": (transformers.MistralConfig, dict(sliding_window=WINDOW, **rope("default"))),
    "smollm3": (
        transformers.SmolLM3Config,
        dict(num_hidden_layers=4, no_rope_layer_interval=4, use_sliding_window=False, tie_word_embeddings=True,
             **rope("default", 50000.0)),
    ),
    "qwen2": (transformers.Qwen2Config, dict(use_sliding_window=False, **rope("default", 1000000.0))),
    "qwen2_window": (
        transformers.Qwen2Config,
        dict(use_sliding_window=True, sliding_window=WINDOW, layer_types=layers([0, 1, 1]), **rope("default")),
    ),
    "qwen2_yarn": (
        transformers.Qwen2Config,
        dict(use_sliding_window=False, **rope("yarn", 1000000.0, factor=4.0, original_max_position_embeddings=ORIGINAL)),
    ),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=16, tie_word_embeddings=True, **rope("default", 1000000.0))),
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        dict(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True,
             decoder_sparse_step=1, mlp_only_layers=[], **rope("default", 1000000.0)),
    ),
    "mixtral": (
        transformers.MixtralConfig,
        dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **rope("default", 1000000.0)),
    ),
    "gemma2": (
        transformers.Gemma2Config,
        dict(head_dim=16, num_hidden_layers=4, sliding_window=WINDOW, query_pre_attn_scalar=16,
             attn_logit_softcapping=50.0, final_logit_softcapping=30.0, tie_word_embeddings=True,
             layer_types=layers([1, 0, 1, 0]), **rope("default")),
    ),
    "gemma3": (
        transformers.Gemma3TextConfig,
        dict(head_dim=16, num_hidden_layers=6, sliding_window=WINDOW, query_pre_attn_scalar=16,
             tie_word_embeddings=True, layer_types=layers([1, 1, 1, 1, 1, 0]),
             rope_parameters={
                 "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                 "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
             }),
    ),
    "phi3": (transformers.Phi3Config, dict(sliding_window=None, **rope("default"))),
    "phi3_long": (
        transformers.Phi3Config,
        dict(num_attention_heads=2, num_key_value_heads=1, original_max_position_embeddings=ORIGINAL, sliding_window=None,
             **rope("longrope", partial_rotary_factor=0.75, original_max_position_embeddings=ORIGINAL,
                    short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.4], long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0])),
    ),
}


def lengths(name):
    """Prefixes whose last logits are kept. Scalings that depend on the sequence's length are fixed by the longest
    one in ours, as in vLLM, so only prefixes that agree with that are comparable."""
    if name == "llama_dynamic":
        return [2 * ORIGINAL]
    return [length for length in LENGTHS if name != "phi3_long" or length > ORIGINAL]


def build(name):
    kind, changes = FAMILIES[name]
    config = kind(**{**COMMON, **changes})
    config._attn_implementation = "eager"
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for key, weight in model.named_parameters():
        weight.data = values(key, weight, "Gemma" in kind.__name__).bfloat16().float()
    model.tie_weights()
    return config, model


def values(key, weight, norms_add_one):
    noise = torch.randn_like(weight)
    if key.endswith("norm.weight"):
        return 0.2 * noise + (0.0 if norms_add_one else 1.0)
    if weight.dim() == 1:
        return 0.3 * noise
    if "embed_tokens" in key:
        return noise / (6.0 if norms_add_one else 1.0)
    return 1.3 * noise / weight.shape[-1] ** 0.5


@torch.no_grad()
def record(name, model):
    torch.manual_seed(1 + sum(name.encode()))
    prompt = torch.randint(0, 256, (PROMPT,)).tolist()
    after = lambda ids: model(torch.tensor([ids]), use_cache=False).logits[0, -1]
    kept = {length: [round(value, 5) for value in after(prompt[:length])[::LOGIT_STRIDE].tolist()] for length in lengths(name)}
    recorded = {"prompt": prompt, "logit_stride": LOGIT_STRIDE, "logits": kept, "greedy_prompt": GREEDY_PROMPT}
    if name == "llama_dynamic":
        return recorded
    ids, gaps = prompt[:GREEDY_PROMPT], []
    for _ in range(GREEDY):
        best = torch.topk(after(ids), 2)
        ids = ids + [best.indices[0].item()]
        gaps.append(round((best.values[0] - best.values[1]).item(), 5))
    return {**recorded, "greedy": ids[GREEDY_PROMPT:], "gaps": gaps}


def main():
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or list(FAMILIES)
    for name in chosen:
        config, model = build(name)
        recorded = record(name, model)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model.bfloat16().save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)
        (folder / "tokenizer.json").write_text(json.dumps(tiny_gguf.tokenizer_json(VOCAB), ensure_ascii=True))
        (folder / "recorded.json").write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
        if tiny_gguf.exists_for(name):
            tiny_gguf.write(folder / "model.gguf", folder, config, exact=False)
            if "--verify" in sys.argv:
                tiny_gguf.verify(folder, config, recorded)
        print(name, sum(path.stat().st_size for path in folder.iterdir()), "bytes", flush=True)


if __name__ == "__main__":
    main()
