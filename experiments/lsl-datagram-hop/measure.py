#!/usr/bin/env python3
"""Measures hops by datagrams with real processes.

    ./measure.py clean [--packtrain PATH] [--seeds 1,2,3] [--megabytes 1000] [--out FILE]
    ./measure.py long  [--packtrain PATH] [--seeds 1,2,3] [--seconds 40] [--skip 10] [--out FILE]
    ./measure.py frozen [--packtrain PATH] [--seeds 1,2,3,4,5] [--out FILE]

Sender, two depots and server in a row; what differs is how the second depot is reached. `clean`: four namespaces joined by
virtual Ethernet, nothing emulated, all on the same processors. `long`: the middle hop is long and loses packets, on the
emulator; bytes that the receiver has confirmed, without the first `--skip` seconds. `frozen`: as `clean`, the second depot is
stopped (SIGSTOP) in the middle; when the command says so, and how long no byte moved.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from measure_base import Lab, Row  # noqa: E402

SERVER = "10.97.3.2"
DEPOTS = ["10.97.1.2", "10.97.2.2"]
# Name, --hops, more words for the depots, TCP congestion control.
CLEAN = [
    ("tcp, splice", "tcp,tcp", []),
    ("tcp, copied", "tcp,tcp", ["--copy"]),
    ("native", "tcp,native", []),
    ("udt", "tcp,udt", []),
]
# Rate, round trip and loss of the middle hop.
LONG = [("300mbit", 100, 1e-4), ("300mbit", 100, 0)]
WAYS = [("reno", "tcp"), ("cubic", "tcp"), ("bbr", "tcp"), ("native", "native"), ("udt", "udt")]


class Servers:
    """Two depots and the server, until it ends."""

    def __init__(self, lab, row, more):
        depot = [lab.packtrain, "depot", "--listen", "0.0.0.0:7879", "--allow", "10.97.0.0/16", "--authorized-keys",
                 f"{lab.folder}/keys", *more]
        serve = [lab.packtrain, "serve", "--listen", "0.0.0.0:7876", "--root", f"{lab.folder}/root",
                 "--authorized-keys", f"{lab.folder}/keys", "--history", "none"]
        self.started = [subprocess.Popen(row.at(host, *words), env=lab.own(f"host{host}"), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True)
                        for host, words in ((1, depot), (2, depot), (3, serve))]
        time.sleep(1)

    def __enter__(self):
        return self

    def used(self):
        """Processor seconds of each."""
        seconds = []
        for one in self.started:
            fields = Path(f"/proc/{one.pid}/stat").read_text().rsplit(")")[1].split()
            seconds.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        return seconds

    def __exit__(self, *_):
        for one in self.started:
            one.send_signal(signal.SIGCONT)
            one.kill()
            one.wait()


def copy(lab, row, hops, *more):
    return row.at(0, lab.packtrain, "cp", "--json", "--no-resume", "--accept-new-host", "--transport", "tcp",
                  "--streams", "1", "--history", "none", "--via", ",".join(f"{d}:7879" for d in DEPOTS),
                  "--hops", hops, *more, f"{lab.folder}/big", f"pt://{SERVER}:7876/copy")


def clean(args):
    rows = []
    with Lab(args.packtrain, args.megabytes) as lab, Row() as row:
        for seed in args.seeds:
            for name, hops, more in CLEAN:
                if args.only and args.only not in name:
                    continue
                with Servers(lab, row, more) as servers:
                    (Path(lab.folder) / "root/copy").unlink(missing_ok=True)
                    before, begun = servers.used(), time.monotonic()
                    done = subprocess.run(copy(lab, row, hops), env=lab.own("user"), capture_output=True, text=True)
                    took = time.monotonic() - begun
                    if done.returncode:
                        sys.exit(done.stdout + done.stderr)
                    used = [b - a for a, b in zip(before, servers.used())]
                    rate = 8e-3 * (args.megabytes << 20) / 1e6 / took
                    rows.append(f"{name},{seed},{rate:.3f}," + ",".join(f"{one / took:.2f}" for one in used))
                    print(rows[-1], *(line for line in done.stderr.splitlines()[:3]), flush=True)
    return "hop,run,gbps,first_depot_processors,second_depot_processors,server_processors", rows


def frozen(args):
    """The second depot stops when 5 s of bytes have passed; the sender could reach the server directly."""
    rows = []
    with Lab(args.packtrain, 250) as lab, Row() as row:
        row.forward()
        for seed in args.seeds:
            for hops in ("tcp,tcp", "tcp,native"):
                with Servers(lab, row, []) as servers:
                    (Path(lab.folder) / "root/copy").unlink(missing_ok=True)
                    words = copy(lab, row, hops, "--rate", "200mbit", "--progress", "json")
                    running = subprocess.Popen(words, env=lab.own("user"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    moved, told, stopped, gap, seen = None, None, None, 0.0, None
                    for line in running.stdout:
                        now = time.monotonic()
                        try:
                            told_bytes = json.loads(line).get("bytes")
                        except ValueError:
                            told_bytes = None
                        if stopped and not told and DEPOTS[1] in line:
                            told = now - stopped
                        if told_bytes and told_bytes != seen:
                            seen, last, moved = told_bytes, moved, now
                            if stopped and last:
                                gap = max(gap, now - max(last, stopped))
                        if seen and seen > 125e6 and not stopped:
                            servers.started[1].send_signal(signal.SIGSTOP)
                            stopped = now
                    ok = running.wait() == 0 and (Path(lab.folder) / "root/copy").stat().st_size == 250 << 20
                    rows.append(f'"{hops}",{seed},{told or float("nan"):.2f},{gap:.2f},{ok}')
                    print(rows[-1], flush=True)
    return "hops,run,named_after_s,pause_s,complete", rows


def near(seconds, out, command):
    """Runs one copy for so long; writes (seconds, bytes) of each of its progress lines."""
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
            return before[1] + (second - before[0]) / (point[0] - before[0]) * (point[1] - before[1])
        before = point
    return before[1]


def emulated(args, lab, path, way, seed):
    """One copy over an emulated middle hop."""
    (rate, rtt, loss), (cc, hops) = path, way
    link = lambda a, b, rate, rtt, loss: (f'[[link]]\nname = "{a}{b}"\nfrom = "{a}"\nto = "{b}"\nrate = "{rate}"\nrtt = "{rtt}ms"\n'
                                          'queue = "1bdp"\n' + (f"loss = {loss}\n" if loss else ""))
    # An edge is never the narrow place.
    links = link("a", "b", "1gbit", 2, 0) + link("b", "c", rate, rtt, loss) + link("c", "d", "1gbit", 2, 0)
    Path(f"{lab.folder}/t.toml").write_text(f'duration = "1s"\nseed = {seed}\n' + links)
    kernel = ["--tcp-cc", cc] if hops == "tcp" else ["--tcp-cc", "cubic"]
    own = lambda name: f"XDG_CONFIG_HOME={lab.folder}/{name}/config XDG_STATE_HOME={lab.folder}/{name}/state exec"
    depot = f"{lab.packtrain} depot --listen 0.0.0.0:7879 --allow 10.77.0.0/24 --authorized-keys {lab.folder}/keys {' '.join(kernel)} {args.depot}"
    starts = [f"b={own('host1')} {depot}", f"c={own('host2')} {depot}",
              f"d={own('host3')} {lab.packtrain} serve --listen 0.0.0.0:7876 --root {lab.folder}/root"
              f" --authorized-keys {lab.folder}/keys --history none"]
    words = ["cp", "--progress", "json", "--no-resume", "--accept-new-host", "--transport", "tcp", "--streams", "1", "--history", "none",
             *kernel, "--via", "10.77.0.2:7879,10.77.0.3:7879", "--hops", f"tcp,{hops}", f"{lab.folder}/big", "pt://10.77.0.4:7876/copy"]
    inner = ["sh", "-c", f"sleep 1; XDG_CONFIG_HOME={lab.folder}/user/config XDG_STATE_HOME={lab.folder}/user/state exec python3 "
             f"{os.path.abspath(__file__)} near {args.seconds} {lab.folder}/told.json {lab.packtrain} {' '.join(words)}"]
    command = [lab.packtrain, "emulate", "--topology", f"{lab.folder}/t.toml", "--on", "a", "--best-effort", "--json",
               *(word for start in starts for word in ("--start", start)), "--", *inner]
    emulation = subprocess.run(command, env=lab.own("user"), capture_output=True, text=True)
    lines = [line for line in emulation.stdout.splitlines() if line.startswith("{")]
    if not lines or "links" not in json.loads(lines[-1]):
        sys.exit(emulation.stdout + emulation.stderr)
    for old in (Path(lab.folder) / "root").iterdir():
        old.unlink()
    late = max(link["lateness_p99_us"] for link in json.loads(lines[-1])["links"])
    told = json.loads(Path(f"{lab.folder}/told.json").read_text())
    if told["said"]:
        print(*told["said"], file=sys.stderr)
    if args.trace:
        print(*(f"{8e-6 * (at(told['seen'], second + 1) - at(told['seen'], second)):.0f}" for second in range(int(args.seconds))))
    rates = [8e-6 * (at(told["seen"], args.seconds) - at(told["seen"], begin)) / (args.seconds - begin) for begin in (args.skip, 0)]
    return f"{cc},{rate},{rtt},{loss:g},{seed},{rates[0]:.1f},{rates[1]:.1f},{late:.0f}"


def long(args):
    rows = []
    with Lab(args.packtrain, args.megabytes) as lab:
        for seed in args.seeds:
            for path in LONG:
                for way in WAYS:
                    if not args.only or way[0] in args.only.split(","):
                        rows.append(emulated(args, lab, path, way, seed))
                        print(rows[-1], flush=True)
    return "hop,rate,rtt_ms,loss,seed,steady_mbps,whole_mbps,lateness_p99_us", rows


def main():
    if sys.argv[1:2] == ["near"]:
        return near(float(sys.argv[2]), sys.argv[3], sys.argv[4:])
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=["clean", "long", "frozen"])
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--seeds", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 3])
    words.add_argument("--megabytes", type=int, default=1000)
    words.add_argument("--seconds", type=float, default=40)
    words.add_argument("--skip", type=float, default=10)
    words.add_argument("--only", help="ways whose name says so")
    words.add_argument("--depot", default="", help="more words for the depots")
    words.add_argument("--trace", action="store_true", help="print each second's Mbit/s")
    words.add_argument("--out", type=Path)
    args = words.parse_args()
    head, rows = globals()[args.what](args)
    out = args.out or Path(__file__).resolve().parent / f"{args.what}.csv"
    out.write_text("\n".join([head, *rows]) + "\n")


if __name__ == "__main__":
    main()
