#!/usr/bin/env python3
"""Makes the real loss signatures: a paced UDP flow over `packtrain emulate`, beside processes that take the receiver's
processor, or beside kernel TCP and bursts in the bottleneck's queue. What the kernel dropped at the socket
(SO_RXQ_OVFL) is the host's, what else is missing is the network's; where the flow is alone, the emulator's own count
must agree, or the run is left out.

    ./real.py make OUT.jsonl [--packtrain PATH] [--losses PATH] [--only PATTERN] [--repeat N]
    ./real.py list
    ./real.py rivals KIND ...     (started by `make` on the receiver's processor)

Needs root for rivals in real time and for a cgroup. The receiver and its rivals share processor 1, all else has
processor 0. `losses` is `cargo build --release -p packtrain-reproduce --example losses`.
"""
import argparse
import ctypes
import fnmatch
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
MBIT = 1_000_000


def scenarios():
    """Name; rate of the flow, of the link; queue; round trip; rivals; others; buffer; train; per packet."""
    slices = [(3, 2), (10, 1), (10, 7), (30, 3), (100, 1)]
    for rate, buffer in ((200, 212_992), (500, 212_992), (500, 851_968), (800, 425_984), (800, 1_703_936)):
        for ms, most in slices:
            yield dict(name=f"real-cpu-generator/{rate}m/{ms}ms/{most}/{buffer}", rate=rate, link=rate * 2, queue="64MiB",
                       rivals=f"generator {most} {ms}", buffer=buffer)
        for run, every in ((4, 150), (8, 400), (15, 700)):
            yield dict(name=f"real-cpu-realtime/{rate}m/{run}ms/{buffer}", rate=rate, link=rate * 2, queue="64MiB",
                       rivals=f"realtime {run} {every}", buffer=buffer)
        for quota, period in ((60, 10), (60, 50), (80, 100)):
            yield dict(name=f"real-cpu-quota/{rate}m/{quota}of{period}/{buffer}", rate=rate, link=rate * 2, queue="64MiB",
                       quota=(quota, period), buffer=buffer)
    for rate, joined in ((1000, 212_992), (1000, 851_968), (2000, 851_968)):
        for ms, most in slices:
            yield dict(name=f"real-cpu-joined/{rate}m/{ms}ms/{most}/{joined}", rate=rate, link=rate * 2, queue="64MiB",
                       rivals=f"generator {most} {ms}", buffer=joined, train=16, offload=True)
        yield dict(name=f"real-cpu-joined-realtime/{rate}m/{joined}", rate=rate, link=rate * 2, queue="64MiB",
                   rivals="realtime 8 300", buffer=joined, train=16, offload=True)
    for excess in (0.001, 0.003, 0.01, 0.02, 0.05):
        for train in (1, 8, 44):
            yield dict(name=f"real-net-self/{excess}/{train}", rate=300, link=300 / (1 + excess), queue="60packets",
                       train=train, alone=True, late="20ms")
        yield dict(name=f"real-net-self-offload/{excess}", rate=1000, link=1000 / (1 + excess), queue="100KiB", train=16,
                   offload=True, alone=True, late="20ms")
    for cc in ("cubic", "reno", "bbr"):
        for flows, rate in ((1, 100), (1, 40), (4, 100), (8, 40)):
            yield dict(name=f"real-net-tcp/{cc}/{flows}/{rate}m", rate=rate, link=300, queue="1bdp", rtt="10ms",
                       tcp=(cc, flows))
        for flows, rate, queue in ((4, 150, 60), (8, 100, 40), (16, 200, 100), (12, 60, 150)):
            yield dict(name=f"real-net-tcp-shallow/{cc}/{flows}/{rate}m/{queue}", rate=rate, link=300,
                       queue=f"{queue}packets", rtt="4ms", tcp=(cc, flows))
        yield dict(name=f"real-net-tcp-offload/{cc}/4", rate=300, link=1000, queue="0.5bdp", rtt="20ms", tcp=(cc, 4),
                   offload=True, train=16)
    for train, burst, queue in ((44, 60, 30), (44, 120, 40), (350, 40, 300), (700, 60, 500)):
        for rate in (100, 200):
            yield dict(name=f"real-net-bursts/{train}/{burst}m/{rate}m", rate=rate, link=300, queue=f"{queue}packets",
                       bursts=(train, burst))
    for loss in (2e-4, 1e-3, 1e-2):
        yield dict(name=f"real-link/{loss}", rate=300, link=600, queue="64MiB", loss=loss, alone=True)
    for cc, ms, most in (("cubic", 10, 3), ("cubic", 30, 1), ("reno", 3, 7), ("bbr", 10, 3)):
        yield dict(name=f"real-hybrid-tcp/{cc}/{ms}ms", rate=100, link=300, queue="1bdp", rtt="10ms", tcp=(cc, 4),
                   rivals=f"generator {most} {ms}", buffer=106_496)
    for excess in (0.001, 0.005):
        yield dict(name=f"real-hybrid-self/{excess}", rate=300, link=300 / (1 + excess), queue="60packets", late="20ms",
                   rivals="generator 3 10", buffer=212_992)


