"""Prints what compare.sh measured, each client beside what the server did for it: table.py FOLDER.

Fails unless ours are within 1 ms of the truth, and within 3 % of each other client's: means and medians, since a 99th
percentile of each run has its own luck.
"""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def load(name):
    return json.loads((folder / name).read_text())


def ours():
    run = load("ours.json")
    return {time: [run[time][figure] for figure in ("mean", "p50", "p99")] for time in ("ttft_ms", "tpot_ms", "e2e_ms")}


def sglang_bench():
    run = json.loads((folder / "sglang.jsonl").read_text().splitlines()[-1])
    names = {"ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms", "e2e_ms": "e2e_latency_ms"}
    return {time: [run.get(f"{figure}_{name}") for figure in ("mean", "median", "p99")] for time, name in names.items()}


def aiperf():
    run = load("aiperf/profile_export_aiperf.json")
    names = {"ttft_ms": "time_to_first_token", "tpot_ms": "inter_token_latency", "e2e_ms": "request_latency"}
    return {time: [run[name][figure] for figure in ("avg", "p50", "p99")] for time, name in names.items()}


FIGURES = ("mean", "P50", "P99")
OFF_MS, OFF_SHARE = 1.0, 0.03

print(f"{'client':<14}{'':<9}{'mean':>9}{'P50':>9}{'P99':>9}   against the server's own: mean, P50, P99")
measured, misses = {}, []
for name, read in (("ours", ours), ("sglang-bench", sglang_bench), ("aiperf", aiperf)):
    if not (folder / f"{name}-truth.json").exists():
        continue
    truth, measured[name] = load(f"{name}-truth.json"), read()
    for time, values in measured[name].items():
        real = [truth[time][figure] for figure in ("mean", "p50", "p99")]
        cells = "".join(f"{value:>9.2f}" if value is not None else f"{'-':>9}" for value in values)
        off = [None if value is None else value - wanted for value, wanted in zip(values, real)]
        print(f"{name:<14}{time:<9}{cells}   " + ", ".join("-" if one is None else f"{one:+.2f} ms" for one in off))
        if name == "ours":
            misses += [f"{time} {figure} {one:+.2f} ms of the truth" for figure, one in zip(FIGURES, off) if abs(one) > OFF_MS]
for name in list(measured)[1:]:
    shares = []
    for time, values in measured[name].items():
        for figure, own, value in zip(FIGURES[:2], measured["ours"][time], values):
            share = own / value - 1
            shares.append(f"{time} {figure} {share * 100:+.1f} %")
            if abs(share) > OFF_SHARE:
                misses.append(f"{time} {figure} {share * 100:+.1f} % of {name}'s")
    print(f"ours against {name}: {', '.join(shares)}")
print("\n".join(f"missed: {miss}" for miss in misses) or "all within 1 ms of the truth and 3 % of the others")
sys.exit(bool(misses))
