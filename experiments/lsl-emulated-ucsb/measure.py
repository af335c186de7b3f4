#!/usr/bin/env python3
"""Copies over the paper's two paths, directly and over a depot, with real processes on the emulator.

    ./measure.py sizes [--packtrain PATH] [--runs 20] [--lanes 8]     writes sizes.csv
    ./measure.py trace [--packtrain PATH]                             writes trace.csv, as root

Each run is an emulation of its own in which `packtrain cp` copies each size directly and over the depot, one
TCP stream, one after the other in an order of chance. `trace` copies 64 MB and reads the acknowledged bytes of each connection off the emulator's record of packets.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Direct, first and second round trip in ms, and losses of each; sizes in MB.
PATHS = {
    "uf": ((87, 68, 34), (1 / 4000, 1 / 4000, 0), [1, 2, 4, 8, 16, 32, 64, 128]),
    "uiuc": ((70, 46, 45), (1 / 4000, 0, 1 / 4000), [1, 2, 4, 8, 16, 32, 64]),
}
RATE = "622mbit"
# The kernel doubles what it is asked for: 8 MiB a socket. The depot keeps 16 MiB between its two.
BUFFER, POOL = "4MiB", "17MiB"
AT, VIA = "10.77.0.2:7876", "10.77.0.3:7879"


def topology(path, seed):
    rtts, losses, _ = PATHS[path]
    text = f'duration = "1s"\nseed = {seed}\n'
    for (a, b), rtt, loss in zip([("near", "far"), ("near", "depot"), ("depot", "far")], rtts, losses):
        text += (f'[[link]]\nname = "{a}-{b}"\nfrom = "{a}"\nto = "{b}"\nrate = "{RATE}"\nrtt = "{rtt}ms"\nqueue = "1bdp"\n'
                 + (f"loss = {loss}\nreverse = {{ loss = 0 }}\n" if loss else ""))
    return text


def emulate(args, path, cc, seed, script, *more):
    """Runs a script on `near`, a server on `far` and a depot between; gives the emulator's report."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        environment = dict(os.environ, XDG_CONFIG_HOME=f"{folder}/config", XDG_STATE_HOME=f"{folder}/state")
        key = subprocess.run([args.packtrain, "key", "show"], env=environment, capture_output=True, text=True, check=True)
        (folder / "keys").write_text(key.stdout)
        (folder / "t.toml").write_text(topology(path, seed))
        (folder / "root").mkdir()
        (folder / "run.sh").write_text(f"sleep 1\ncd {folder}\n" + script)
        own = lambda name: f"XDG_CONFIG_HOME={folder}/{name}c XDG_STATE_HOME={folder}/{name}s exec {args.packtrain}"
        keys = f"--authorized-keys {folder}/keys"
        command = [args.packtrain, "emulate", "--topology", f"{folder}/t.toml", "--on", "near", "--best-effort", "--json", *more,
                   "--start", f"far={own('f')} serve --listen 0.0.0.0:7876 --root {folder}/root {keys} --history none",
                   "--start", f"depot={own('d')} depot --listen 0.0.0.0:7879 --tcp-cc {cc} --tcp-buffer {BUFFER} --pool {POOL}"
                   f" --sessions 8 --allow 10.77.0.0/24 {keys}",
                   "--", "sh", f"{folder}/run.sh"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        if ran.returncode or not lines:
            raise RuntimeError(ran.stdout + ran.stderr)
        return [json.loads(line) for line in lines]
    finally:
        shutil.rmtree(folder)


def copy(args, cc, size, via, name):
    over = f"--via {VIA}" if via else ""
    return (f"head -c {size}000000 /dev/urandom > big\n"
            f"{args.packtrain} cp --json --no-resume --accept-new-host --history none --transport tcp --streams 1 --tcp-cc {cc}"
            f" --tcp-buffer {BUFFER} {over} big pt://{AT}/{name} 2>>err | tail -1\nrm -f root/{name}\n")


def one_run(args, path, cc, run):
    # No two meet the same losses, and none of a size always comes after the same.
    seed = run + 1000 * list(PATHS).index(path) + 500 * (cc == "cubic")
    jobs = [(size, way) for size in PATHS[path][2] for way in ("direct", "depot")]
    random.Random(seed).shuffle(jobs)
    script = "".join(copy(args, cc, size, way == "depot", f"{size}") for size, way in jobs)
    told = [line for line in emulate(args, path, cc, seed, script) if line.get("event") == "done"]
    report = told.pop()
    late = max(link["lateness_p99_us"] for link in report["links"])
    rows = []
    for done, (size, way) in zip(told, jobs, strict=True):
        if not done["ok"]:
            raise RuntimeError(done)
        rows.append([path, cc, run, size, way, f"{done['seconds']:.3f}", f"{8 * size / done['seconds']:.3f}", f"{late:.0f}"])
    print(path, cc, run, *(f"{row[3]} {row[4]} {row[6]}," for row in rows), flush=True)
    return rows


def sizes(args):
    jobs = [(path, cc, run) for run in range(1, args.runs + 1) for path in PATHS for cc in ("reno", "cubic")]
    with concurrent.futures.ThreadPoolExecutor(args.lanes) as lanes:
        rows = sum(lanes.map(lambda job: one_run(args, *job), jobs), [])
    write("sizes.csv", ["path", "congestion", "run", "megabytes", "way", "seconds", "throughput_mbps", "lateness_p99_us"], sorted(rows))


def write(name, head, rows):
    with open(HERE / name, "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *rows])


def acknowledged(pcap):
    """(seconds, bytes acknowledged) of each connection to a server or depot, by (client, server) address."""
    data = Path(pcap).read_bytes()
    nano, at, flows = struct.unpack("<I", data[:4])[0] == 0xA1B23C4D, 24, {}
    link = struct.unpack("<I", data[20:24])[0]
    skip = 14 if link == 1 else 0
    while at < len(data):
        seconds, part, kept, _ = struct.unpack("<IIII", data[at:at + 16])
        packet, at = data[at + 16 + skip:at + 16 + kept], at + 16 + kept
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != 6:
            continue
        head = (packet[0] & 15) * 4
        source, target, number, ack = struct.unpack(">HHII", packet[head:head + 12])
        flags, now = packet[head + 13], seconds + part / (1e9 if nano else 1e6)
        ends = (packet[12:16], source), (packet[16:20], target)
        if flags & 2 and not flags & 16:
            flows[ends] = {"first": number, "begun": now, "seen": [(now, 0)]}
        elif flags & 16 and (flow := flows.get(ends[::-1])):
            done = (ack - flow["first"] - 1) & 0xFFFFFFFF
            if flow["seen"][-1][1] < done < 1 << 31:
                flow["seen"].append((now, done))
    return flows


def capacity(args):
    """Bytes that the depot takes for an end that has stopped to read: what it gives away after that is subtracted."""
    # The first sublink is clean on this path, so that it fills the depot at once.
    stop = (copy(args, "cubic", 200, True, "c").replace(" | tail -1\nrm", f" &\nsleep 1.2\npkill -STOP -f \"^{args.packtrain} serve.*$PWD/root\"\n"
            f"sleep 4\npkill -KILL -f \"^{args.packtrain} cp .*10.77.0.2:7876/c\"\npkill -KILL -f \"^{args.packtrain} serve.*$PWD/root\"\nrm"))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        emulate(args, "uiuc", "cubic", 1, stop, "--record", f"{folder}/r")
        flows = acknowledged(f"{folder}/r.pcap")
    most = lambda ends: max(flow["seen"][-1][1] for ((a, _), (b, _)), flow in flows.items() if (a[3], b[3]) == ends)
    return most((1, 3)) - most((3, 2))


def trace(args):
    kept = capacity(args)
    print(f"the depot keeps {kept} bytes")
    (HERE / "capacity.csv").write_text(f"bytes\n{kept}\n")
    rows = []
    for path, names in (("uf", ("ucsb-houston", "houston-uf")), ("uiuc", ("ucsb-denver", "denver-uiuc"))):
        for cc in ("reno", "cubic"):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                emulate(args, path, cc, 1, copy(args, cc, 64, False, "d") + "sleep 0.5\n" + copy(args, cc, 64, True, "v"),
                        "--record", f"{folder}/r")
                flows = acknowledged(f"{folder}/r.pcap")
            # Of each way the connection that carried the file.
            for name, ends in [("direct", (1, 2)), (names[0], (1, 3)), (names[1], (3, 2))]:
                here = [flow for ((a, _), (b, _)), flow in flows.items() if (a[3], b[3]) == ends]
                flow = max(here, key=lambda flow: flow["seen"][-1][1])
                print(path, cc, name, flow["seen"][-1], len(here))
                begun, last = (flow["begun"] if ends != (3, 2) else first), -1.0
                first = flow["begun"]
                for now, done in flow["seen"]:
                    if now - last >= 0.02 or done == flow["seen"][-1][1]:
                        last = now
                        rows.append([path, cc, name, f"{now - begun:.3f}", done])
    write("trace.csv", ["path", "congestion", "connection", "seconds", "acknowledged"], rows)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=["sizes", "trace"])
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--runs", type=int, default=20)
    words.add_argument("--lanes", type=int, default=8)
    args = words.parse_args()
    sizes(args) if args.what == "sizes" else trace(args)


if __name__ == "__main__":
    main()
