"""Writes a tokenizer of whole words that other load testers can load: tokenizer.py FOLDER."""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
vocabulary = {"[UNK]": 0, **{f"w{index}": index for index in range(1, 4000)}}
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
}
(folder / "tokenizer.json").write_text(json.dumps(tokenizer))
settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 100000}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
(folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(vocabulary)}))
