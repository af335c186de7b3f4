#!/usr/bin/env python3
"""Compares the two forms of forwarding of the LSL paper, and `--via auto`, with real processes and the kernel's TCP, on the emulator.

    ./measure.py [--packtrain PATH] [--seeds 1,2,3,4,5] [--megabytes 30] [--out runs.csv]       # as root
    ./measure.py --table

Each seed is one emulation. In it each form copies once, all at the same time, each over its own row of hosts: n - a - b - f. A row of
the result is one `packtrain cp` with an empty history:

    direct  without depots
    source  `--via A,B`: the header carries the whole route
    table   `--via A --by-destination`: the header carries the destination, and A's table leads to B. `packtrain route --tables` makes the
            tables from the rates that one stream has on each hop (Mathis' law)
    auto    `--via auto --depots A,B`: the depots report the round trip between them
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FORMS = ["direct", "source", "table", "auto"]
HOSTS = "nabf"
RATE, RTT, LOSS, CC, STREAMS = 100, 20, 5e-4, "reno", 2
BEGIN, END = "<!-- numbers: written by measure.py --table -->", "<!-- end of numbers -->"


def mathis(hops):
    """Mbit/s of one stream over so many hops in a row."""
    return min(RATE, 1448 * 8 / 1e6 / (hops * RTT / 1e3) * 1.22 / (hops * LOSS) ** 0.5)


def matrix(address):
    """The table of `packtrain route`: what one stream gets between any two hosts of a row."""
    names = [address[host] for host in HOSTS]
    lines = ["," + ",".join(names)]
    for i, name in enumerate(names):
        lines.append(name + "," + ",".join("" if i == j else f"{mathis(abs(i - j)):.2f}" for j in range(len(names))))
    return "\n".join(lines) + "\n"


def emulate(args, seed):
    folder = tempfile.mkdtemp(dir="/dev/shm")
    environment = dict(os.environ, XDG_CONFIG_HOME=f"{folder}/config", XDG_STATE_HOME=f"{folder}/state")
    keys = subprocess.run([args.packtrain, "key", "show"], env=environment, capture_output=True, text=True, check=True)
    Path(f"{folder}/keys").write_text(keys.stdout)
    Path(f"{folder}/big").write_bytes(os.urandom(args.megabytes * 10**6))
    text, starts, number = f'duration = "1s"\nseed = {seed}\n', [], 0
    for row, form in enumerate(FORMS):
        address = {}
        for host in HOSTS:
            number += 1
            address[host] = f"10.77.0.{number}"
        for hop, (one, other) in enumerate(zip(HOSTS, HOSTS[1:])):
            text += (f'[[link]]\nname = "{form}{one}{other}"\nfrom = "{form}{one}"\nto = "{form}{other}"\nrate = "{RATE}mbit"\nrtt = "{RTT}ms"\n'
                     f'queue = "1bdp"\nbdp_rtt = "60ms"\nloss = {LOSS}\nseed = {seed * 1000 + row * 10 + hop}\n')
        place = {host: f"{address[host]}:7879" for host in "ab"}
        own = lambda host: f"XDG_CONFIG_HOME={folder}/{form}{host}c XDG_STATE_HOME={folder}/{form}{host}s exec {args.packtrain}"
        os.mkdir(f"{folder}/{form}root")
        starts += ["--start", f"{form}f={own('f')} serve --listen 0.0.0.0:7876 --root {folder}/{form}root --authorized-keys {folder}/keys"
                   " --history none"]
        Path(f"{folder}/{form}.csv").write_text(matrix(address))
        subprocess.run([args.packtrain, "route", "--matrix", f"{folder}/{form}.csv", "--tables", f"{folder}/{form}tables"], check=True,
                       stdout=subprocess.DEVNULL)
        for host, peer in [("a", "b"), ("b", "a")]:
            kept = Path(f"{folder}/{form}{host}s/packtrain")
            kept.mkdir(parents=True)
            # What the depots measured of each other, as an earlier run of theirs kept it.
            sample = dict(at=int(time.time()) * 10**9, rate=int(mathis(1) * 1e6), streams=1, lost_ppm=int(LOSS * 1e6),
                          min_rtt=RTT * 10**6, probed=True)
            (kept / "depot-7879.json").write_text(json.dumps([dict(to=place[peer], samples=[sample])]))
            table = Path(f"{folder}/{form}tables/{address[host]}.routes")
            routes = f" --routes {table}" if form == "table" and table.exists() else ""
            starts += ["--start", f"{form}{host}={own(host)} depot --listen 0.0.0.0:7879 --tcp-cc {CC} --allow 10.77.0.0/16"
                       f" --authorized-keys {folder}/keys{routes}"]
        via = dict(direct=[], source=["--via", f"{place['a']},{place['b']}"], table=["--via", place["a"], "--by-destination"],
                   auto=["--via", "auto", "--depots", f"{place['a']},{place['b']}"])[form]
        words = [args.packtrain, "cp", "--json", "--accept-new-host", "--transport", "tcp", "--streams", str(STREAMS), "--tcp-cc", CC, *via,
                 f"{folder}/big", f"pt://{address['f']}:7876/copy"]
        Path(f"{folder}/{form}.sh").write_text(f"sleep 2\nXDG_STATE_HOME={folder}/{form}s {' '.join(words)} > {folder}/{form}.part"
                                               f" 2> {folder}/{form}.err; mv {folder}/{form}.part {folder}/{form}.json\n")
        starts += ["--start", f"{form}n=exec sh {folder}/{form}.sh"]
    Path(f"{folder}/t.toml").write_text(text)
    wait = " && ".join(f"test -e {folder}/{form}.json" for form in FORMS)
    command = [args.packtrain, "emulate", "--topology", f"{folder}/t.toml", "--on", f"{FORMS[0]}n", "--best-effort", "--json", *starts,
               "--", "sh", "-c", f"until {wait}; do sleep 0.2; done"]
    emulation = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in emulation.stdout.splitlines() if line.startswith("{")]
    if not lines or "links" not in json.loads(lines[-1]):
        sys.exit(emulation.stdout + emulation.stderr)
    links = json.loads(lines[-1])["links"]
    late = max(link["lateness_p99_us"] for link in links)
    for form in FORMS:
        told = [json.loads(line) for line in Path(f"{folder}/{form}.json").read_text().splitlines() if line.startswith("{")]
        done = [line for line in told if line.get("event") == "done"]
        if not done or not done[-1]["ok"]:
            sys.exit(f"{form}: {Path(f'{folder}/{form}.err').read_text()}")
        ways = (done[-1].get("streams") or {}).get("ways", [])
        total = max(1, sum(way["bytes"] for way in ways))
        chain = sum(way["bytes"] for way in ways if "," in way["way"]) / total
        same = Path(f"{folder}/{form}root/copy").read_bytes() == Path(f"{folder}/big").read_bytes()
        if not same:
            sys.exit(f"{form}: the copy differs")
        yield f"{seed},{form},{done[-1]['seconds']:.3f},{chain:.3f},{late:.0f}"
    subprocess.run(["rm", "-rf", folder], check=True)


def table():
    rows = [line.split(",") for line in (HERE / "runs.csv").read_text().splitlines()[1:]]
    of = lambda form, column: [float(row[column]) for row in rows if row[1] == form]
    lines = ["| form | copies | seconds: median | least | most | faster than direct | bytes over both depots, of those that `cp` counts |",
             "|---|---|---|---|---|---|---|"]
    direct = statistics.median(of("direct", 2))
    for form in FORMS:
        seconds = of(form, 2)
        chain = f"{statistics.median(of(form, 3)):.0%}" if form == "auto" else "-"
        lines.append(f"| {form} | {len(seconds)} | {statistics.median(seconds):.1f} | {min(seconds):.1f} | {max(seconds):.1f} |"
                     f" {direct / statistics.median(seconds):.2f} | {chain} |")
    readme = HERE / "README.md"
    text = readme.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    readme.write_text(text[:begin] + "\n" + "\n".join(lines) + "\n" + text[end:])


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--seeds", default="1,2,3,4,5")
    words.add_argument("--megabytes", type=int, default=30)
    words.add_argument("--out", type=Path, default=HERE / "runs.csv")
    words.add_argument("--table", action="store_true")
    args = words.parse_args()
    if args.table:
        return table()
    rows = ["seed,form,seconds,chain,late_us"]
    for seed in map(int, args.seeds.split(",")):
        for row in emulate(args, seed):
            rows.append(row)
            print(row, flush=True)
    args.out.write_text("\n".join(rows) + "\n")
    table()


if __name__ == "__main__":
    main()
