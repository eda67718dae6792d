"""Keys of kernels, changes of globals, and lowering as the runtime asks for it."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import deuteron.language as tl
from deuteron.dtypes import float32, int32
from deuteron.errors import CompilationError, InternalError
from deuteron.ir import Pointer, Type, format_function
from deuteron.lang import operators
from deuteron.lang.codegen import Argument, lower_kernel
from deuteron.lang.frontend import PythonFrontend, parse_element
from deuteron.lang.jit import jit
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.specialize import ParamSpec, Specialization

HEADER = """
import math
from collections import namedtuple
import deuteron.language as tl
from deuteron.lang.jit import jit
from deuteron.lang.constexpr_function import constexpr_function
"""
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Import a text as a module; all texts of a test lie in one file, one after the other."""

    def load(text: str) -> ModuleType:
        path = tmp_path / "kernels.py"
        path.write_text(HEADER + text)
        linecache.clearcache()
        spec = importlib.util.spec_from_file_location("kernels", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        exec(compile(HEADER + text, str(path), "exec"), module.__dict__)
        return module

    return load


def key_of(load: Load, text: str) -> str:
    return PythonFrontend().cache_key(load(text).kernel)


KERNEL = """
@jit
def inner(x):
    return x + 1

SCALE = tl.constexpr(3)
SHIFT: tl.constexpr = 4
DTYPE = tl.float32
Pair = namedtuple("Pair", ["a", "b"])

@constexpr_function
def half(n):
    return n // 2

@jit
def kernel(x_ptr, n=2):
    if n > 100:
        tl.store(x_ptr, undefined_in_a_dead_branch)
    x = inner(tl.load(x_ptr)) * SCALE + SHIFT + half(8) + math.pi
    tl.store(x_ptr, Pair(x, n).a.to(DTYPE))
"""


def test_equal_sources_have_equal_keys(load: Load) -> None:
    first = key_of(load, KERNEL)
    assert key_of(load, KERNEL) == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return x + 1", "return x + 2"),
        ("constexpr(3)", "constexpr(5)"),
        ("constexpr(3)", "constexpr(3.0)"),
        ("constexpr = 4", "constexpr = 6"),
        ("float32", "float16"),
        ("n // 2", "n // 4"),
        ('["a", "b"]', '["a", "c"]'),
        ("n=2", "n=3"),
        ("x_ptr, n=2", "x_ptr, n: tl.constexpr = 2"),
        ("\n@jit\ndef kernel", "\n\n@jit\ndef kernel"),
    ],
)
def test_key_depends_on(before: str, after: str, load: Load) -> None:
    assert before in KERNEL
    first = key_of(load, KERNEL)
    assert key_of(load, KERNEL.replace(before, after)) != first


def test_key_does_not_depend_on_what_is_not_read(load: Load) -> None:
    first = key_of(load, KERNEL)
    assert key_of(load, KERNEL + "\nOTHER = 3\n") == first


def test_mutually_recursive_functions_have_a_key(load: Load) -> None:
    module = load(
        """
@jit
def even(n: tl.constexpr):
    if n == 0:
        return 1
    return odd(n - 1)

@jit
def odd(n: tl.constexpr):
    if n == 0:
        return 0
    return even(n - 1)
"""
    )
    frontend = PythonFrontend()
    assert len(frontend.cache_key(module.even)) == 64


def changed_name(frontend: PythonFrontend, kernel: Any) -> str:
    change = frontend.globals_changed(kernel)
    assert change is not None
    return change.name


def test_changed_global_is_noticed(load: Load) -> None:
    module = load(KERNEL)
    frontend = PythonFrontend()
    assert frontend.globals_changed(module.kernel) is None  # nothing is compiled yet
    frontend.cache_key(module.kernel)
    assert frontend.globals_changed(module.kernel) is None
    module.SCALE = tl.constexpr(3)
    assert frontend.globals_changed(module.kernel) is None
    module.SCALE = tl.constexpr(4)
    assert changed_name(frontend, module.kernel) == "SCALE"
    module.SCALE = tl.constexpr(3)
    module.inner = module.kernel
    assert changed_name(frontend, module.kernel) == "inner"


