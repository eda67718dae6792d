"""Launches with one mistake each; `test_launch_errors.py` compares what is said about them.

Run as a program it makes every mistake twice, before and after a good launch, and prints the
messages as JSON: a mistake must never end the process.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import torch

import deuteron as dn
import deuteron.language as tl

GRID = (1,)
X = np.zeros(64, np.float32)
OUT = np.zeros(64, np.float32)
READ_ONLY = np.broadcast_to(np.float32(0), 64)
MATRIX = np.zeros((1024, 1024), np.float64)
FACTOR = tl.constexpr(2.0)
MISTAKES: dict[str, Callable[[], object]] = {}
COMPILED_ONLY = {"tiles_beyond_memory", "tiles_beyond_memory_of_threads"}


def mistake(function: Callable[[], object]) -> Callable[[], object]:
    MISTAKES[function.__name__] = function
    return function


@dn.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) * factor, at < n)


@dn.jit
def typed(x_ptr: "*fp32", n: tl.int8, scale: tl.float32):  # noqa: F722
    tl.store(x_ptr, n * scale)


@dn.jit
def doubled(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) * FACTOR)


@dn.jit
def sums(x_ptr, n, COUNT: tl.constexpr):
    at = x_ptr + tl.arange(0, 1024)[:, None] * 1024 + tl.arange(0, 1024)[None, :]
    kept = [tl.zeros((1024, 1024), tl.float64) for _ in tl.static_range(COUNT)]
    for _ in range(n):
        kept = tuple([tile + tl.load(at) for tile in kept])
    for i in tl.static_range(COUNT):
        tl.store(at, kept[i])


# -- counts and names --------------------------------------------------------------------------
@mistake
def no_arguments():
    scale[GRID]()


@mistake
def too_few_arguments():
    scale[GRID](X, OUT, 64, BLOCK=64)


@mistake
def too_many_arguments():
    scale[GRID](X, OUT, 64, 2.0, 64, 4)


@mistake
def misspelt_argument():
    scale[GRID](X, OUT, 64, 2.0, BLOK=64)


@mistake
def misspelt_option():
    scale[GRID](X, OUT, 64, 2.0, BLOCK=64, num_wraps=8)


@mistake
def argument_given_twice():
    scale[GRID](X, OUT, 64, 2.0, 64, n=64)


@mistake
def bad_option():
    scale[GRID](X, OUT, 64, 2.0, BLOCK=64, num_warps=3)


@mistake
def called_without_grid():
    scale(X, OUT, 64, 2.0, BLOCK=64)


@mistake
def over_several_lines():
    scale[GRID](
        X,
        OUT,
        64,
    )


# -- kinds of values ---------------------------------------------------------------------------
@mistake
def list_as_argument():
    scale[GRID]([1.0, 2.0], OUT, 64, 2.0, BLOCK=64)


@mistake
def list_in_a_tuple():
    scale[GRID](X, OUT, 64, (2.0, [3.0]), BLOCK=64)


@mistake
def list_as_constexpr():
    scale[GRID](X, OUT, 64, 2.0, BLOCK=[64])


@mistake
def array_as_constexpr():
    scale[GRID](X, OUT, 64, 2.0, BLOCK=X)


@mistake
def string_as_argument():
    scale[GRID](X, OUT, 64, "2.0", BLOCK=64)


@mistake
def complex_number():
    scale[GRID](X, OUT, 64, 2j, BLOCK=64)


@mistake
def too_large_an_integer():
    scale[GRID](X, OUT, 2**64, 2.0, BLOCK=64)


@mistake
def integer_beyond_its_annotation():
    typed[GRID](X, 300, 1.0)


@mistake
def float_for_an_integer():
    typed[GRID](X, 2.5, 1.0)


@mistake
def number_for_an_array():
    typed[GRID](3.0, 2, 1.0)


@mistake
def array_for_a_number():
    typed[GRID](X, 2, X)


@mistake
def array_of_another_dtype():
    typed[GRID](X.astype(np.float64), 2, 1.0)


# -- arrays ------------------------------------------------------------------------------------
@mistake
def mixed_devices():
    scale[GRID](X, torch.zeros(64, device="meta"), 64, 2.0, BLOCK=64)


@mistake
def no_backend_for_the_device():
    elsewhere = torch.zeros(64, device="meta")
    scale[GRID](elsewhere, elsewhere, 64, 2.0, BLOCK=64)


@mistake
def read_only_output():
    scale[GRID](X, READ_ONLY, 64, 2.0, BLOCK=64)


@mistake
def array_of_complex_numbers():
    scale[GRID](X.astype(np.complex64), OUT, 64, 2.0, BLOCK=64)


@mistake
def array_of_objects():
    scale[GRID](X.astype(object), OUT, 64, 2.0, BLOCK=64)


@mistake
def array_of_swapped_bytes():
    scale[GRID](X.astype(">f4"), OUT, 64, 2.0, BLOCK=64)


@mistake
def unaligned_array():
    scale[GRID](np.zeros(257, np.uint8)[1:].view(np.float32), OUT, 64, 2.0, BLOCK=64)


@mistake
def sparse_tensor():
    scale[GRID](torch.zeros(64).to_sparse(), OUT, 64, 2.0, BLOCK=64)


@mistake
def reinterpreted_under_another_width():
    dn.reinterpret(X, tl.float16)


# -- grids -------------------------------------------------------------------------------------
@mistake
def negative_grid():
    scale[(-1,)](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def too_large_an_axis():
    scale[(1, 2**31)](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def too_many_programs():
    scale[(2**31 - 1, 2**31 - 1, 2)](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def grid_of_floats():
    scale[(64 / 64,)](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def number_as_grid():
    scale[4](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def empty_grid():
    scale[()](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def grid_of_four_axes():
    scale[(1, 1, 1, 1)](X, OUT, 64, 2.0, BLOCK=64)


@mistake
def callable_gives_no_grid():
    scale[lambda meta: meta["n"] // meta["BLOCK"]](X, OUT, 64, 2.0, BLOCK=64)


# -- resources ---------------------------------------------------------------------------------
@mistake
def tiles_beyond_memory():
    sums[GRID](MATRIX, 3, COUNT=34)


@mistake
def tiles_beyond_memory_of_threads():
    before = dn.get_num_threads()
    dn.set_num_threads(100)
    try:
        sums[GRID](MATRIX, 3, COUNT=2)
    finally:
        dn.set_num_threads(before)


# -- kernels -----------------------------------------------------------------------------------
@mistake
def another_constant_outside():
    global FACTOR
    FACTOR = tl.constexpr(2.0)
    doubled[GRID](X)
    FACTOR = tl.constexpr(3.0)
    try:
        doubled[GRID](X)
    finally:
        FACTOR = tl.constexpr(2.0)


@mistake
def compiled_kernel_for_other_arguments():
    compiled = scale.warmup(X, OUT, 64, 2.0, BLOCK=64, grid=GRID)
    compiled[GRID](X.astype(np.float64), OUT, 64, 2.0)


@mistake
def compiled_kernel_with_too_few_arguments():
    compiled = scale.warmup(X, OUT, 64, 2.0, BLOCK=64, grid=GRID)
    compiled[GRID](X, OUT)


@mistake
def kernel_with_keyword_arguments():
    @dn.jit
    def kernel(x_ptr, **options):
        pass


@mistake
def unknown_parameter_not_to_specialize():
    dn.jit(scale.fn, do_not_specialize=["m"])


@mistake
def language_outside_of_a_kernel():
    tl.exp(1.0)


@mistake
def no_threads():
    dn.set_num_threads(0)


def messages() -> dict[str, tuple[str, str]]:
    """For each mistake the type of its error, and its text."""
    made: dict[str, tuple[str, str]] = {}
    for name, make in MISTAKES.items():
        if dn.jit(scale.fn).interpret and name in COMPILED_ONLY:
            continue
        try:
            made[name] = ("nothing", repr(make()))
        except Exception as error:
            made[name] = (type(error).__name__, str(error))
    return made


if __name__ == "__main__":
    first = messages()
    scale[GRID](X, OUT, 64, 2.0, BLOCK=64)
    scale[GRID](X, OUT, 64, 2.0, BLOCK=64)
    json.dump([first, messages()], sys.stdout)
