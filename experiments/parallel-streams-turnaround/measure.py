#!/usr/bin/env python3
"""Measures how long copies take with and without choosing the number of TCP streams, the choosing included.

    ./measure.py [--packtrain PATH] [--lanes 4] [--path losses,buffers] [--out runs.csv]

Files lie in memory, on the emulator's two hosts. Each copy is the whole command. Needs 2 GB of memory.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The paper's gigabit and 100 MB to 6 GB, both smaller: a fifth of the rate, a tenth of the bytes.
PATHS = {
    "losses": ("--rate 200mbit --rtt 100ms --loss 1e-4".split(), []),
    "buffers": ("--rate 200mbit --rtt 50ms".split(), ["--tcp-buffer", "256KiB"]),
}
SIZES = [10, 30, 100, 300]
WAYS = ["one", "paper", "auto", "history"]
# A sample takes so many seconds; the paper's sampler doubles until throughput grows by less than this.
SAMPLE, GROWTH, MOST = 3, 1.05, 64
AT = "10.77.0.2:7876"


def last(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


class Host:
    """The near host, inside the emulation."""

    def __init__(self, words):
        self.packtrain, self.path, self.size, self.folder = words
        self.buffer = PATHS[self.path][1]

    def command(self, *words):
        done = subprocess.run([self.packtrain, *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def copy(self, name, streams, history=()):
        target = Path(self.folder, "root", name)
        done = last(self.command("cp", "--json", "--progress", "none", "--accept-new-host", "--transport", "tcp", "--tcp-cc", "cubic",
                                 *self.buffer, "--streams", str(streams), *history, f"{self.folder}/{self.size}", f"pt://{AT}/{name}"))
        target.unlink()
        return done["streams"]["most"]

    def sampled(self):
        """Samples by doubling, and what the full second order model makes of them."""
        samples, n = [], 1
        while n <= MOST:
            done = last(self.command("perf", "client", AT, "--accept-new-host", "--transport", "tcp", "--tcp-cc", "cubic", *self.buffer,
                                     "--parallel", str(n), "--seconds", str(SAMPLE), "--history", "none", "--json"))
            samples.append((n, done["goodput_bps"] / 1e6))
            if len(samples) > 1 and samples[-1][1] < samples[-2][1] * GROWTH:
                break
            n *= 2
        table = Path(self.folder, "samples.csv")
        table.write_text("streams,throughput_mbps\n" + "".join(f"{n},{mbps}\n" for n, mbps in samples))
        lines = [json.loads(line) for line in self.command("predict", "--from", str(table), "--json").splitlines()]
        model = next(line for line in lines if line.get("model") == "full-second-order")
        # Where the model has no peak the largest sample is all the paper's way has.
        return model["optimum"] or max(samples, key=lambda sample: sample[1])[0]

    def run(self, way):
        time.sleep(0.5)
        if way == "history":
            self.copy("before", "auto")
        begun = time.monotonic()
        if way == "one":
            streams = self.copy("it", 1)
        elif way == "paper":
            streams = self.copy("it", self.sampled())
        else:
            streams = self.copy("it", "auto", () if way == "history" else ("--history", "none"))
        print(json.dumps({"seconds": time.monotonic() - begun, "streams": streams}))


def run(args, path, size, way):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="packtrain-turnaround-", dir=memory) as folder:
        environment = dict(os.environ, XDG_STATE_HOME=f"{folder}/state", XDG_CONFIG_HOME=f"{folder}/config")
        far_own = f"XDG_STATE_HOME={folder}/far-state XDG_CONFIG_HOME={folder}/far-config"
        os.mkdir(f"{folder}/root")
        with open(f"{folder}/{size}", "wb") as file:
            for _ in range(size):
                file.write(os.urandom(1_000_000))
        key = subprocess.run([args.packtrain, "key", "show"], env=environment, capture_output=True, text=True, check=True)
        Path(folder, "keys").write_text(key.stdout)
        far = f"{far_own} exec {args.packtrain} serve --listen {AT} --root {folder}/root --authorized-keys {folder}/keys"
        near = [sys.executable, __file__, "--inside", way, args.packtrain, path, str(size), folder]
        command = [args.packtrain, "emulate", *PATHS[path][0], "--best-effort", "--json", "--far", far, "--", *near]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or len(lines) < 2:
            sys.exit(f"{path}, {size} MB, {way}: {done.stderr}")
        found, kept_up = lines[0], lines[-1]["ok"]
    print(f"{path}, {size} MB, {way}: {found['seconds']:.1f} s, {found['streams']} streams{'' if kept_up else ', the emulator was late'}", flush=True)
    return f"{path},{size},{way},{found['seconds']:.2f},{found['streams']},{'yes' if kept_up else 'no'}"


def main():
    if sys.argv[1:2] == ["--inside"]:
        return Host(sys.argv[3:]).run(sys.argv[2])
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--packtrain", default="packtrain")
    words.add_argument("--lanes", type=int, default=4)
    words.add_argument("--path", default=",".join(PATHS))
    words.add_argument("--sizes", default=",".join(map(str, SIZES)))
    words.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "runs.csv")
    args = words.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    # The longest first, so that the lanes end together.
    jobs = [(path, size, way) for size in sorted(sizes, reverse=True) for way in WAYS for path in args.path.split(",")]
    with concurrent.futures.ThreadPoolExecutor(args.lanes) as lanes:
        rows = list(lanes.map(lambda job: run(args, *job), jobs))
    key = lambda row: (row.split(",")[0], int(row.split(",")[1]), WAYS.index(row.split(",")[2]))
    rows.sort(key=key)
    args.out.write_text("path,megabytes,way,seconds,streams,kept_up\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
