#!/usr/bin/env python3
"""Draws the results of `cargo xtask bench grid`: goodput over loss, round-trip time and queue.

    python3 bench/plot.py bench/results/DATE-CPU.json [DIRECTORY]

Writes DATE-CPU-AXIS-RATE.svg for each axis and rate that the results have at least two cells of,
into DIRECTORY or beside the results. Needs matplotlib (Debian: python3-matplotlib, which the
system's own /usr/bin/python3 finds).
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
# The same results give the same file.
matplotlib.rcParams["svg.hashsalt"] = "packtrain"
from matplotlib import pyplot  # noqa: E402

# Title of the axis, and the key of a cell's value.
AXES = {
    "loss": ("loss, each way", "loss"),
    "rtt": ("round-trip time in ms", "rtt_ms"),
    "queue": ("queue in bandwidth-delay products", "queue_bdp"),
}
# One colour for each family of programs; the line style tells its members apart.
COLOURS = {
    "packtrain": "#0b7a53",
    "kernel bbr": "#c0392b",
    "kernel cubic": "#e67e22",
    "quinn": "#2c5fa8",
    "stock UDT4": "#7d3c98",
    "SRT": "#7f8c8d",
}
STYLES = ["-", "--", ":", "-."]


def ordered(cells, axis):
    """The cells along an axis, by value; words, such as bursts, come last."""
    key = AXES[axis][1]
    return sorted(cells, key=lambda cell: (isinstance(cell[key], str), cell[key]))


def colour(program):
    return next((c for name, c in COLOURS.items() if program.startswith(name)), "black")


def draw(cells, axis, rate, target):
    cells = ordered(cells, axis)
    programs = sorted({name for cell in cells for name in cell["median_mbps"]})
    figure, axes = pyplot.subplots(figsize=(8, 5))
    places = range(len(cells))
    seen = {}
    for program in programs:
        # A gap where the program has no result, or was not to run.
        medians = [cell["median_mbps"].get(program) for cell in cells]
        values = [float("nan") if median is None else median for median in medians]
        if all(median is None for median in medians):
            continue
        style = STYLES[seen.setdefault(colour(program), 0) % len(STYLES)]
        seen[colour(program)] += 1
        wide = 2.4 if program.startswith("packtrain native") else 1.3
        axes.plot(places, values, style, color=colour(program), lw=wide, marker="o", ms=3,
                  label=program)
    ceilings = [cell["ceiling_mbps"] for cell in cells]
    axes.plot(places, ceilings, color="black", lw=0.8, label="payload ceiling")
    labels = [cell[AXES[axis][1]] for cell in cells]
    axes.set_xticks(places, [f"{l:g}" if not isinstance(l, str) else l for l in labels])
    axes.set_xlabel(AXES[axis][0])
    axes.set_ylabel("goodput in Mbit/s, median")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{rate} Mbit/s, memory to memory, 10 s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    lines = target.read_text().splitlines()
    target.write_text("".join(line.rstrip() + "\n" for line in lines))
    print(target)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1])
    directory = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else source.parent
    grid = json.loads(source.read_text(encoding="utf-8")).get("grid")
    if grid is None:
        sys.exit(f"{source} has no results of the grid")
    for axis in AXES:
        for rate in sorted({cell["rate_mbps"] for cell in grid["cells"]}):
            cells = [
                cell for cell in grid["cells"]
                if cell["rate_mbps"] == rate and axis in cell["axes"] and cell["part"] == "memory"
            ]
            if len(cells) > 1:
                draw(cells, axis, rate, directory / f"{source.stem}-{axis}-{rate}.svg")


if __name__ == "__main__":
    main()
