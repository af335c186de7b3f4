#!/usr/bin/env python3
"""Measures throughput over the number of TCP streams, on the emulator.

    ./measure.py [--packtrain PATH] [--seconds 10] [--lanes 4] [--out runs.csv]

One path: 155 ms as in the paper's first testbed. Four ways: cubic and reno, each with buffers large enough for the path and with 256 KiB.
`--lanes` emulations run side by side, each with links of its own; the path is slow enough for that.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import tempfile
from pathlib import Path

PATH = "--rate 100mbit --rtt 155ms --queue 0.25bdp --loss 1e-4".split()
STREAMS = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40]
WAYS = [(cc, buffers) for buffers in ("large", "small") for cc in ("cubic", "reno")]
SMALL = "256KiB"
AT = "10.77.0.2:7876"


def last(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run(args, cc, buffers, streams):
    with tempfile.TemporaryDirectory() as folder:
        ticket, out = f"{folder}/ticket", f"{folder}/out"
        environment = dict(os.environ, XDG_STATE_HOME=f"{folder}/state", XDG_CONFIG_HOME=f"{folder}/config")
        size = f"--tcp-buffer {SMALL}" if buffers == "small" else ""
        far = f"exec {args.packtrain} perf server --listen {AT} --tests 1 --history none --ticket-file {ticket}"
        near = (f"until test -s {ticket}; do sleep 0.05; done; {args.packtrain} perf client {AT} --ticket @{ticket}"
                f" --transport tcp --parallel {streams} --tcp-cc {cc} {size} --seconds {args.seconds}"
                f" --history none --json > {out}")
        command = [args.packtrain, "emulate", *PATH, "--seed", str(streams), "--best-effort", "--json",
                   "--far", far, "--", "sh", "-c", near]
        emulation = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        kept_up = last(emulation.stdout)["ok"]
        mbps = last(Path(out).read_text())["goodput_bps"] / 1e6
    print(f"{cc}, {buffers} buffers, {streams} streams: {mbps:.2f} Mbit/s{'' if kept_up else ', the emulator was late'}", flush=True)
    return f"{cc},{buffers},{streams},{mbps:.3f},{'yes' if kept_up else 'no'}"


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--seconds", type=int, default=10)
    words.add_argument("--lanes", type=int, default=4)
    words.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "runs.csv")
    args = words.parse_args()
    with concurrent.futures.ThreadPoolExecutor(args.lanes) as lanes:
        # Long and short ones in turn would make no difference: all take the same time.
        rows = list(lanes.map(lambda one: run(args, *one), [(*way, n) for n in STREAMS for way in WAYS]))
    rows.sort(key=lambda row: (WAYS.index(tuple(row.split(",")[:2])), int(row.split(",")[2])))
    args.out.write_text("congestion,buffers,streams,throughput_mbps,kept_up\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