def test_changed_closure_is_noticed() -> None:
    scale = tl.constexpr(2)

    @jit
    def kernel(x_ptr):
        tl.store(x_ptr, scale)

    frontend = PythonFrontend()
    frontend.cache_key(kernel)
    assert frontend.globals_changed(kernel) is None
    scale = tl.constexpr(3)
    assert changed_name(frontend, kernel) == "scale"


# -- the decorator -----------------------------------------------------------------------------
def test_jit_with_and_without_options() -> None:
    def kernel(x_ptr, n):
        """Doc."""

    plain = jit(kernel)
    assert isinstance(plain, JITFunction)
    assert (plain.__name__, plain.__doc__) == ("kernel", "Doc.")
    assert plain.frontend is not jit(kernel).frontend
    with_options = jit(debug=True, do_not_specialize=["n"], version=3)(kernel)
    assert (with_options.debug, with_options.version) == (True, 3)
    assert [p.do_not_specialize for p in with_options.params] == [False, True]


# -- lowering ----------------------------------------------------------------------------------
@jit
def specialised(x_ptr, n, scale, shape, flag: tl.constexpr = False):
    if flag:
        n = n * 2
    tl.store(x_ptr, tl.load(x_ptr) * scale + n + shape[0] * shape[1])


def test_lower_takes_a_specialization() -> None:
    spec = Specialization(
        (
            ParamSpec("x_ptr", "*kfp32", 16),
            ParamSpec("n", "i64"),
            ParamSpec("scale", "constexpr", value=1),
            ParamSpec(
                "shape",
                "tuple",
                1,
                (ParamSpec("shape[0]", "i32", 16), ParamSpec("shape[1]", "constexpr", value=1)),
                value=tuple,
            ),
            ParamSpec("flag", "constexpr", value=True),
        ),
        LaunchOptions(num_warps=8, debug=True, enable_fp_fusion=False),
    )
    with pytest.raises(CompilationError, match="const"):
        specialised.frontend.lower(specialised, spec)
    writable = Specialization((ParamSpec("x_ptr", "*fp32", 16), *spec.params[1:]), spec.options)
    function = specialised.frontend.lower(specialised, writable)
    assert [(p.name, str(p.type)) for p in function.params] == [
        ("x_ptr", "*fp32"), ("n", "i64"), ("shape.0", "i32"),
    ]  # fmt: skip
    assert function.param_attrs == ({"divisibility": 16}, {}, {"divisibility": 16})
    assert function.attrs == {
        "num_warps": 8, "num_stages": 3, "debug": True, "enable_fp_fusion": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("i32", int32),
        ("fp32", float32),
        ("*fp32", Pointer(float32)),
        ("*kfp32", Pointer(float32, const=True)),
    ],
)
def test_parse_element(text: str, element: object) -> None:
    assert parse_element(text) == element


# -- sources -----------------------------------------------------------------------------------
@jit
def template(x_ptr):
    tl.store(x_ptr, 1)


def test_replaced_source_is_compiled() -> None:
    copy = jit(template.fn)
    PythonFrontend().replace_source(copy, "def template(x_ptr):\n    tl.store(x_ptr, 77)\n")
    arguments = {"x_ptr": Argument(Type(Pointer(int32)))}
    assert "value=77" in format_function(lower_kernel(copy, arguments))
    assert "value=77" not in format_function(lower_kernel(template, arguments))


def test_source_given_to_exec_is_an_error() -> None:
    names: dict[str, Any] = {"tl": tl}
    exec("def kernel(x_ptr):\n    tl.store(x_ptr, 1)\n", names)
    with pytest.raises(CompilationError, match="cannot be read") as caught:
        lower_kernel(jit(names["kernel"]), {"x_ptr": Argument(Type(Pointer(int32)))})
    assert "define kernels in a file" in caught.value.remedy


