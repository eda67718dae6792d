"""What a call is compiled for: the type of each argument, and what else is known of it.

The rules are Triton's.  An int is i32, i64 or u64 by its value, and a constexpr when it is 1; ints
and addresses divisible by 16 are known to be; a bool is int1, a float fp32, None a constexpr.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from deuteron.dtypes import DType, float32, int1, int32, int64, int_range, uint64
from deuteron.errors import LaunchError
from deuteron.ir.types import Pointer
from deuteron.runtime.arrays import (
    ANYWHERE,
    CPU,
    CUDA,
    ArrayArgument,
    as_dtype,
    describe_array,
)
from deuteron.runtime.descriptors import DescriptorKind, TensorDescriptor
from deuteron.runtime.options import LaunchOptions
from deuteron.runtime.parameters import KernelParam

DIVISIBILITY = 16
CONSTEXPR = "constexpr"
TUPLE = "tuple"


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter, specialised.

    `type` is an IR type (`*fp32`, `*kfp32` for a const pointer, `i32`), "constexpr" with its
    `value`, or "tuple" with its `elements` (`value` is then the tuple's class, or the
    `DescriptorKind` of a tensor descriptor).  `divisibility` is 16 when an int or an address is
    known to be a multiple, else 1.  `same_as` names the earlier argument that an array is, too: of
    the same type and address.
    """

    name: str
    type: str
    divisibility: int = 1
    elements: tuple[ParamSpec, ...] = ()
    identity: Hashable = None
    value: Any = field(default=None, compare=False)
    same_as: str = ""

    @property
    def is_constexpr(self) -> bool:
        return self.type == CONSTEXPR

    def leaves(self) -> Iterator[ParamSpec]:
        """The run-time arguments in it, in order: none, itself, or those of a tuple."""
        if self.type == TUPLE:
            for element in self.elements:
                yield from element.leaves()
        elif not self.is_constexpr:
            yield self

    def __str__(self) -> str:
        match self.type:
            case "constexpr":
                return f"{self.name}={self.value!r}"
            case "tuple":
                return f"{self.name}: ({', '.join(map(str, self.elements))})"
            case _:
                suffix = f":{self.divisibility}" if self.divisibility > 1 else ""
                same = f" = {self.same_as}" if self.same_as else ""
                return f"{self.name}: {self.type}{suffix}{same}"


@dataclass(frozen=True, slots=True)
class Specialization:
    """What one compilation depends on, beside the kernel's source.

    `aliased` says that two array arguments may overlap; without it those that are not known to be
    the same are apart.  `device` is where the arrays lie: "cpu", "cuda:0", …
    """

    params: tuple[ParamSpec, ...]
    options: LaunchOptions = field(default_factory=LaunchOptions)
    aliased: bool = False
    device: str = CPU

    def leaves(self) -> Iterator[ParamSpec]:
        """The run-time arguments, in slot order."""
        for param in self.params:
            yield from param.leaves()

    def stable_text(self) -> str | None:
        """A text equal in every process for equal specialisations; None when there is none.

        The device is left out: its backend's key says all that matters.
        """
        parts: list[str] = []
        for param in self.params:
            text = _stable_param(param)
            if text is None:
                return None
            parts.append(text)
        return f"{', '.join(parts)}; {self.options}; aliased={self.aliased}"

    def __str__(self) -> str:
        return ", ".join(map(str, self.params))


@dataclass(frozen=True, slots=True)
class Request:
    """A call ready to be compiled and run: `values` are addresses and numbers, one a leaf.

    `arrays` are the array arguments with their parameters' names.  `stream` is the launch option,
    as it was given.
    """

    spec: Specialization
    values: tuple[int | float, ...]
    arrays: tuple[tuple[str, ArrayArgument], ...]
    stream: object = None


