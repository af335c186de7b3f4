#!/usr/bin/env python3
"""Measures `packtrain send` to a depot that keeps sessions, and `packtrain claim` from it, beside `packtrain cp` to a server.

    ./measure.py memory [--packtrain PATH] [--seeds 1,2,3] [--megabytes 1000] [--out FILE]
    ./measure.py disk --disk FOLDER ...
    ./measure.py long ...

One machine of two processors for all. `memory` and `disk`: two namespaces joined by virtual Ethernet; the depot's or server's
folder is in memory, or on the disk that FOLDER is on (then what was written is synced before the clock stops). `long`: 300 Mbit/s,
100 ms, with and without loss, on the emulator, folders in memory.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / "lsl-datagram-hop"))
from measure_base import Lab, Row  # noqa: E402

# What a namespace of the emulator may set.
PATHS = [(0, "reno"), (0, "bbr"), (1e-4, "reno"), (1e-4, "bbr")]
TCP = ["--transport", "tcp", "--streams"]


def timed(command, env):
    begun = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    took = time.monotonic() - begun
    if done.returncode:
        sys.exit(" ".join(command) + "\n" + done.stdout + done.stderr)
    return took


def commands(lab, address, store):
    """What is timed: name, words, and the folder that grows."""
    common = ["--history", "none"]
    cp = [lab.packtrain, "cp", "--no-resume", "--accept-new-host", *common]
    to = f"pt://{address}:7876/copy"
    return [
        ("send", [lab.packtrain, "send", "--via", f"{address}:7879", "--ticket", f"{lab.folder}/ticket", f"{lab.folder}/big"]),
        ("claim", [lab.packtrain, "claim", f"@{lab.folder}/ticket", f"{lab.folder}/claimed", "--no-resume", "--release"]),
        ("cp, 1 stream", [*cp, *TCP, "1", f"{lab.folder}/big", to]),
        ("cp, 4 streams", [*cp, *TCP, "4", f"{lab.folder}/big", to]),
        ("cp, native", [*cp, "--transport", "native", f"{lab.folder}/big", to]),
    ]


def depot(lab, store, more=()):
    return [lab.packtrain, "depot", "--listen", "0.0.0.0:7879", "--allow", "10.0.0.0/8", "--authorized-keys", f"{lab.folder}/keys",
            "--spool", f"{store}/spool", *more]


def serve(lab, store):
    return [lab.packtrain, "serve", "--listen", "0.0.0.0:7876", "--root", f"{store}/root", "--authorized-keys",
            f"{lab.folder}/keys", "--history", "none"]


def clear(lab, store, *more):
    for path in [Path(lab.folder) / "claimed", Path(store) / "root/copy", *more]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def near(args, where):
    rows = []
    with Lab(args.packtrain, args.megabytes) as lab, Row(2) as row:
        store = tempfile.mkdtemp(dir=args.disk) if where == "disk" else lab.folder
        try:
            os.makedirs(f"{store}/root", exist_ok=True)
            os.makedirs(f"{store}/spool", exist_ok=True)
            for seed in args.seeds:
                started = [subprocess.Popen(row.at(1, *words), env=lab.own("there"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                           for words in (depot(lab, store), serve(lab, store))]
                time.sleep(1)
                for name, words in commands(lab, "10.97.1.2", store):
                    if args.only and args.only not in name:
                        continue
                    clear(lab, store)
                    subprocess.run(["sync", "-f", store], check=True)
                    took = timed(row.at(0, *words), lab.own("user"))
                    begun = time.monotonic()
                    if where == "disk":
                        subprocess.run(["sync", "-f", store], check=True)
                    synced = took + time.monotonic() - begun
                    rates = [8 * (args.megabytes << 20) / 1e6 / span for span in (took, synced)]
                    rows.append(f"{name},{where},,{seed},{rates[0]:.0f},{rates[1]:.0f}")
                    print(rows[-1], flush=True)
                for one in started:
                    one.terminate()
                    one.wait()
                clear(lab, store, Path(lab.folder) / "ticket")
        finally:
            if store != lab.folder:
                shutil.rmtree(store)
    return rows


def memory(args):
    return near(args, "memory")


def disk(args):
    return near(args, "disk")


def long(args):
    rows = []
    with Lab(args.packtrain, args.megabytes) as lab:
        os.makedirs(f"{lab.folder}/spool", exist_ok=True)
        own = lambda name: f"XDG_CONFIG_HOME={lab.folder}/{name}/config XDG_STATE_HOME={lab.folder}/{name}/state"
        for seed in args.seeds:
            for loss, cc in PATHS:
                for name, words in commands(lab, "10.77.0.2", lab.folder):
                    if (args.only and args.only not in name) or (name == "cp, native" and cc == "bbr"):
                        continue
                    clear(lab, lab.folder)
                    topology = (f'duration = "1s"\nseed = {seed}\n[[link]]\nname = "path"\nfrom = "near"\nto = "far"\nrate = "300mbit"\n'
                                'rtt = "100ms"\nqueue = "1bdp"\n' + (f"loss = {loss}\n" if loss else ""))
                    Path(f"{lab.folder}/t.toml").write_text(topology)
                    # Every connection of the host, since not every command says which it wants.
                    starts = [f"{host}=sysctl -qw net.ipv4.tcp_congestion_control={cc}; {own(f'there{host}')} {'exec ' + words if words else 'exec sleep 1d'}"
                              for host, words in (("near", ""), ("far", f"sh -c '{' '.join(depot(lab, lab.folder))} & {' '.join(serve(lab, lab.folder))}'"))]
                    inner = f"sleep 1; date +%s.%N > {lab.folder}/begun; {own('user')} {' '.join(words)} && date +%s.%N > {lab.folder}/ended"
                    for mark in ("begun", "ended"):
                        Path(f"{lab.folder}/{mark}").unlink(missing_ok=True)
                    done = subprocess.run([lab.packtrain, "emulate", "--topology", f"{lab.folder}/t.toml", "--on", "near", "--best-effort", "--json",
                                           *(word for start in starts for word in ("--start", start)), "--", "sh", "-c", inner],
                                          env=lab.own("user"), capture_output=True, text=True)
                    if not Path(f"{lab.folder}/ended").exists():
                        sys.exit(done.stdout + done.stderr)
                    began, ended = (float(Path(f"{lab.folder}/{mark}").read_text()) for mark in ("begun", "ended"))
                    rate = 8 * (args.megabytes << 20) / 1e6 / (ended - began)
                    rows.append(f"{name},{'native' if 'native' in name else cc},{loss:g},{seed},{rate:.1f},")
                    print(rows[-1], flush=True)
                clear(lab, lab.folder, Path(lab.folder) / "ticket")
    return rows


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=["memory", "disk", "long"])
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--seeds", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 3])
    words.add_argument("--megabytes", type=int, default=1000)
    words.add_argument("--disk")
    words.add_argument("--only")
    words.add_argument("--out", type=Path)
    args = words.parse_args()
    rows = globals()[args.what](args)
    out = args.out or Path(__file__).resolve().parent / f"{args.what}.csv"
    out.write_text("\n".join(["command,where,loss,seed,mbps,mbps_synced", *rows]) + "\n")


if __name__ == "__main__":
    main()