def test_lambda_is_no_kernel() -> None:
    kernel = jit(lambda x_ptr: tl.store(x_ptr, 1))
    with pytest.raises(CompilationError, match="not a function definition"):
        lower_kernel(kernel, {"x_ptr": Argument(Type(Pointer(int32)))})


@pytest.mark.parametrize("changed", ["", "# one line more\n" + HEADER, "x = 1\n"])
def test_file_changed_after_import_is_an_error(changed: str, load: Load, tmp_path: Path) -> None:
    module = load("@jit\ndef kernel(x_ptr):\n    tl.store(x_ptr, 1)\n")
    (tmp_path / "kernels.py").write_text(changed)
    with pytest.raises(CompilationError, match=r"cannot be read|not a function definition"):
        lower_kernel(module.kernel, {"x_ptr": Argument(Type(Pointer(int32)))})


class Holder:
    @jit
    def method_like(x_ptr):
        text = """
a string that is indented less
"""
        tl.store(x_ptr + "no", text)


def test_places_in_indented_kernels_are_exact() -> None:
    with pytest.raises(CompilationError) as caught:
        lower_kernel(Holder.method_like, {"x_ptr": Argument(Type(Pointer(int32)))})
    loc = caught.value.loc
    assert loc.source_line[loc.col : loc.end_col] == 'x_ptr + "no"'
    line = Path(__file__).read_text().splitlines()[loc.line - 1]
    assert line == loc.source_line


@jit
def umlauts(x_ptr):
    länge = tl.load(x_ptr) + tl.arange(0, 4) + tl.arange(0, 8)  # noqa: F841


def test_carets_count_characters() -> None:
    with pytest.raises(CompilationError) as caught:
        lower_kernel(umlauts, {"x_ptr": Argument(Type(Pointer(int32)))})
    loc = caught.value.loc
    expected = "tl.load(x_ptr) + tl.arange(0, 4) + tl.arange(0, 8)"
    assert loc.source_line[loc.col : loc.end_col] == expected


def test_bugs_of_the_compiler_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise KeyError("oops")

    monkeypatch.setattr(operators, "binary", broken)
    with pytest.raises(InternalError, match=r"test_frontend\.py:\d+:\d+: .* KeyError: 'oops'"):
        lower_kernel(umlauts, {"x_ptr": Argument(Type(Pointer(int32)))})


def test_deep_nesting_is_an_error_and_no_crash(load: Load) -> None:
    terms = " + ".join(["x"] * 1500)
    module = load(f"@jit\ndef kernel(x_ptr):\n    x = 2\n    tl.store(x_ptr, {terms})\n")
    with pytest.raises(CompilationError, match="nested too deeply"):
        lower_kernel(module.kernel, {"x_ptr": Argument(Type(Pointer(int32)))})


# -- patched sources ------------------------------------------------------------------------------
@jit
def patched(out_ptr):
    tl.store(out_ptr, 1.0)


def test_a_kernel_takes_another_source():
    out = np.zeros(1, np.float32)
    for _ in range(2):
        patched[(1,)](out)
    key = patched.cache_key
    patched._unsafe_update_src(patched.src.replace("1.0", "5.0"))
    for _ in range(2):  # the second time by machine code
        patched[(1,)](out)
        assert out[0] == 5
    assert patched.cache_key != key
    assert "5.0" in patched.src


def test_a_source_that_defines_something_else():
    with pytest.raises(CompilationError, match=r"not a function definition(.*\n)*.*write `def pat"):
        patched._unsafe_update_src("def other(out_ptr): pass")


def test_the_kernel_languages_tuple_is_pythons():
    @jit
    def kernel(out_ptr):
        pair = tl.tuple((1.0, 2.0))
        tl.static_assert(isinstance(pair, tl.tuple))
        tl.store(out_ptr, pair[0] + pair[1])

    out = np.zeros(1, np.float32)
    kernel[(1,)](out)
    assert out[0] == 3
