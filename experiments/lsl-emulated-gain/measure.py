#!/usr/bin/env python3
"""Measures what depots gain, with real processes and the kernel's TCP, on the emulator.

    ./measure.py [--packtrain PATH] [--seconds 120] [--skip 30] [--seeds 1,2,3] [--megabytes 1600]
                 [--out FILE] [--set lossy|far|long|full|clean]

Chains of 1 to 4 equal segments with the same round trip and loss in all; a depot on every host between. Chains of one
congestion control run at the same time, each over links of its own. One `packtrain cp` of one TCP stream a chain; bytes that the
receiver has confirmed are read off its progress, those of the first `--skip` seconds are left out (and kept in another column).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# What is measured: congestion controls, round trip (ms), loss in all, rate.
SETS = {
    "lossy": [("reno", 100, 1e-3, "1gbit"), ("cubic", 200, 1e-4, "1gbit")],
    "far": [("cubic", 300, 5e-4, "1gbit")],
    "long": [("cubic", 400, 1e-3, "1gbit")],
    "full": [("bbr", 100, 1e-4, "100mbit")],
    "clean": [("reno", 100, 0, "100mbit"), ("cubic", 100, 0, "100mbit"), ("bbr", 100, 0, "100mbit")],
}
SEGMENTS = [1, 2, 3, 4]


def near(packtrain, seconds, out, arguments):
    """Runs one copy for so long; writes (seconds, bytes) of each of its progress lines."""
    command = [packtrain, "cp", "--progress", "json", "--no-resume", "--accept-new-host", "--transport", "tcp",
               "--streams", "1", *arguments]
    copy = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    begun, seen, said = time.monotonic(), [], []
    for line in copy.stderr:
        now = time.monotonic() - begun
        try:
            seen.append((now, json.loads(line)["bytes"]))
        except (ValueError, KeyError):
            said.append(line)
        if now > seconds:
            break
    copy.kill()
    Path(out).write_text(json.dumps({"seen": seen, "said": said}))


def at(seen, second):
    """Bytes at a time, by interpolation."""
    before = (0.0, 0)
    for point in seen:
        if point[0] >= second:
            share = (second - before[0]) / (point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def run(args, cc, rtt, loss, rate, seed):
    folder = tempfile.mkdtemp(dir="/dev/shm")
    topology, starts, hosts = "", [], 0
    environment = dict(os.environ, XDG_CONFIG_HOME=f"{folder}/config", XDG_STATE_HOME=f"{folder}/state")
    Path(f"{folder}/keys").write_text(subprocess.run([args.packtrain, "key", "show"], env=environment,
                                                     capture_output=True, text=True, check=True).stdout)
    os.mkdir(f"{folder}/root")
    with open(f"{folder}/big", "wb") as big:
        # Nothing that is sent shorter than it is, and more than any of them sends.
        for _ in range(args.megabytes):
            big.write(os.urandom(1 << 20))
    own = lambda name: f"XDG_CONFIG_HOME={folder}/{name}c XDG_STATE_HOME={folder}/{name}s exec"
    for k in SEGMENTS:
        names = [f"k{k}h{i}" for i in range(k + 1)]
        addresses = [f"10.77.0.{hosts + 1 + i}" for i in range(k + 1)]
        hosts += k + 1
        for a, b in zip(names, names[1:]):
            topology += (f'[[link]]\nname = "{a}{b}"\nfrom = "{a}"\nto = "{b}"\nrate = "{rate}"\nrtt = "{rtt / k}ms"\n'
                         f'queue = "1bdp"\nbdp_rtt = "{rtt}ms"\n' + (f"loss = {loss / k}\n" if loss else ""))
        for name in names[1:-1]:
            starts += ["--start", f"{name}={own(name)} {args.packtrain} depot --listen 0.0.0.0:7879 --tcp-cc {cc}"
                       f" --allow 10.77.0.0/24 --authorized-keys {folder}/keys"]
        starts += ["--start", f"{names[-1]}={own(names[-1])} {args.packtrain} serve --listen 0.0.0.0:7876"
                   f" --root {folder}/root --authorized-keys {folder}/keys --history none"]
        via = ["--via", ",".join(f"{a}:7879" for a in addresses[1:-1])] if k > 1 else []
        words = ["--tcp-cc", cc, "--history", "none", *via, f"{folder}/big", f"pt://{addresses[-1]}:7876/k{k}"]
        starts += ["--start", f"{names[0]}=sleep 2; XDG_STATE_HOME={folder}/n{k} exec python3 {os.path.abspath(__file__)} --near {args.seconds}"
                   f" {folder}/{k}.json --packtrain {args.packtrain} -- {' '.join(words)}"]
    Path(f"{folder}/t.toml").write_text(f'duration = "1s"\nseed = {seed}\n' + topology)
    wait = " && ".join(f"test -s {folder}/{k}.json" for k in SEGMENTS)
    command = [args.packtrain, "emulate", "--topology", f"{folder}/t.toml", "--on", "k1h0",
               "--best-effort", "--json", *starts, "--", "sh", "-c", f"until {wait}; do sleep 0.5; done"]
    emulation = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in emulation.stdout.splitlines() if line.startswith("{")]
    if not lines or "links" not in json.loads(lines[-1]):
        sys.exit(emulation.stdout + emulation.stderr)
    report, rows = json.loads(lines[-1]), []
    late = max(link["lateness_p99_us"] for link in report["links"])
    for k in SEGMENTS:
        told = json.loads(Path(f"{folder}/{k}.json").read_text())
        rates = [8e-6 * (at(told["seen"], args.seconds) - at(told["seen"], begin)) / (args.seconds - begin)
                 for begin in (args.skip, 0)]
        if told["said"]:
            print(*told["said"], file=sys.stderr)
        rows.append(f"{cc},{rtt},{loss:g},{rate},{k},{seed},{rates[0]:.3f},{rates[1]:.3f},{late:.0f}")
        print(rows[-1], flush=True)
    subprocess.run(["rm", "-rf", folder], check=True)
    return rows


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--seconds", type=float, default=120)
    words.add_argument("--skip", type=float, default=30)
    words.add_argument("--seeds", default="1,2,3")
    words.add_argument("--set", choices=SETS, default="lossy")
    words.add_argument("--megabytes", type=int, default=1600)
    words.add_argument("--out", type=Path)
    words.add_argument("--near", nargs=2, metavar=("SECONDS", "OUT"), help=argparse.SUPPRESS)
    words.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    args = words.parse_args()
    if args.near:
        return near(args.packtrain, float(args.near[0]), args.near[1], args.arguments)
    rows = [row for seed in args.seeds.split(",") for one in SETS[args.set] for row in run(args, *one, int(seed))]
    out = args.out or Path(__file__).resolve().parent / f"{args.set}.csv"
    out.write_text("congestion,rtt_ms,loss,rate,segments,seed,steady_mbps,whole_mbps,lateness_p99_us\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
