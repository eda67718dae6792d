"""Loads the machine code of the launch path: the pool's and the launcher's, one object.

Compiled once per machine and kept in the disk cache like any kernel.  The symbols of CPython that
it calls are given to the linker by address.

A GPU's kernels can be launched without it, more slowly.  So nobody who waits for a GPU's first
result waits for this: a thread loads it meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, PYFUNCTYPE, c_char_p, c_int, c_int32, c_int64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

import numpy as np

from deuteron.backends.cpu.describe_ir import DESCRIBE_IR, describe_structs
from deuteron.backends.cpu.launcher_ir import LAUNCHER_IR, LAUNCHER_STRUCTS
from deuteron.backends.cpu.pool_ir import POOL_STRUCTS, pool_ir
from deuteron.backends.cpu.sleep_ir import has_futex
from deuteron.backends.cpu.structs import expand
from deuteron.backends.cuda.launch_ir import CUDA_LAUNCH_IR, CUDA_STRUCTS
from deuteron.backends.llvm import compile as llvm_compile
from deuteron.backends.llvm import object_cache
from deuteron.errors import UserError

NUMPY_MAJOR = int(np.__version__.split(".", maxsplit=1)[0])

_METH_FASTCALL = 0x80
_METH_KEYWORDS = 0x02
_EXPORTS = (
    "launch", "bind_grid", "run_on_pool", "run_on_cuda", "pool_run", "pool_worker", "pool_wake",
    "pool_set_threads",
)  # fmt: skip

# What is called of CPython, with LLVM's result and parameter types: all of the stable ABI but
# PyObject_VectorcallMethod, which is public since 3.9.
_PYTHON_FUNCTIONS = {
    "PyBytes_AsString": ("ptr", "ptr"),
    "PyBytes_FromStringAndSize": ("ptr", "ptr, i64"),
    "PyCFunction_NewEx": ("ptr", "ptr, ptr, ptr"),
    "PyCallable_Check": ("i32", "ptr"),
    "PyDict_GetItemWithError": ("ptr", "ptr, ptr"),
    "PyDict_New": ("ptr", ""),
    "PyDict_SetItem": ("i32", "ptr, ptr, ptr"),
    "PyErr_Clear": ("void", ""),
    "PyEval_RestoreThread": ("void", "ptr"),
    "PyEval_SaveThread": ("ptr", ""),
    "PyFloat_AsDouble": ("double", "ptr"),
    "PyLong_AsLongLongAndOverflow": ("i64", "ptr, ptr"),
    "PyLong_FromLongLong": ("ptr", "i64"),
    "PyObject_CallNoArgs": ("ptr", "ptr"),
    "PyObject_CallOneArg": ("ptr", "ptr, ptr"),
    "PyObject_VectorcallMethod": ("ptr", "ptr, ptr, i64, ptr"),
    "PyTuple_GetItem": ("ptr", "ptr, i64"),
    "PyTuple_New": ("ptr", "i64"),
    "PyTuple_Pack": ("ptr", "i64, ..."),
    "PyTuple_SetItem": ("i32", "ptr, i64, ptr"),
    "PyTuple_Size": ("i64", "ptr"),
    "Py_DecRef": ("void", "ptr"),
    "Py_IncRef": ("void", "ptr"),
}
_PYTHON_OBJECTS: dict[str, object] = {
    "PyBool_Type": bool,
    "PyFloat_Type": float,
    "PyLong_Type": int,
    "PyTuple_Type": tuple,
    "_Py_NoneStruct": None,
    "_Py_TrueStruct": True,
}
_LAUNCH_METHOD = "deuteron_launch_method"  # the PyMethodDef of `launch`
_KEEP: list[object] = []  # built-in functions point to their definition for ever


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [("name", c_char_p), ("function", c_void_p), ("flags", c_int), ("doc", c_char_p)]


@dataclass(frozen=True, slots=True)
class Code:
    """The functions, callable from Python.

    `bind_grid(kernel_bytes, grid, owner)` returns the built-in function that launches;
    `pool_run` is called with the GIL held and releases it itself, `pool_worker` without.
    `run_on_pool` and `run_on_cuda` are addresses, for records.
    """

    bind_grid: Callable[[bytes, object, object], Callable[..., Any]]
    run_on_pool: int
    run_on_cuda: int
    pool_run: Callable[[int, int, int, int, int, int, int], int]
    pool_worker: Callable[[int, int, int], int]
    pool_wake: Callable[[int, int], None]
    pool_set_threads: Callable[[int, int], int]


_CODE: list[Code] = []  # the one of this process, once loaded
_LOADING = threading.RLock()

if hasattr(os, "register_at_fork"):  # a child never inherits half of a load
    os.register_at_fork(
        before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.release
    )


def code() -> Code:
    """The launch path's code for this machine.  Stays loaded for the life of the process.

    Raises UserError on a Python without GIL, whose objects are laid out otherwise.
    """
    if not _CODE:
        with _LOADING:
            if not _CODE:
                machine = llvm_compile.host_machine().architecture
                _CODE.append(load_code(machine, has_futex(machine, sys.platform)))
    return _CODE[0]


def is_loaded() -> bool:
    """Whether `code` answers at once."""
    return bool(_CODE)


def load_in_background() -> None:
    """Let `code` answer at once some time later.

    A thread loads it, for most of its time in LLVM and without the GIL.  The process does not end
    before it is done.
    """
    if _CODE or not _LOADING.acquire(blocking=False):
        return  # it is loaded, or being loaded
    _LOADING.release()
    threading.Thread(target=_load_quietly, name="deuteron-launch-path").start()


def _load_quietly() -> None:
    with contextlib.suppress(Exception):  # whoever asks for the code is told
        code()


def load_code(machine: str, futex: bool) -> Code:
    """Compile or fetch the code, and wrap it; `futex` False has workers park in Python."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise UserError(
            "kernels cannot be launched from a free-threaded Python\n"
            "  remedy:   use a Python with the GIL; kernels run with the GIL released"
        )
    definition = _MethodDef(b"launch", None, _METH_FASTCALL | _METH_KEYWORDS, None)
    imports = _python_symbols() | {_LAUNCH_METHOD: ctypes.addressof(definition)}
    obj = _object(launch_path_ir(machine, futex))
    address = llvm_compile.load_object(obj, _EXPORTS, imports)
    definition.function = address["launch"]
    binder = _MethodDef(b"bind_grid", address["bind_grid"], _METH_FASTCALL, None)
    _KEEP.extend([definition, binder])
    return Code(
        _builtin(binder),
        address["run_on_pool"],
        address["run_on_cuda"],
        PYFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p)(
            address["pool_run"]
        ),
        CFUNCTYPE(c_int32, c_void_p, c_int32, c_int32)(address["pool_worker"]),
        PYFUNCTYPE(None, c_void_p, c_int32)(address["pool_wake"]),
        PYFUNCTYPE(c_int32, c_void_p, c_int32)(address["pool_set_threads"]),
    )


