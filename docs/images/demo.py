#!/usr/bin/env python3
"""Draws what `packtrain demo --wan` prints as docs/images/demo.svg.

    cargo build --release && python3 docs/images/demo.py target/release/packtrain
"""

import html
import pathlib
import subprocess
import sys
import textwrap

WIDTH, HEIGHT, MARGIN, SIZE = 8.4, 19, 18, 14
COLUMNS = 100


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = subprocess.run(
        [sys.argv[1], "demo", "--wan"], stdout=subprocess.PIPE, text=True, check=True
    )
    lines = ["$ packtrain demo --wan"]
    for line in run.stdout.rstrip().splitlines():
        lines += textwrap.wrap(line, COLUMNS, subsequent_indent="  ", drop_whitespace=False) or [""]
    wide = max(len(line) for line in lines) * WIDTH + 2 * MARGIN
    high = len(lines) * HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high}" '
        f'viewBox="0 0 {wide:.0f} {high}" role="img">',
        "<title>What packtrain demo --wan prints</title>",
        '<rect width="100%" height="100%" rx="8" fill="#1b1f24"/>',
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" '
        'fill="#d6dde5" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        colour = ' fill="#7fd1ae"' if "packtrain" in line or "native" in line else ""
        y = MARGIN + (number + 1) * HEIGHT - 5
        parts.append(f'<text x="{MARGIN}" y="{y}"{colour}>{html.escape(line)}</text>')
    parts += ["</g>", "</svg>"]
    target = pathlib.Path(__file__).with_name("demo.svg")
    target.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
