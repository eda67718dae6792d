"""One case: through the front end, on the interpreter, compiled for this CPU, and to PTX.

The oracle runs with every access checked; the compiled kernel between guards (`tests.oracle`).
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deuteron.backends.cuda.compiler import compile_function
from deuteron.backends.cuda.target import CudaTarget
from deuteron.backends.interp.values import Array, decode, storage_dtype
from deuteron.dtypes import BY_NAME
from deuteron.errors import UNKNOWN, InternalError, OutOfBoundsError, OutOfResources, UserError
from deuteron.ir import Function
from deuteron.runtime.arrays import reinterpret
from deuteron.runtime.deep_stack import compile_deeply
from deuteron.runtime.jit import JITFunction
from deuteron.runtime.options import parse_options
from deuteron.runtime.specialize import specialize
from tests.fuzz.case import ArraySpec, Bound, Case
from tests.oracle.compare import Tolerance, mismatch
from tests.oracle.data import operand
from tests.oracle.kernels import Arg, View
from tests.oracle.runners import CpuRunner, InterpRunner

GPU = CudaTarget("sm_90a")


@dataclass(frozen=True)
class Verdict:
    """`kind` is "ok", or says where it failed: "frontend", "oracle", "compile", "result", "gpu".

    `text` tells of the failure; `refused` is the first line of what the GPU backend does not take;
    `ptx` is what it made.
    """

    kind: str
    text: str = ""
    refused: str = ""
    ptx: str = ""


@contextmanager
def loaded(source: str) -> Iterator[JITFunction]:
    """The kernel of a module with this source."""
    with tempfile.TemporaryDirectory(prefix="deuteron-fuzz-") as folder:
        path = Path(folder) / "fuzzed.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("fuzzed", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fuzzed"] = module
        try:
            spec.loader.exec_module(module)
            yield module.kernel
        finally:
            del sys.modules["fuzzed"]


def initial(spec: ArraySpec) -> Array:
    """What an array argument holds before the kernel runs: storage bits."""
    dtype = BY_NAME[spec.dtype]
    if not spec.domain:
        return np.zeros(spec.count, storage_dtype(dtype))
    return operand(dtype, spec.domain, spec.count, spec.seed)


def arguments(case: Case, function: Function) -> tuple[list[Arg], dict[str, Array]]:
    """The arguments of the lowered function, and the arrays by name."""
    arrays = {spec.name: initial(spec) for spec in case.arrays}
    named: dict[str, Arg] = {**arrays, **case.scalars}
    for name, (array, start) in case.alias_of.items():
        named[name] = View(arrays[array], start)
    return [named[p.name] for p in function.params], arrays


def lowered(case: Case, kernel: JITFunction) -> Function:
    """The IR for these arguments, as a launch would specialise it: aliases included."""
    bits = {spec.name: initial(spec) for spec in case.arrays}
    dtypes = {spec.name: BY_NAME[spec.dtype] for spec in case.arrays}
    named: dict[str, object] = {n: reinterpret(bits[n], dtypes[n]) for n in bits}
    for name, (array, start) in case.alias_of.items():
        named[name] = reinterpret(bits[array][start:], dtypes[array])
    named |= case.scalars
    options = parse_options({}, debug=True, where=kernel.__name__)
    values = [named[p] for p in case.params]
    return kernel.frontend.lower(
        kernel, specialize(kernel.__name__, kernel.params, values, options).spec
    )


def check(case: Case, *, gpu: bool = True) -> Verdict:
    """Run a case every way; whatever a DeuteronError does not explain is a failure."""
    stage = "frontend"
    try:
        with loaded(case.source) as kernel:
            function = compile_deeply(lambda: lowered(case, kernel), UNKNOWN)
            stage = "oracle"
            expected = _run(case, function, InterpRunner())
            stage = "compile"
            got = _run(case, function, CpuRunner())
            if text := difference(case, expected, got):
                return Verdict("result", text)
            stage = "gpu"
            return _gpu(case, function) if gpu else Verdict("ok")
    except OutOfResources:
        return Verdict("ok")
    except OutOfBoundsError as error:
        return Verdict("generator", str(error))
    except AssertionError as error:
        return Verdict("guard", str(error) or traceback.format_exc(limit=-4))
    except Exception:
        return Verdict(stage, traceback.format_exc(limit=-6))


def _run(case: Case, function: Function, runner: InterpRunner | CpuRunner) -> dict[str, Array]:
    args, arrays = arguments(case, function)
    runner.run(function, args, case.grid)
    return arrays


def difference(case: Case, expected: Mapping[str, Array], got: Mapping[str, Array]) -> str:
    """Where the results differ by more than their bounds, or nothing."""
    found: list[str] = []
    for spec in case.arrays:
        bound = case.bounds.get(spec.name, Bound())
        text = _mismatch(spec, bound, expected, got)
        if text:
            found.append(f"{spec.name} ({spec.dtype}): {text}")
    return "\n".join(found)


def _mismatch(
    spec: ArraySpec, bound: Bound, expected: Mapping[str, Array], got: Mapping[str, Array]
) -> str:
    dtype = BY_NAME[spec.dtype]
    want, have = expected[spec.name], got[spec.name]
    if bound.scale == "self":
        return ""  # the yardstick of another output, taken from the oracle
    if bound.scale:
        want, have = _outside(spec, bound, expected, got)
    tolerance = Tolerance(ulps=bound.ulps, zero_sign=False)
    return mismatch(want, have, dtype, tolerance)


def _outside(
    spec: ArraySpec, bound: Bound, expected: Mapping[str, Array], got: Mapping[str, Array]
) -> tuple[Array, Array]:
    """The elements that are further apart than `factor` times the magnitudes summed."""
    dtype = BY_NAME[spec.dtype]
    want, have = expected[spec.name], got[spec.name]
    values = [decode(x, dtype).astype(np.float64) for x in (want, have)]
    scale = expected[bound.scale]
    with np.errstate(all="ignore"):
        near = np.abs(values[0] - values[1]) <= bound.factor * scale
        # Where the magnitudes overflow, some orders of adding do and others do not.
        unknown = ~(scale < _greatest(spec.dtype))
        nans = np.isnan(values[0]) == np.isnan(values[1])
    differs = ~(near | (unknown & nans) | (unknown & ~np.isnan(scale)))
    return want[differs], have[differs]


def _greatest(dtype: str) -> float:
    return 1e308 if dtype == "float64" else 1e38 if dtype != "float16" else 65000.0


def _gpu(case: Case, function: Function) -> Verdict:
    warps = case.options.get("num_warps", 4)
    try:
        image = compile_deeply(
            lambda: compile_function(function, GPU, num_warps=warps), function.loc
        )
    except InternalError:
        raise
    except UserError as error:
        lines = str(error).splitlines()
        return Verdict("ok", refused=lines[0].split(": ", 1)[-1])
    return Verdict("ok", ptx=image.obj.decode())
