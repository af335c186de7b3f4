#!/usr/bin/env python3
"""Measures every cell of cells.csv: `packtrain perf` between the two hosts of `packtrain emulate`.
Writes emulator.csv.

    ./measure.py [--packtrain PATH] [--cells PATTERN]
"""
import argparse
import csv
import datetime
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = ("key,goodput_bps,retransmitted_bytes,overflow,random,late_mean_us,late_p99_us,"
        "kernel,date")

# Seeds as in crates/sim/tests/engine_validity.rs.
SCENARIO = """\
name = "engine-validity"
title = "{key}"
duration = "{seconds}s"
seed = 1

[[link]]
name = "near-far"
from = "near"
to = "far"
rate = "{rate_mbit}mbit"
rtt = "{rtt_ms}ms"
queue = "{queue_packets} packets"
loss = {loss}
seed = 1
reverse = {{ loss = 0, queue = "1000000 packets", seed = 1 }}
"""

# Ends that are on time, where that is allowed: a pacer that is preempted sends less.
PROMPT = "$(chrt -f 10 true 2>/dev/null && echo chrt -f 10)"
NEAR = """\
export XDG_CONFIG_HOME={at}/near XDG_STATE_HOME={at}/near
until [ -s {at}/ticket ]; do sleep 0.1; done
exec {prompt} {packtrain} perf client $PACKTRAIN_FAR:7876 --ticket @{at}/ticket --accept-new-host \\
    --transport native --parallel 1 --cc {cc} --seconds {seconds} --json
"""
FAR = """\
export XDG_CONFIG_HOME={at}/far XDG_STATE_HOME={at}/far
exec {prompt} {packtrain} perf server --listen $PACKTRAIN_FAR:7876 --ticket-file {at}/ticket >/dev/null
"""


def measure(cell, options):
    with tempfile.TemporaryDirectory() as at:
        scenario = Path(at) / "cell.toml"
        scenario.write_text(SCENARIO.format(**cell))
        words = dict(cell, at=at, prompt=PROMPT, packtrain=options.packtrain)
        command = [options.packtrain, "emulate", "--topology", str(scenario), "--best-effort",
                   "--json", "--far", FAR.format(**words), "--", "sh", "-c", NEAR.format(**words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    report = lines[-1]
    intervals = [line for line in lines if line["event"] == "interval"]
    intervals = [line for line in intervals if line["from"] >= float(cell["warm_up"])]
    if not intervals:
        raise SystemExit(f"{cell['key']}: {done.stdout}")
    span = intervals[-1]["to"] - intervals[0]["from"]
    goodput = sum(line["bytes"] for line in intervals) * 8 / span
    again = sum(line["retransmitted_bytes"] for line in intervals)
    dropped, late = report["links"][0]["dropped"], report["delay_error"]
    row = [cell["key"], round(goodput), again, dropped["overflow"], dropped["random"],
           round(late["mean_seconds"] * 1e6), round(late["p99_seconds"] * 1e6),
           platform.release(), datetime.date.today()]
    line = ",".join(map(str, row))
    print(line, flush=True)
    return line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packtrain", default="packtrain")
    parser.add_argument("--cells", default="")
    options = parser.parse_args()
    out = HERE / "emulator.csv"
    with open(HERE / "cells.csv") as file:
        cells = [cell for cell in csv.DictReader(file) if options.cells in cell["key"]]
    rows = {}
    if out.exists():
        rows = {line.split(",")[0]: line for line in out.read_text().splitlines()[1:]}
    for cell in cells:
        rows[cell["key"]] = measure(cell, options)
        out.write_text("\n".join([HEAD, *sorted(rows.values())]) + "\n")


main()
