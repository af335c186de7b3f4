#!/usr/bin/env python3
"""Measures every cell of cells.csv with this kernel's TCP over `packtrain emulate` and writes
kernel.csv and curves/.

    ./measure.py [--packtrain PATH] [--jobs 2] [--cells PATTERN] [--super-packets]

Needs `ip` (iproute2) on the way, and rights to be on time: without root, on a busy machine, the
ends are preempted and the numbers mean little; look at late_p99_us. --super-packets leaves the
kernel its segmentation offload (columns of kernel-offload.csv).
"""
import argparse
import concurrent.futures
import csv
import datetime
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = ("key,goodput_bps,loss_events,timeouts,repeated_packets,sent_packets,mean_rtt_us,"
        "overflow,random,late_mean_us,late_p99_us,kernel,date")
# The cells whose window curves are kept, for so many seconds after the warm-up.
CURVES = {"reno/20mbit/20ms/queue0.5", "cubic/20mbit/20ms/queue0.5", "bbr/20mbit/20ms/queue1",
          "reno/20mbit/20ms/loss0.005"}
CURVE_SECONDS = 40

# The queue on the way back never fills; seeds as in crates/sim/tests/kernel_validity.rs.
SCENARIO = """\
name = "kernel-validity"
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


def measure(cell, options):
    curve = HERE / "curves" / (cell["key"].replace("/", "-") + ".txt")
    kept = cell["key"] in CURVES and not options.super_packets
    with tempfile.TemporaryDirectory() as directory:
        scenario = Path(directory) / "cell.toml"
        scenario.write_text(SCENARIO.format(**cell))
        source = ["python3", str(HERE / "source.py"), cell["cc"], cell["seconds"],
                  cell["warm_up"], str(curve) if kept else "-"]
        command = [options.packtrain, "emulate", "--topology", str(scenario), "--per-packet",
                   "--best-effort", "--json", "--far", f"exec python3 {HERE / 'sink.py'}", "--"]
        env = dict(os.environ)
        if options.super_packets:
            env["SUPER_PACKETS"] = "1"
        done = subprocess.run(command + source, env=env, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(lines) < 2:
        raise SystemExit(f"{cell['key']}: {done.stdout}")
    flow, report = lines[0], lines[-1]
    if kept:
        cut(curve, float(cell["warm_up"]))
    dropped, late = report["links"][0]["dropped"], report["delay_error"]
    row = [cell["key"], flow["goodput_bps"], flow["loss_events"], flow["timeouts"],
           flow["repeated_packets"], flow["sent_packets"], flow["mean_rtt_us"],
           dropped["overflow"], dropped["random"], round(late["mean_seconds"] * 1e6),
           round(late["p99_seconds"] * 1e6), platform.release(), datetime.date.today()]
    line = ",".join(map(str, row))
    print(line, flush=True)
    return line


def cut(curve, warm_up):
    lines = curve.read_text().splitlines(keepends=True)
    wanted = lambda line: warm_up <= float(line.split()[0]) < warm_up + CURVE_SECONDS
    curve.write_text("".join(line for line in lines if wanted(line)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packtrain", default="packtrain")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cells", default="")
    parser.add_argument("--super-packets", action="store_true")
    options = parser.parse_args()
    out = HERE / ("kernel-offload.csv" if options.super_packets else "kernel.csv")
    with open(HERE / "cells.csv") as file:
        cells = [cell for cell in csv.DictReader(file) if options.cells in cell["key"]]
    rows = {}
    if out.exists():
        rows = {line.split(",")[0]: line for line in out.read_text().splitlines()[1:]}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(lambda cell: measure(cell, options), cells):
            rows[line.split(",")[0]] = line
            out.write_text("\n".join([HEAD, *sorted(rows.values())]) + "\n")


main()
