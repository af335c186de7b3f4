#!/usr/bin/env python3
"""Measures the experiments of section VI with this kernel's TCP and `packtrain perf --transport udt` over
`packtrain emulate`, and writes emulator.csv.

    ./measure.py [--packtrain PATH] [--cells PATTERN] [--rate 1gbit]

Look at late_p99_us: an emulator or an end that is late by more than a few packets is the machine's doing.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = ("key,rate,goodput_bps,udt_bps,udt_repeated_bytes,overflow,random,late_mean_us,late_p99_us,"
        "kernel,date")
VARIANTS = ["udt:paper", "udt:grid", "udt:ns2-2003", "udt:udt4"]
TCPS = ["reno", "cubic", "bbr"]
# One TCP reached 30 Mbit/s in the paper's network: with 1448 bytes and 110 ms that is Reno at this loss.
LOSS = 1.8e-5
SCENARIO = """\
name = "udt-2003-real"
title = "{key}"
duration = "100s"
seed = 1

[[link]]
name = "near-far"
from = "near"
to = "far"
rate = "{rate}"
rtt = "{rtt}"
queue = "{queue}"
loss = {loss}
seed = 1
reverse = {{ loss = 0, queue = "1000000 packets", seed = 1 }}
"""
PROMPT = "$(chrt -f 10 true 2>/dev/null && echo chrt -f 10)"
FAR = """\
export XDG_CONFIG_HOME={at}/far XDG_STATE_HOME={at}/far
python3 {here}/tcp.py sink &
exec {prompt} {packtrain} perf server --listen $PACKTRAIN_FAR:7876 --ticket-file {at}/ticket >/dev/null
"""
UDT = """\
export XDG_CONFIG_HOME={at}/near XDG_STATE_HOME={at}/near
until [ -s {at}/ticket ]; do sleep 0.1; done
{prompt} {packtrain} perf client $PACKTRAIN_FAR:7876 --ticket @{at}/ticket --accept-new-host \\
    --transport udt --parallel {flows} --cc {cc} --seconds {seconds} --json"""


def cells():
    """Key, round trip, queue, loss, UDT's controller or none, its flows and seconds, TCP's words."""
    for rtt, queue in (("40us", "250 packets"), ("110ms", "1bdp, at least 10 packets")):
        for cc in VARIANTS:
            yield f"one {rtt} {cc}", rtt, queue, 0, cc, 1, 20, None
    wan = ("110ms", "1bdp, at least 10 packets", LOSS)
    for tcp in TCPS:
        words = f"long {tcp} 2 40 10"
        yield f"two {tcp} alone", *wan, None, 0, 0, words
        for cc in ["udt:grid"]:
            yield f"two {tcp} beside two {cc}", *wan, cc, 2, 45, words
    for flows in (0, 1, 4, 10):
        words = "short cubic 500 1000000 10"
        cc = "udt:grid" if flows else None
        yield f"500 short cubic beside {flows} udt:grid", *wan, cc, flows, 300, words


def measure(cell, options):
    key, rtt, queue, loss, cc, flows, seconds, tcp = cell
    with tempfile.TemporaryDirectory() as at:
        scenario = Path(at) / "cell.toml"
        scenario.write_text(SCENARIO.format(key=key, rate=options.rate, rtt=rtt, queue=queue, loss=loss))
        words = dict(at=at, prompt=PROMPT, packtrain=options.packtrain, here=HERE, cc=cc, flows=flows,
                     seconds=seconds)
        near = UDT.format(**words) if cc else "sleep 2"
        if tcp:
            # The flows beside it have passed their start when TCP begins.
            near = f"({near}) & peer=$!; sleep 4; python3 {HERE}/tcp.py {tcp}; kill -INT $peer; wait"
        command = [options.packtrain, "emulate", "--topology", str(scenario), "--best-effort", "--json",
                   "--far", FAR.format(**words), "--", "sh", "-c", near]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    report = lines[-1]
    intervals = [line for line in lines if line.get("event") == "interval" and line["from"] >= 5]
    flow = [line for line in lines if line.get("event") == "tcp"]
    if not (flow if tcp else intervals):
        raise SystemExit(f"{key}: {done.stdout}")
    span = intervals[-1]["to"] - intervals[0]["from"] if intervals else 1
    udt = round(sum(line["bytes"] for line in intervals) * 8 / span)
    again = sum(line["retransmitted_bytes"] for line in intervals)
    dropped, late = report["links"][0]["dropped"], report["delay_error"]
    goodput = flow[0]["goodput_bps"] if tcp else udt
    row = [key, options.rate, goodput, udt, again, dropped["overflow"], dropped["random"],
           round(late["mean_seconds"] * 1e6), round(late["p99_seconds"] * 1e6), platform.release(),
           datetime.date.today()]
    line = ",".join(map(str, row))
    print(line, flush=True)
    return line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packtrain", default="packtrain")
    parser.add_argument("--cells", default="")
    parser.add_argument("--rate", default="1gbit")
    options = parser.parse_args()
    out = HERE / "emulator.csv"
    rows = {}
    if out.exists():
        rows = {tuple(line.split(",")[:2]): line for line in out.read_text().splitlines()[1:]}
    for cell in cells():
        if options.cells in cell[0]:
            rows[cell[0], options.rate] = measure(cell, options)
            out.write_text("\n".join([HEAD, *sorted(rows.values())]) + "\n")


main()