def attr(slice_ms):
    """Asks for slices of this length (Linux 6.12 and later take the runtime of SCHED_OTHER for it)."""
    words = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, int(slice_ms * 1e6), 0, 0)
    ctypes.CDLL(None).syscall(314, 0, words, 0)


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(1000):
            pass


def rivals(kind, numbers):
    """The paper's generator of processes, four times as fast; or one of high priority that runs now and then."""
    parent, rng = os.getppid(), random.Random()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if kind == "realtime":
        run, every = (float(n) / 1e3 for n in numbers)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while os.getppid() == parent:
            time.sleep(rng.expovariate(1 / every))
            spin(run * rng.uniform(0.5, 1.5))
        return
    most, slice_ms, fast = int(numbers[0]), float(numbers[1]), float(numbers[2]) if len(numbers) > 2 else 4.0
    while os.getppid() == parent:
        alive = rng.uniform(1, 7) / fast
        for _ in range(rng.randint(0, most)):
            if os.fork() == 0:
                attr(slice_ms)
                spin(alive)
                os._exit(0)
        time.sleep(alive + rng.uniform(0, 20) / fast)


def quota_cgroup(quota, period):
    """A cgroup (version 1 or 2) that has `quota` percent of a processor, refilled each `period` ms."""
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    group = (old if old.is_dir() else new) / f"losses-{os.getpid()}"
    group.mkdir()
    us = period * 1000
    if old.is_dir():
        (group / "cpu.cfs_period_us").write_text(str(us))
        (group / "cpu.cfs_quota_us").write_text(str(us * quota // 100))
    else:
        (group / "cpu.max").write_text(f"{us * quota // 100} {us}")
    return group


def nice(s):
    """Above whatever else the machine does, where the rivals alone are to be the contention."""
    return "nice -n -15" if s.get("above") else "env"


def far_script(args, s, at, out, size):
    lines = ["set -e"]
    if s.get("tcp"):
        lines.append("taskset -c 0 iperf3 -s >/dev/null &")
    if s.get("bursts"):
        lines.append(f"taskset -c 0 {args.losses} recv --at $PACKTRAIN_FAR:7001 --packets 100000000 --windows 1000000000"
                     f" --buffer 8000000 --out /dev/null >/dev/null &")
    if s.get("rivals"):
        lines.append(f"{nice(s)} taskset -c 1 {sys.executable} {HERE} rivals {s['rivals']} &")
    if s.get("group"):
        where = "cgroup.procs" if (s["group"] / "cgroup.procs").exists() else "tasks"
        lines.append(f"echo $$ > {s['group']}/{where}")
    lines.append(f"exec {nice(s)} taskset -c 1 {args.losses} recv --at $PACKTRAIN_FAR:7000 --packets {s['packets']}"
                 f" --windows {args.windows} --buffer {s.get('buffer', 8_000_000)} --train {s.get('train', 1)}"
                 f" --rate {int(s['rate'] * MBIT)}bit --size {size} --family {s['name'].split('/')[0]}"
                 f" --all {str(args.all).lower()} --out {out} > {at}/told")
    return "\n".join(lines) + "\n"


def near_script(args, s, size):
    lines, seconds = ["sleep 0.7"], s["packets"] * (size + 28) * 8 / s["rate"] / MBIT
    if s.get("tcp"):
        cc, flows = s["tcp"]
        lines.append(f"iperf3 -c $PACKTRAIN_FAR -t {int(seconds) + 4} -P {flows} -C {cc} >/dev/null & sleep 1.5")
    if s.get("bursts"):
        train, rate = s["bursts"]
        count = int((seconds + 2) * rate * MBIT / 1500 / 8)
        lines.append(f"{args.losses} send --at $PACKTRAIN_FAR:7001 --packets {count} --rate {rate}mbit --size 1472"
                     f" --train {train} & sleep 0.3")
    lines.append(f"{args.losses} send --at $PACKTRAIN_FAR:7000 --packets {s['packets']} --rate {int(s['rate'] * MBIT)}bit"
                 f" --size {size} --train {s.get('train', 1)} --late {s.get('late', '500us')}")
    lines.append("sleep 2.5")
    return "\n".join(lines) + "\n"


def play(args, s, out):
    size = 1024
    windows = min(int(n) for n in args.windows.split(","))
    seconds = args.seconds
    s["packets"] = max(int(seconds * s["rate"] * MBIT / 8 / (size + 28)), windows + 3000)
    if s.get("quota"):
        s["group"] = quota_cgroup(*s["quota"])
    try:
        with tempfile.TemporaryDirectory() as at:
            records = f"{at}/records"
            Path(f"{at}/far.sh").write_text(far_script(args, s, at, records, size))
            Path(f"{at}/near.sh").write_text(near_script(args, s, size))
            command = nice(s).split() + ["taskset", "-c", "0", args.packtrain, "emulate", "--rate", f"{int(s['link'] * MBIT)}bit",
                       "--rtt", s.get("rtt", "10ms"), "--queue", s["queue"], "--loss", str(s.get("loss", 0)),
                       "--best-effort", "--json", "--far", f"sh {at}/far.sh"]
            command += [] if s.get("offload") else ["--per-packet"]
            done = subprocess.run(command + ["--", "sh", f"{at}/near.sh"], capture_output=True, text=True,
                                  timeout=args.seconds * 10 + 60)
            report = json.loads(done.stdout.splitlines()[-1])
            told = Path(f"{at}/told").read_text().strip()
            if not told:
                return f"no word of the receiver: {done.stderr[-300:]}"
            told = json.loads(told)
            dropped = report["links"][0]["dropped"]
            network = dropped["overflow"] + dropped["random"] + dropped["early"]
            missing = told["packets"] - told["received"]
            # Where datagrams come joined, the kernel counts buffers: of what is missing, the network's is known.
            joined = s.get("offload", False)
            other = missing - told["host_drops"] - network if s.get("alone") and not joined else 0
            text = f"missing {missing}, host {told['host_drops']}, all drops of the link {network}"
            if abs(other) > max(2, 0.01 * missing):
                return f"LEFT OUT: {text}: {other} unexplained"
            lines = Path(records).read_text().splitlines() if Path(records).exists() else []
            for line in lines:
                record = json.loads(line)
                lost = record["lost"]
                if joined and record["host_drops"]:
                    if network:
                        # Nobody knows how many datagrams the buffers held.
                        continue
                    lost["host"], lost["network"] = lost["host"] + lost["network"], 0
                    record["cause"] = "cpu"
                if s.get("loss"):
                    # The link has no queue to speak of: what is not the host's is the wire's.
                    lost["link"], lost["network"] = lost["network"], 0
                    record["cause"] = "link" if record["cause"] == "network" else record["cause"]
                record["meta"] |= {"scenario": s["name"], "joins": joined,
                                   "link_bps": int(s["link"] * MBIT)}
                out.write(json.dumps(record, separators=(",", ":")) + "\n")
            out.flush()
            return f"{len(lines)} windows; {text}"
    finally:
        if s.get("group"):
            time.sleep(0.2)
            try:
                s["group"].rmdir()
            except OSError:
                pass


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=["make", "list", "rivals"])
    words.add_argument("rest", nargs="*")
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--losses", default="losses")
    words.add_argument("--only", default="*")
    words.add_argument("--repeat", type=int, default=1)
    words.add_argument("--seconds", type=float, default=6)
    words.add_argument("--windows", default="97656,24414,6104")
    words.add_argument("--all", action="store_true", help="windows without losses, too")
    args = words.parse_args()
    if args.what == "rivals":
        return rivals(args.rest[0], args.rest[1:])
    chosen = [s for s in scenarios() if fnmatch.fnmatch(s["name"], args.only)]
    if args.what == "list":
        return print("\n".join(s["name"] for s in chosen))
    with open(args.rest[0], "a") as out:
        for turn in range(args.repeat):
            for s in chosen:
                print(s["name"], play(args, dict(s), out), flush=True)


if __name__ == "__main__":
    main()
