"""Draw the rows of a results file as bars: how many times faster or slower than the peer.

python benchmarks/plot.py benchmarks/results/cpu.json benchmarks/results/cpu.png
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLORS = {"torch": "#c05621", "numpy": "#2b6cb0"}
NOT_KERNELS = frozenset({"launch", "import", "compile", "compile_warm"})


def kernel_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that compare a kernel with a library."""
    return [
        row for row in document["rows"] if row["name"] not in NOT_KERNELS and row["peer"] in COLORS
    ]


def draw(document: dict[str, Any], path: Path) -> None:
    """One group of bars for each problem and thread count, one bar for each peer."""
    rows = kernel_rows(document)
    labels = list(dict.fromkeys(map(_label, rows)))
    figure: Any = Figure(figsize=(8, 0.34 * len(labels) + 1.4), layout="constrained")
    axes = figure.add_subplot()
    height = 0.38
    for offset, (peer, color) in zip((-height / 2, height / 2), COLORS.items(), strict=True):
        ratios = {_label(row): row["ratio"] for row in rows if row["peer"] == peer}
        places = [index + offset for index, label in enumerate(labels) if label in ratios]
        widths = [ratios[label] for label in labels if label in ratios]
        # On a logarithmic scale a bar to the left is as long as one to the right for the inverse.
        steps = [width - 1 for width in widths]
        axes.barh(places, steps, height, left=1, color=color, label=f"against {peer}")
        for place, width in zip(places, widths, strict=True):
            axes.annotate(
                f"{width:.2f}", (max(width, 1), place), (4, 0), textcoords="offset points",
                va="center", fontsize=7,
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [t for t in (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if low / 2 < t < high * 2]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.08)  # room for the numbers
    axes.set_xlabel("times the peer's speed (to the right is faster)")
    axes.set_title(_title(document), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)


def _label(row: dict[str, Any]) -> str:
    threads = f"{row['threads']} thread{'s' if row['threads'] != 1 else ''}"
    return f"{row['name']} {row['shape']} {row['dtype']}, {threads}"


def _title(document: dict[str, Any]) -> str:
    versions = document["versions"]
    packages = ", ".join(f"{name} {versions[name]}" for name in ("deuteron", "numpy", "torch"))
    return f"{document['machine']['cpu']}: {packages}; {document['date'][:10]}"


def main() -> int:
    """Read the rows, write the picture."""
    parser = argparse.ArgumentParser(description="Draw benchmark rows.")
    parser.add_argument("rows", type=Path, help="results file of cpu.py")
    parser.add_argument("picture", type=Path, help="PNG or SVG to write")
    arguments = parser.parse_args()
    mpl.use("agg")
    draw(json.loads(arguments.rows.read_text(encoding="utf-8")), arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
