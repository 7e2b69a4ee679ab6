"""Prints what compare.sh measured, all rounds of a router together: table.py FOLDER ROUTER...

"P50 by round" shows how much a round's luck is worth: a difference that is smaller than that is none.
"""

import json
import math
import pathlib
import sys

folder, routers = pathlib.Path(sys.argv[1]), sys.argv[2:]


def percentile(values, percent):
    """Between ranks, linearly, as flotilla-load's."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    rank = percent / 100 * (len(ordered) - 1)
    below, above = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return below + (above - below) * (rank - math.floor(rank))


def ttfts(runs):
    answered = (one for run in runs for one in run["exchanges"] if one["failure"] is None)
    return [(one["first_token_s"] - one["intended_s"]) * 1e3 for one in answered]


def hit_rate(runs):
    told = [one for run in runs for one in run["exchanges"] if one["failure"] is None and one["cached_tokens"] is not None]
    if not told:
        return sum(run["hit_rate_metrics"] or 0 for run in runs) / len(runs)
    return sum(one["cached_tokens"] for one in told) / sum(one["prompt_tokens"] for one in told)


def read(router, workload):
    paths = sorted(folder.glob(f"{router}-{workload}-[0-9]*.json"))
    return [json.loads(path.read_text()) for path in paths]


for workload in ("multi-turn", "shared-prefix"):
    print(
        f"{workload:<16}{'requests':>9}{'failed':>8}{'TTFT P50':>11}{'P99 ms':>9}{'hits %':>8}{'within %':>10}"
        f"{'goodput/s':>11}   P50 by round"
    )
    rows, counts = {}, set()
    for router in routers:
        runs = read(router, workload)
        requests = sum(run["requests"] for run in runs)
        good = sum(run["attainment"] * run["requests"] for run in runs)
        goodput = sum(run["goodput_per_s"] for run in runs) / len(runs)
        times = ttfts(runs)
        row = (percentile(times, 50), percentile(times, 99), hit_rate(runs), goodput)
        rows[router] = row
        counts.add(tuple(run["requests"] for run in runs))
        by_round = ", ".join(f"{percentile(ttfts([run]), 50):.0f}" for run in runs)
        print(
            f"{router:<16}{requests:>9}{requests - sum(run['answered'] for run in runs):>8}{row[0]:>11.0f}{row[1]:>9.0f}"
            f"{row[2] * 100:>8.1f}{good / max(requests, 1) * 100:>10.1f}{goodput:>11.2f}   {by_round}"
        )
    if len(counts) > 1:
        print("not comparable: the routers did not get the same number of requests")
    ours, others = rows.get("flotilla"), [row for router, row in rows.items() if router != "flotilla"]
    if ours and others:
        best = [pick(row[column] for row in others) for column, pick in enumerate((min, min, max, max))]
        ahead = [ours[0] <= best[0], ours[1] <= best[1], ours[2] >= best[2], ours[3] >= best[3]]
        words = ("TTFT P50", "P99", "hits", "goodput")
        print("flotilla against the best other: " + ", ".join(
            f"{word} {own / other if other else math.inf:.2f} ({'ahead' if is_ahead else 'BEHIND'})"
            for word, own, other, is_ahead in zip(words, ours, best, ahead)
        ))
    print()
