"""One Markdown row of bench.py's figures: table.py head | table.py row NAME LOAD_S BENCH_JSON"""
import json
import sys

HEAD = ["", "prefill tok/s", "1 stream", "4", "8", "16", "TTFT warm ms", "load s", "RSS MB"]


def row(name, load, path):
    with open(path, encoding="utf8") as file:
        got = json.load(file)
    rates = [got["prefill_tps"], got["decode_b1_tps"]] + [got[f"conc{n}"]["agg_tps"] for n in (4, 8, 16)]
    failed = sum(got[f"conc{n}"]["failed"] for n in (4, 8, 16))
    assert not failed, f"{failed} answers failed"
    cells = [f"{rate:.0f}" for rate in rates]
    return [name, *cells, f"{1000 * got['ttft_warm_s']:.0f}", f"{float(load):.2f}", str(got["rss_after_mb"])]


def line(cells):
    return "| " + " | ".join(cells) + " |"


if sys.argv[1] == "head":
    print(line(HEAD))
    print(line(["---"] * len(HEAD)))
else:
    print(line(row(*sys.argv[2:])), flush=True)