def python_names() -> frozenset[str]:
    """The symbols that are given to the linker by address."""
    return frozenset((*_PYTHON_FUNCTIONS, *_PYTHON_OBJECTS, _LAUNCH_METHOD))


def launch_path_ir(machine: str, futex: bool) -> str:
    """The whole module's LLVM text."""
    declarations = [
        f"declare {result} @{name}({params})"
        for name, (result, params) in _PYTHON_FUNCTIONS.items()
    ]
    globals_ = [f"@{name} = external global i8" for name in (*_PYTHON_OBJECTS, _LAUNCH_METHOD)]
    structs = (
        *POOL_STRUCTS, *describe_structs(NUMPY_MAJOR), *LAUNCHER_STRUCTS, *CUDA_STRUCTS,
    )  # fmt: skip
    bodies = [pool_ir(machine, futex), DESCRIBE_IR, LAUNCHER_IR, CUDA_LAUNCH_IR]
    return expand("\n".join([*declarations, *globals_, *bodies]), structs)


def _object(text: str) -> bytes:
    machine = llvm_compile.host_machine()
    key = f"launch path\n{machine}\n{text}"
    stored = object_cache.load(key)
    if stored is not None:
        return stored.obj
    obj = llvm_compile.compile_object(text, machine).obj
    object_cache.store(key, {}, obj)
    return obj


def _python_symbols() -> dict[str, int]:
    functions = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p).value or 0
        for name in _PYTHON_FUNCTIONS
    }
    return functions | {name: id(value) for name, value in _PYTHON_OBJECTS.items()}


def _builtin(definition: _MethodDef) -> Callable[..., Any]:
    new = PYFUNCTYPE(py_object, c_void_p, c_void_p, c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return new(ctypes.addressof(definition), None, None)
