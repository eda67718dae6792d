"""Random control flow: generated functions must give in a kernel what they give in Python.

Every function takes and changes four integers, kept below 1024 so that nothing wraps.
"""

from __future__ import annotations

import importlib.util
import linecache
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import pytest

from deuteron.backends.interp import run
from deuteron.dtypes import int32
from deuteron.ir import Pointer, Type, verify
from deuteron.lang.codegen import Argument, lower_kernel

NAMES = ("a", "b", "c", "d")
HEADER = """
import deuteron.language as tl
from deuteron.lang.jit import jit

@jit
def kernel(out_ptr, a, b):
    r0, r1 = function_2(a, b, 3, 4)
    tl.store(out_ptr, r0)
    tl.store(out_ptr + 1, r1)
"""


class Program:
    """Writes one function after the other; later ones call earlier ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.loops = 0
        self.functions = 0

    def write(self) -> str:
        for _ in range(3):
            self.function()
        return HEADER + "\n".join(self.lines) + "\n"

    def function(self) -> None:
        self.lines += ["", "@jit", f"def function_{self.functions}(a, b, c, d):"]
        self.lines.append("    a, b, c, d = a + 0, b + 0, c + 0, d + 0")
        self.block(1, in_loop=False, statements=self.random.randint(3, 6))
        self.lines.append(f"    return {self.random.choice(NAMES)}, {self.expression()} & 1023")
        self.functions += 1

    def block(self, depth: int, *, in_loop: bool, statements: int) -> None:
        for _ in range(statements):
            self.statement(depth, in_loop=in_loop)

    def statement(self, depth: int, *, in_loop: bool) -> None:
        pad, pick = "    " * depth, self.random.random()
        if depth > 3 or pick < 0.4:
            self.lines.append(f"{pad}{self.random.choice(NAMES)} = ({self.expression()}) & 1023")
        elif pick < 0.5:
            x, y = self.random.sample(NAMES, 2)
            self.lines.append(f"{pad}{x}, {y} = {y}, ({x} + {self.random.choice(NAMES)}) & 1023")
        elif pick < 0.55 and self.functions:
            callee = self.random.randrange(self.functions)
            x, y = self.random.sample(NAMES, 2)
            self.lines.append(f"{pad}{x}, {y} = function_{callee}(a, b, {y}, d)")
        elif pick < 0.8:
            self.lines.append(f"{pad}if {self.condition()}:")
            self.branch(depth, in_loop=in_loop)
            if self.random.random() < 0.3:
                self.lines.append(f"{pad}elif {self.condition()}:")
                self.branch(depth, in_loop=in_loop)
            if self.random.random() < 0.6:
                self.lines.append(f"{pad}else:")
                self.branch(depth, in_loop=in_loop)
        else:
            self.loop(depth)

    def branch(self, depth: int, *, in_loop: bool) -> None:
        self.block(depth + 1, in_loop=in_loop, statements=self.random.randint(1, 2))
        if not in_loop and self.random.random() < 0.35:
            self.lines.append(f"{'    ' * (depth + 1)}return {self.random.choice(NAMES)}, b")

    def loop(self, depth: int) -> None:
        pad, name = "    " * depth, f"i{self.loops}"
        self.loops += 1
        match self.random.randrange(3):
            case 0:
                self.lines.append(f"{pad}for {name} in range({self.random.choice(NAMES)} & 3):")
            case 1:
                step = self.random.choice((-2, -1, 2))
                self.lines.append(f"{pad}for {name} in range(a & 7, b & 7, {step}):")
            case _:
                self.lines.append(f"{pad}{name} = {self.random.randint(0, 4)}")
                self.lines.append(f"{pad}while {name} < 4 and {self.condition()}:")
                self.lines.append(f"{pad}    {name} += 1")
        self.lines.append(f"{pad}    {self.random.choice(NAMES)} = (c + {name} * 3) & 1023")
        self.block(depth + 1, in_loop=True, statements=self.random.randint(1, 2))

    def expression(self) -> str:
        x, y = self.random.choices(NAMES, k=2)
        number = self.random.randint(1, 9)
        forms = (
            f"{x} + {y}",
            f"{x} * {number} - {y}",
            f"({x} if {self.condition()} else {y} + {number})",
            f"{x} // {number} + {y} % {number}",
            f"max({x}, {y}) - min({x}, {number})",
            f"({x} ^ {y}) | {number}",
        )
        return self.random.choice(forms)

    def condition(self) -> str:
        x, y = self.random.choices(NAMES, k=2)
        number = self.random.randint(0, 9)
        forms = (
            f"{x} < {y}",
            f"{x} % 3 == {number % 3}",
            f"{number} <= {x} < {y} + 40",
            f"not ({x} > {y} or {y} == {number})",
            f"{x} > {number} and {y} != {number}",
        )
        return self.random.choice(forms)


def load(text: str, path: Path) -> ModuleType:
    path.write_text(text)
    linecache.clearcache()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_python(text: str, a: int, b: int) -> list[int]:
    """What the last function of a module gives when Python runs the module without @jit."""
    names: dict[str, object] = {}
    exec(text.replace("@jit\n", ""), names)
    result = names["function_2"](a, b, 3, 4)  # type: ignore[operator]
    return list(result)


@pytest.mark.parametrize("seed", range(25))
def test_random_function_agrees_with_python(seed: int, tmp_path: Path) -> None:
    text = Program(seed).write()
    kernel = load(text, tmp_path / f"program_{seed}.py").kernel
    i32 = Argument(Type(int32))
    function = lower_kernel(kernel, {"out_ptr": Argument(Type(Pointer(int32))), "a": i32, "b": i32})
    verify(function)
    for a, b in ((0, 0), (5, 2), (2, 7), (100, 99)):
        out = np.full(2, -1, np.int32)
        run(function, [out, a, b], (1, 1, 1))
        assert out.tolist() == in_python(text, a, b), f"a={a} b={b}\n{text}"
