"""Prints what compare.sh measured: table.py FOLDER ROUTER..."""

import json
import pathlib
import sys

folder, routers = pathlib.Path(sys.argv[1]), sys.argv[2:]
for workload in ("multi-turn", "shared-prefix"):
    print(f"{workload:<16}{'answered':>9}{'failed':>8}{'TTFT P50':>11}{'P99 ms':>9}{'hits %':>8}{'within %':>10}{'goodput/s':>11}")
    for router in routers:
        run = json.loads((folder / f"{router}-{workload}.json").read_text())
        hits = run["hit_rate"] if run["hit_rate"] is not None else run["hit_rate_metrics"] or 0
        print(
            f"{router:<16}{run['answered']:>9}{run['requests'] - run['answered']:>8}{run['ttft_ms']['p50']:>11.0f}"
            f"{run['ttft_ms']['p99']:>9.0f}{hits * 100:>8.1f}{run['attainment'] * 100:>10.1f}{run['goodput_per_s']:>11.2f}"
        )
    print()
