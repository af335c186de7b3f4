#!/usr/bin/env python3
"""Measures what `cp --via auto` makes of depots, with real processes and the kernel's TCP, on the emulator.

    ./measure.py [--packtrain PATH] [--set NAME] [--seeds 1,2,3]
                 [--copies 2] [--out FILE] [--keep FOLDER] [--append]

Each seed is one emulation. In it there are so many copies of the same network for each of the ways (direct, via the depot by name, auto),
all at once, each over links of its own, which lose the same packets by number. A row is one `packtrain cp`, with a fresh history.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# The network of each set: links are (from, to, rate, rtt in ms, loss); n is where the copy is begun, f its other end, d the depot.
CHAIN = lambda rate, rtt, loss: [("n", "d", rate, rtt / 2, loss / 2), ("d", "f", rate, rtt / 2, loss / 2)]
ASIDE = lambda *depot: [("n", "r", "50mbit", 25, 5e-4), ("r", "f", "50mbit", 25, 5e-4), *depot]
SETS = {
    # Nothing is lost and the link is the limit: a depot is of no use.
    "clean": dict(cc="cubic", streams=1, megabytes=60, links=CHAIN("50mbit", 100, 0)),
    # A gigabit, one copy at a time.
    "quick": dict(cc="reno", streams=1, megabytes=400, links=CHAIN("1gbit", 100, 0), apart=True),
    # The same, and of each copy's packets one is lost: that of the seed times a thousand.
    "once": dict(cc="reno", streams=1, megabytes=400, links=CHAIN("1gbit", 100, 1), once=1000, apart=True),
    # Losses, and a depot in the middle; the bytes go there, or come from there.
    "reno": dict(cc="reno", streams=1, megabytes=40, links=CHAIN("200mbit", 50, 1e-3)),
    "cubic": dict(cc="cubic", streams=2, megabytes=30, links=CHAIN("200mbit", 100, 1e-3)),
    "fetch": dict(cc="reno", streams=1, megabytes=40, links=CHAIN("200mbit", 50, 1e-3), fetch=True),
    # The first 15 MB get through, then a packet in a thousand is lost.
    "later": dict(cc="reno", streams=2, megabytes=60, links=CHAIN("50mbit", 50, 1e-3), later=10000),
    # A depot next door from which it is twice as far to the other end.
    "detour": dict(cc="reno", streams=2, megabytes=50, links=ASIDE(("n", "d", "50mbit", 10, 0), ("d", "f", "50mbit", 90, 1e-3))),
    # Depots half way: one behind a slow line, one that gets on at a hundredth of the direct rate, one that lets nobody in, and
    # one that is not there.
    "capped": dict(cc="reno", streams=2, megabytes=50, links=ASIDE(("r", "d", "5mbit", 4, 0))),
    "creeping": dict(cc="reno", streams=2, megabytes=50, links=ASIDE(("r", "d", "50mbit", 4, 0), ("d", "f", "200kbit", 28, 0))),
    "refusing": dict(cc="reno", streams=2, megabytes=50, links=ASIDE(("r", "d", "50mbit", 4, 0)), depot="refuses"),
    "away": dict(cc="reno", streams=2, megabytes=50, links=ASIDE(("r", "d", "50mbit", 4, 0)), depot="away"),
}
WAYS = ["direct", "via", "auto"]


def topology(folder, one, run, seed):
    """The links of one copy, its hosts being called after it."""
    text = ""
    for number, (a, b, rate, rtt, loss) in enumerate(one["links"]):
        text += (f'[[link]]\nname = "{run}{a}{b}"\nfrom = "{run}{a}"\nto = "{run}{b}"\nrate = "{rate}"\nrtt = "{rtt}ms"\n'
                 f'queue = "1bdp"\nbdp_rtt = "100ms"\nseed = {seed * 1000 + int(run[1:]) * 10 + number}\n')
        if loss and one.get("once"):
            name = f"{run}{number}.txt"
            Path(f"{folder}/{name}").write_text("0" * (one["once"] * seed - 1) + "1" + "0" * 600000)
            text += f'loss = {{ kind = "trace", file = "{name}" }}\nreverse = {{ loss = 0 }}\n' if number == 0 else ""
        elif loss and one.get("later"):
            dice = random.Random(f"{seed} {run[1:]} {number}")
            name = f"{run}{number}.txt"
            fates = "0" * one["later"] + "".join("1" if dice.random() < loss else "0" for _ in range(120000))
            Path(f"{folder}/{name}").write_text(fates)
            text += f'loss = {{ kind = "trace", file = "{name}" }}\nreverse = {{ loss = 0 }}\n'
        elif loss:
            text += f"loss = {loss}\n"
    return text


def measure(args, name, seed):
    one = SETS[name]
    ways = [way for way in args.ways.split(",") if way != "via" or not one.get("depot")]
    return emulate(args, name, one, seed, [f"{way[0]}{copy}" for copy in range(args.copies) for way in ways])


def emulate(args, name, one, seed, runs):
    folder = tempfile.mkdtemp(dir="/dev/shm")
    environment = dict(os.environ, XDG_CONFIG_HOME=f"{folder}/config", XDG_STATE_HOME=f"{folder}/state")
    keys = subprocess.run([args.packtrain, "key", "show"], env=environment, capture_output=True, text=True, check=True)
    Path(f"{folder}/keys").write_text(keys.stdout)
    with open(f"{folder}/big", "wb") as big:
        for _ in range(one["megabytes"]):
            big.write(os.urandom(10**6))
    text, starts, hosts = "", [], {}
    before = None
    for run in runs:
        text += topology(folder, one, run, seed)
        for host in [host for link in one["links"] for host in link[:2]]:
            hosts.setdefault(run + host, f"10.77.{(len(hosts) + 1) // 256}.{(len(hosts) + 1) % 256}")
        own = lambda host: f"XDG_CONFIG_HOME={folder}/{run}{host}c XDG_STATE_HOME={folder}/{run}{host}s exec"
        far, depot = hosts[f"{run}f"], hosts[f"{run}d"]
        os.mkdir(f"{folder}/{run}root")
        os.link(f"{folder}/big", f"{folder}/{run}root/big")
        starts += ["--start", f"{run}f={own('f')} {args.packtrain} serve --listen 0.0.0.0:7876 --root {folder}/{run}root"
                   f" --authorized-keys {folder}/keys --history none"]
        if one.get("depot") != "away":
            allowed = "10.99.0.0/24" if one.get("depot") == "refuses" else "10.77.0.0/16"
            starts += ["--start", f"{run}d={own('d')} {args.packtrain} depot --listen 0.0.0.0:7879 --tcp-cc {one['cc']}"
                       f" --allow {allowed} --authorized-keys {folder}/keys"]
        commands = ["sleep 2"]
        if one.get("apart") and before:
            commands.append(f"until test -e {folder}/{before}.json; do sleep 0.1; done; sleep 0.5")
        via = {"d": [], "v": ["--via", f"{depot}:7879"], "a": ["--via", "auto", "--depots", f"{depot}:7879"]}[run[0]]
        there, here = f"pt://{far}:7876/{'big' if one.get('fetch') else 'copy'}", f"{folder}/{run}copy" if one.get("fetch") else f"{folder}/big"
        words = [args.packtrain, "cp", "--json", "--no-resume", "--accept-new-host", "--transport", "tcp", "--streams",
                 str(one["streams"]), "--tcp-cc", one["cc"], *via, *([there, here] if one.get("fetch") else [here, there])]
        # Nobody learns from another's history.
        commands.append(f"XDG_STATE_HOME={folder}/{run}s {' '.join(words)} > {folder}/{run}.part 2> {folder}/{run}.err;"
                        f" rm -f {folder}/{run}root/copy {folder}/{run}copy; mv {folder}/{run}.part {folder}/{run}.json")
        before = run
        Path(f"{folder}/{run}.sh").write_text("\n".join(commands) + "\n")
        starts += ["--start", f"{run}n=exec sh {folder}/{run}.sh"]
    Path(f"{folder}/t.toml").write_text(f'duration = "1s"\nseed = {seed}\n' + text)
    wait = " && ".join(f"test -e {folder}/{run}.json" for run in runs)
    command = [args.packtrain, "emulate", "--topology", f"{folder}/t.toml", "--on", f"{runs[0]}n", "--best-effort", "--json",
               *starts, "--", "sh", "-c", f"until {wait}; do sleep 0.2; done"]
    emulation = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in emulation.stdout.splitlines() if line.startswith("{")]
    if not lines or "links" not in json.loads(lines[-1]):
        sys.exit(emulation.stdout + emulation.stderr)
    late = max(link["lateness_p99_us"] for link in json.loads(lines[-1])["links"])
    rows = []
    for run in sorted(runs):
        told = [json.loads(line) for line in Path(f"{folder}/{run}.json").read_text().splitlines() if line.startswith("{")]
        done = [line for line in told if line.get("event") == "done"]
        if not done or not done[-1]["ok"]:
            sys.exit(f"{run}: {Path(f'{folder}/{run}.err').read_text()}")
        streams = done[-1].get("streams") or {}
        each = [way["bytes"] for way in streams.get("ways", [])]
        over = sum(each[1:]) / max(1, sum(each)) if each else float(run[0] == "v")
        way = {way[0]: way for way in WAYS}[run[0]]
        rows.append(f"{name},{one['cc']},{seed},{run[1:]},{way},{done[-1]['seconds']:.3f},{over:.3f},{late:.0f}")
        print(rows[-1], flush=True)
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            (args.keep / f"{name}-{seed}-{run}.json").write_text(json.dumps(done[-1], indent=1))
    subprocess.run(["rm", "-rf", folder], check=True)
    return rows


BEGIN, END = "<!-- numbers: written by measure.py --table -->", "<!-- end of numbers -->"


def table(folder):
    """Writes what all files say into the README.md, between two remarks."""
    text = ("| set | copies each | direct, s | via the depot, s | auto, s | direct / auto | slower than 0.95 of direct | of two direct | by the depot |\n"
            "|---|---|---|---|---|---|---|---|---|\n")
    for name in SETS:
        file = folder / f"{name}.csv"
        if not file.exists() or name == "once":
            continue
        rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
        times = {way: [float(row[5]) for row in rows if row[4] == way] for way in WAYS}
        cell = lambda way: f"{statistics.median(times[way]):.1f}" if times[way] else ""
        direct, auto = times["direct"], times["auto"]
        # Each with each: a copy's luck with losses is its own, whatever the way.
        share = statistics.mean(one < 0.95 * other for other in auto for one in direct)
        chance = statistics.mean(one < 0.95 * other for n, other in enumerate(direct) for m, one in enumerate(direct) if n != m)
        over = statistics.median(float(row[6]) for row in rows if row[4] == "auto")
        text += (f"| {name} | {len(auto)} | {cell('direct')} | {cell('via')} | {cell('auto')} "
                 f"| {statistics.median(direct) / statistics.median(auto):.2f} | {share * 100:.0f} % | {chance * 100:.0f} % | {over * 100:.0f} % |\n")
    readme = folder / "README.md"
    head, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(head + BEGIN + "\n" + text + END + rest.partition(END)[2])
    print(text)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--set", choices=SETS, default="reno")
    words.add_argument("--seeds", default="1,2,3")
    words.add_argument("--copies", type=int, default=2)
    words.add_argument("--ways", default=",".join(WAYS))
    words.add_argument("--out", type=Path)
    words.add_argument("--keep", type=Path, help="a folder for what each copy told")
    words.add_argument("--append", action="store_true", help="add to the file, which has other seeds already")
    words.add_argument("--table", action="store_true", help="write what all files say into README.md, measure nothing")
    args = words.parse_args()
    if args.table:
        return table(Path(__file__).resolve().parent)
    out = args.out or Path(__file__).resolve().parent / f"{args.set}.csv"
    head = "set,congestion,seed,copy,way,seconds,over_depot,lateness_p99_us\n"
    before = out.read_text() if args.append and out.exists() else head
    for seed in args.seeds.split(","):
        # What is measured stays, whatever comes after.
        before += "\n".join(measure(args, args.set, int(seed))) + "\n"
        out.write_text(before)


if __name__ == "__main__":
    main()
