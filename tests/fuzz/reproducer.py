"""A failing case as a file that runs on its own: the kernel, its data, and the comparison."""

from __future__ import annotations

import base64
import zlib

from tests.fuzz.case import Case
from tests.fuzz.check import Verdict, initial

_MAIN = """

def run(interpret):
    arrays = {name: stored(*spec) for name, spec in ARRAYS.items()}
    named = {name: dn.reinterpret(x, dtype) if "8e" in dtype or dtype == "bfloat16" else x
             for name, (x, dtype) in arrays.items()}
    named |= {name: named[array] for name, (array, _) in ALIASES.items()} | SCALARS
    function = JITFunction(kernel.fn, PythonFrontend(), interpret=interpret)
    function[GRID](**named)
    return {name: x for name, (x, _) in arrays.items()}


def stored(dtype, held, text):
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), held).copy(), dtype


def main():
    expected, got = run(True), run(False)
    for name in ARRAYS:
        bits = [x[name].view(f"u{x[name].itemsize}") for x in (expected, got)]
        for place in np.flatnonzero(bits[0] != bits[1])[:8]:
            print(name, place, "expected", expected[name][place], hex(bits[0][place]),
                  "got", got[name][place], hex(bits[1][place]))


if __name__ == "__main__":
    main()
"""


def reproducer(case: Case, verdict: Verdict) -> str:
    """The text of the file; run it with the package on the path."""
    says = "\n".join(f"# {line}".rstrip() for line in verdict.text.splitlines()[-30:])
    head = case.source.replace(
        "import deuteron as dn\n",
        "import base64\nimport zlib\n\nimport numpy as np\n\nimport deuteron as dn\n", 1,
    ).replace(
        "import libdevice\n",
        "import libdevice\nfrom deuteron.lang.frontend import PythonFrontend\n"
        "from deuteron.runtime.jit import JITFunction\n", 1,
    )  # fmt: skip
    arrays: list[str] = []
    for spec in case.arrays:
        bits = initial(spec)
        text = base64.b85encode(zlib.compress(bits.tobytes(), 9)).decode()
        pieces = [text[i : i + 88] for i in range(0, len(text), 88)]
        lines = "\n".join(f"        {piece!r}" for piece in pieces)
        arrays.append(
            f"    {spec.name!r}: ({spec.dtype!r}, {bits.dtype.name!r}, (\n{lines}\n    )),"
        )
    data = "\n".join(arrays)
    return (
        f"# {verdict.kind}\n{says}\n{head}\n\nGRID = {case.grid}\nSCALARS = {case.scalars}\n"
        f"ALIASES = {case.alias_of}\nARRAYS = {{\n{data}\n}}\n{_MAIN}"
    )
