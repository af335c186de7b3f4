#!/usr/bin/env python3
"""Measures the windows of Table 1: three transfers beside the paper's generator of processes, with all their windows.

    ./measure.py DIR [--packtrain PATH] [--losses PATH] [--seconds 150]

Writes DIR/low.jsonl.gz, middle.jsonl.gz and high.jsonl.gz, with at most one, two and four competing processes. Needs what
data/loss-causes/real.py needs; receiver and rivals have a nice value of -15, so that they are each other's contention and
not what else the machine does.
"""
import argparse
import gzip
import importlib.util
import io
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("real", HERE.parents[1] / "data/loss-causes/real.py")
REAL = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(REAL)

# Most processes at once, the scheduler's slice in ms, how many times as fast as the paper's generator; buffer.
TRANSFERS = {"low": ("1 10 4", 1_703_936), "middle": ("2 10 4", 1_703_936), "high": ("4 10 4", 1_703_936)}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("dir", type=Path)
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--losses", default="losses")
    words.add_argument("--seconds", type=float, default=80)
    words.add_argument("--rate", type=float, default=500, help="Mbit/s")
    words.add_argument("--only", default="low,middle,high")
    args = words.parse_args()
    args.all, args.windows = True, "97656"
    for name in args.only.split(","):
        rivals, buffer = TRANSFERS[name]
        out = io.StringIO()
        scenario = dict(name=f"real-table1/{name}", rate=args.rate, link=args.rate * 2, queue="64MiB",
                        rivals=f"generator {rivals}", buffer=buffer, alone=True, above=True)
        print(name, REAL.play(args, scenario, out), flush=True)
        with gzip.open(args.dir / f"{name}.jsonl.gz", "wt") as file:
            file.write(out.getvalue())


if __name__ == "__main__":
    main()
