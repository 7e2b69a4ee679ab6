"""The GGUF twins of make_tiny.py's checkpoints, written as llama.cpp's converter writes them."""

import json
import math
import pathlib
import tempfile
import urllib.request

import gguf
import numpy
import safetensors.torch
import torch

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "smollm3": "smollm3", "qwen2": "qwen2", "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe", "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3",
}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
}
GEMMA_PARTS = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
EXPERT_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def exists_for(name):
    """llama.cpp has no NTK by length, and no window in Llama's and Qwen2's architectures."""
    return name not in ("llama_dynamic", "mistral", "qwen2_window")


def letters():
    """GPT-2's stand-ins for bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(moved)) for byte in range(256)]


def tokens(vocab):
    return letters() + ["<|begin|>", "<|end|>", "he"] + [f"<|unused{i}|>" for i in range(259, vocab)]


def tokenizer_json(vocab):
    spelled = tokens(vocab)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, text in enumerate(spelled) if text.startswith("<|")
    ]
    model = {"type": "BPE", "vocab": {text: i for i, text in enumerate(spelled)}, "merges": [["h", "e"]]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}


def write(path, folder, config, exact):
    """`exact` keeps matrices as F32, else they are BF16 as in the folder."""
    arch = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, arch)
    keys(writer, config, arch)
    vocabulary(writer, config.vocab_size)
    tables(writer, config)
    for name, weight in gathered(folder, config, arch).items():
        plain = exact or weight.dim() == 1 or "ffn_gate_inp" in name
        data = weight.float().numpy() if plain else weight.bfloat16().view(torch.uint16).numpy()
        raw = None if plain else gguf.GGMLQuantizationType.BF16
        writer.add_tensor(name, data if plain else data.view(numpy.uint8), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def keys(writer, config, arch):
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_vocab_size(config.vocab_size)
    if arch in ("qwen3", "qwen3moe", "gemma2", "gemma3"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "phi3":
        writer.add_rope_scaling_orig_ctx_len(rope.get("original_max_position_embeddings", config.max_position_embeddings))
        writer.add_sliding_window(config.sliding_window or 0)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch == "qwen3moe":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        stretch = config.max_position_embeddings / rope["original_max_position_embeddings"]
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(rope["original_max_position_embeddings"])))


def vocabulary(writer, vocab):
    spelled = tokens(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(spelled)
    writer.add_token_types([gguf.TokenType.CONTROL if text.startswith("<|") else gguf.TokenType.NORMAL for text in spelled])
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)


def tables(writer, config):
    """Divisors of frequencies, which the converter works out beforehand."""
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        writer.add_tensor("rope_factors_long.weight", numpy.array(rope["long_factor"], dtype=numpy.float32))
        writer.add_tensor("rope_factors_short.weight", numpy.array(rope["short_factor"], dtype=numpy.float32))
    if rope.get("rope_type") == "llama3":
        dim = config.hidden_size // config.num_attention_heads
        original, factor = rope["original_max_position_embeddings"], rope["factor"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        divisors = []
        for pair in range(dim // 2):
            wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * pair / dim)
            smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
        writer.add_tensor("rope_freqs.weight", numpy.array(divisors, dtype=numpy.float32))


def gathered(folder, config, arch):
    """The folder's tensors under llama.cpp's names, in its order of rows, experts stacked."""
    gemma = arch.startswith("gemma")
    renamed, experts = {}, {}
    for name, weight in safetensors.torch.load_file(folder / "model.safetensors").items():
        if gemma and name.endswith("norm.weight"):
            weight = weight.float() + 1.0
        outside = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                   "lm_head.weight": "output.weight"}
        if name in outside:
            renamed[outside[name]] = weight
            continue
        _, _, layer, *rest = name.split(".")
        part, suffix = ".".join(rest[:-1]), rest[-1]
        if "experts" in rest:
            kind = EXPERT_PARTS[rest[-2]]
            experts.setdefault(f"blk.{layer}.ffn_{kind}_exps.weight", {})[int(rest[rest.index("experts") + 1])] = weight
            continue
        if arch in ("llama", "smollm3") and part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = config.num_attention_heads if "q_proj" in part else config.num_key_value_heads
            weight = paired(weight, heads)
        inner = GEMMA_PARTS.get(part) if gemma else None
        renamed[f"blk.{layer}.{inner or PARTS[part]}.{suffix}"] = weight
    for name, parts in experts.items():
        renamed[name] = torch.stack([parts[i] for i in sorted(parts)])
    return renamed


def paired(weight, heads):
    """The two halves of each head take turns."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def verify(folder, config, recorded):
    """Holds llama.cpp's greedy tokens, from F32 weights, against the recording."""
    import xllamacpp

    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "exact.gguf"
        write(path, folder, config, exact=True)
        params = xllamacpp.CommonParams()
        params.model.path, params.port, params.n_ctx, params.n_parallel = str(path), 0, 64, 1
        params.warmup = False
        server = xllamacpp.Server(params)
        prompt = recorded["prompt"][: recorded["greedy_prompt"]]
        body = {"prompt": prompt, "n_predict": len(recorded["greedy"]), "temperature": 0, "ignore_eos": False,
                "return_tokens": True, "cache_prompt": False, "samplers": ["top_k"], "top_k": 1}
        request = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)["tokens"]
    for place, (ours, theirs) in enumerate(zip(recorded["greedy"], found)):
        if ours != theirs:
            print(f"{folder.name}: llama.cpp differs at {place} of {len(found)}, where the gap is {recorded['gaps'][place]}")
            return
    print(f"{folder.name}: llama.cpp agrees on {len(found)} tokens")