class _Describer:
    """Collects the specs, values and arrays of a call's arguments."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.values: list[int | float] = []
        self.arrays: list[tuple[str, ArrayArgument]] = []
        self.aliased = False
        self._types: list[str] = []

    def describe(self, param: KernelParam, value: Any, name: str) -> ParamSpec:
        """The spec of one argument; usual types are looked for first."""
        if param.is_constexpr:
            return self._constant(name, unwrap_constexpr(value))
        if type(value) is np.ndarray:
            return self._array(param, name, value)
        if type(value) is int:
            return self._int(param, name, value)
        if value is None or is_kernel_constant(value):
            return self._constant(name, unwrap_constexpr(value))
        if isinstance(value, tuple):
            return self._tuple(param, name, cast("tuple[object, ...]", value))
        if isinstance(value, TensorDescriptor):
            return self._descriptor(param, name, value)
        if isinstance(value, (bool, np.bool_)):
            return self._bool(param, name, bool(cast(bool, value)))
        if isinstance(value, (float, np.floating)):
            return self._float(param, name, float(cast(float, value)))
        if isinstance(value, (int, np.integer)):
            return self._int(param, name, int(cast(int, value)))
        return self._array(param, name, value)

    def _tuple(self, param: KernelParam, name: str, value: tuple[object, ...]) -> ParamSpec:
        elements = tuple(
            self.describe(param, element, f"{name}[{i}]") for i, element in enumerate(value)
        )
        kind = cast("type[object]", type(value))
        return ParamSpec(name, TUPLE, 1, elements, kind, kind)

    def _descriptor(self, param: KernelParam, name: str, value: TensorDescriptor) -> ParamSpec:
        """A pointer, the sizes, the strides; the last of these is 1 for every descriptor."""
        kind = value.kind
        pointer = self._array(param, f"{name}.base", value.base)
        sizes = [self._size(f"{name}.shape[{i}]", int32, n) for i, n in enumerate(value.shape)]
        steps = [
            self._size(f"{name}.strides[{i}]", int64, n) for i, n in enumerate(value.strides[:-1])
        ]
        last = self._constant(f"{name}.strides[{len(steps)}]", 1)
        return ParamSpec(name, TUPLE, 1, (pointer, *sizes, *steps, last), kind, kind)

    def _size(self, name: str, dtype: DType, value: int) -> ParamSpec:
        if not _fits(value, dtype):
            low, high = int_range(dtype)
            raise _mismatch(self._where(name), f"{low} to {high}, for {dtype}", str(value))
        self.values.append(value)
        return ParamSpec(name, dtype.short, 1 if value % DIVISIBILITY else DIVISIBILITY)

    def _where(self, name: str) -> str:
        return f"kernel {self.kernel}, argument {name!r}"

    def _constant(self, name: str, value: object) -> ParamSpec:
        array = None if isinstance(value, type) else describe_array(value, self._where(name))
        if array is not None:
            raise LaunchError(
                f"{self._where(name)}: an array cannot be a constexpr\n"
                "  expected: a value known when the kernel is compiled, such as an int\n"
                f"  got:      {type(value).__name__}\n"
                "  remedy:   drop the tl.constexpr annotation, or pass a number"
            )
        try:
            identity = constant_identity(value)
            hash(identity)
        except TypeError as error:
            raise LaunchError(
                f"{self._where(name)}: a constexpr must be hashable\n"
                "  expected: a number, a string, None, a dtype, a function, or a tuple of these\n"
                f"  got:      {type(value).__name__}\n"
                "  remedy:   pass a tuple instead of a list"
            ) from error
        return ParamSpec(name, CONSTEXPR, identity=identity, value=value)

    def _number(self, name: str, dtype: DType, value: int | float) -> ParamSpec:
        self.values.append(value)
        return ParamSpec(name, dtype.short)

    def _bool(self, param: KernelParam, name: str, value: bool) -> ParamSpec:
        if isinstance(param.forced, Pointer):
            raise _mismatch(self._where(name), f"an array for {param.forced}", str(value))
        return self._number(name, param.forced or int1, int(value))

    def _float(self, param: KernelParam, name: str, value: float) -> ParamSpec:
        dtype = param.forced or float32
        if isinstance(dtype, Pointer) or not dtype.is_standard_floating():
            wanted = (
                f"an array for {dtype}" if isinstance(dtype, Pointer) else f"an int for {dtype}"
            )
            raise _mismatch(self._where(name), wanted, f"the float {value!r}")
        return self._number(name, dtype, value)

    def _int(self, param: KernelParam, name: str, value: int) -> ParamSpec:
        forced = param.forced
        if isinstance(forced, Pointer):
            raise _mismatch(self._where(name), f"an array for {forced}", f"the int {value}")
        if forced is not None and forced.is_floating():
            return self._number(name, forced, float(value))
        if forced is None and value == 1 and not param.do_not_specialize:
            return self._constant(name, 1)
        dtype = forced or _int_dtype(value)
        if dtype is None or not _fits(value, dtype):
            where = self._where(name)
            if forced is None:
                wanted, remedy = "an integer of at most 64 bits", "pass it in parts, or as a float"
                raise _mismatch(where, wanted, str(value), remedy)
            low, high = int_range(forced)
            raise _mismatch(where, f"{low} to {high}, for {forced}", str(value))
        self.values.append(value)
        return ParamSpec(name, dtype.short, _divisibility(param, value))

    def _array(self, param: KernelParam, name: str, value: object) -> ParamSpec:
        array = describe_array(value, self._where(name))
        if array is None:
            raise _no_argument(self._where(name), value)
        forced = param.forced
        dtype = array.dtype
        if forced is not None:
            if not isinstance(forced, Pointer):
                raise _mismatch(self._where(name), f"a number for {forced}", "an array")
            if forced.pointee.storage_bytes != dtype.storage_bytes:
                raise _mismatch(self._where(name), f"an array of {forced.pointee}", f"{dtype}")
            dtype = forced.pointee
        const = param.is_const or (forced is not None and forced.const)
        type = str(Pointer(dtype, const))
        same = self._same_as(array, type)
        self.values.append(array.address)
        self.arrays.append((name, array))
        self._types.append(type)
        return ParamSpec(name, type, _divisibility(param, array.address), same_as=same)

    def _same_as(self, array: ArrayArgument, type: str) -> str:
        """The first argument that is this array too, or ""; notes those that only overlap it."""
        same = ""
        for (name, other), its_type in zip(self.arrays, self._types, strict=True):
            if not array.overlaps(other):
                continue
            alike = its_type == type and other.writable == array.writable
            if alike and other.address == array.address:
                same = same or name
            else:
                self.aliased = True
        return same


def specialize(
    kernel: str,
    params: Sequence[KernelParam],
    values: Sequence[object],
    options: LaunchOptions,
    stream: object = None,
) -> Request:
    """Specialise a call.  Raises LaunchError for what cannot be an argument."""
    describer = _Describer(kernel)
    specs = tuple(
        describer.describe(param, value, param.name)
        for param, value in zip(params, values, strict=True)
    )
    arrays = describer.arrays
    device = _common_device(kernel, arrays)
    spec = Specialization(specs, options, describer.aliased, device)
    return Request(spec, tuple(describer.values), tuple(arrays), stream)


def unwrap_constexpr(value: Any) -> Any:
    """The value in a `tl.constexpr`, which lives above this layer and is known by its name."""
    while type(value).__name__ == CONSTEXPR and hasattr(value, "value"):
        value = value.value
    return value


def is_kernel_constant(value: object) -> bool:
    """True for what is a constexpr whatever its parameter says: dtypes, jit functions, …"""
    named = as_dtype(value) is not None or isinstance(value, Pointer)
    is_jit_function = hasattr(type(value), "cache_key")  # on the class, where it is not computed
    return named or is_jit_function or unwrap_constexpr(value) is not value


def constant_identity(value: Any) -> Hashable:
    """Equal for constexprs that compile alike: unlike Python's ==, 1, 1.0 and True differ."""
    value = unwrap_constexpr(value)
    if isinstance(value, float):
        return float, value.hex()
    kind = cast("type[object]", type(value))
    if isinstance(value, tuple):
        return kind, *map(constant_identity, cast("tuple[object, ...]", value))
    return kind, cast(Hashable, value)


def _stable_param(param: ParamSpec) -> str | None:
    if param.type == TUPLE:
        inner = [_stable_param(element) for element in param.elements]
        known = [text for text in inner if text is not None]
        kind = str(param.value)
        if not isinstance(param.value, DescriptorKind):
            kind = f"{param.value.__module__}.{param.value.__qualname__}"
        return f"{param.name}: {kind}({', '.join(known)})" if len(known) == len(inner) else None
    if not param.is_constexpr:
        return f"{param.name}: {param.type}:{param.divisibility}:{param.same_as}"
    text = _stable_value(param.value)
    return None if text is None else f"{param.name}={text}"


def _stable_value(value: Any) -> str | None:
    value = unwrap_constexpr(value)
    if value is None or isinstance(value, (bool, int, str, bytes, DType, Pointer)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        known = [text for text in map(_stable_value, items) if text is not None]
        return f"{_class_name(items)}({', '.join(known)})" if len(known) == len(items) else None
    if (dtype := as_dtype(value)) is not None:
        return f"dtype {dtype}"
    key = getattr(value, "cache_key", None)
    return key if isinstance(key, str) else None


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _int_dtype(value: int) -> DType | None:
    for dtype in (int32, int64, uint64):
        if _fits(value, dtype):
            return dtype
    return None


def _fits(value: int, dtype: DType) -> bool:
    if dtype.is_bool():
        return value in (0, 1)
    low, high = int_range(dtype)
    return low <= value <= high


def _divisibility(param: KernelParam, value: int) -> int:
    hidden = param.do_not_specialize or param.do_not_specialize_on_alignment
    return 1 if hidden or value % DIVISIBILITY else DIVISIBILITY


def _common_device(kernel: str, arrays: Sequence[tuple[str, ArrayArgument]]) -> str:
    """Where all arrays lie; the CPU when there are none."""
    found = {array.device for _, array in arrays if array.device != ANYWHERE}
    if not found:
        return CPU
    devices = ", ".join(f"{name} on {array.device}" for name, array in arrays)
    if len(found) == 1:
        device = next(iter(found))
        if device == CPU or device.startswith(CUDA):
            return device
        raise LaunchError(
            f"kernel {kernel}: there is no backend for {device} yet\n"
            f"  expected: arrays on the CPU, or on an NVIDIA GPU\n  got:      {devices}\n"
            "  remedy:   move the arrays to the CPU: x.cpu()"
        )
    gpus = sorted(device for device in found if device.startswith(CUDA))
    if gpus:
        remedy = f"move them all to one device: x.to({gpus[0]!r}), or x.cpu()"
    else:
        remedy = "move them all to the CPU: x.cpu()"
    raise LaunchError(
        f"kernel {kernel}: the arrays are on different devices\n"
        "  expected: arrays on one device\n"
        f"  got:      {devices}\n"
        f"  remedy:   {remedy}"
    )


def _mismatch(where: str, expected: str, got: str, remedy: str = "") -> LaunchError:
    return LaunchError(
        f"{where}: wrong kind of value\n  expected: {expected}\n  got:      {got}\n"
        f"  remedy:   {remedy or 'convert it, or change the annotation of the parameter'}"
    )


def _no_argument(where: str, value: object) -> LaunchError:
    kind = type(value).__name__
    match value:
        case list():
            remedy = "pass numpy.asarray(…) of it, or a tuple for a tuple argument"
        case str():
            remedy = "annotate the parameter with tl.constexpr"
        case complex() | np.complexfloating():
            remedy = "pass its real and imaginary parts"
        case _:
            remedy = "pass an array, a number, or annotate the parameter with tl.constexpr"
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return LaunchError(
        f"{where}: {article} {kind} cannot be an argument of a kernel\n"
        "  expected: an array (NumPy, torch, DLPack), an int, a float, a bool or None\n"
        f"  got:      {kind}\n"
        f"  remedy:   {remedy}"
    )
