"""The parameters of a kernel, and how a call's arguments are bound to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from deuteron.dtypes import BY_NAME, BY_SHORT, DType
from deuteron.errors import LaunchError
from deuteron.ir.types import Pointer
from deuteron.runtime import options as launch_options

REQUIRED: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class KernelParam:
    """One parameter.  `forced` is the type its annotation fixes, if any.

    `is_const` (annotation `tl.const`) forbids storing through a pointer.  `variadic` is `*args`.
    """

    num: int
    name: str
    annotation: object = REQUIRED
    default: object = REQUIRED
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False
    is_constexpr: bool = False
    is_const: bool = False
    forced: DType | Pointer | None = None
    variadic: bool = False
    keyword_only: bool = False

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED


@dataclass(frozen=True, slots=True)
class Bound:
    """A call's arguments: one value a parameter, in order, and the launch options by name."""

    values: tuple[object, ...]
    options: Mapping[str, object]


def kernel_params(
    function: Callable[..., Any],
    do_not_specialize: Iterable[str | int],
    do_not_specialize_on_alignment: Iterable[str | int],
) -> tuple[KernelParam, ...]:
    """The parameters of a kernel's Python function.

    The two collections name parameters or give their positions.  Raises LaunchError for `**kwargs`,
    which no kernel can have, and for a name that is no parameter.
    """
    plain, unaligned = set(do_not_specialize), set(do_not_specialize_on_alignment)
    signature = inspect.signature(function)
    names = list(signature.parameters)
    for given in (plain | unaligned) - set(names) - set(range(len(names))):
        raise LaunchError(
            f"do_not_specialize of {function.__name__}: no parameter {given!r}\n"
            f"  expected: one of {', '.join(names)}\n"
            f"  got:      {given!r}\n"
            "  remedy:   name a parameter, or give its place"
        )
    params: list[KernelParam] = []
    for num, (name, param) in enumerate(signature.parameters.items()):
        if param.kind is inspect.Parameter.VAR_KEYWORD:
            raise LaunchError(
                f"kernel {function.__name__} takes **{name}, which a kernel cannot have\n"
                "  expected: parameters with names, or *args\n"
                f"  got:      **{name}\n"
                "  remedy:   name its parameters one by one"
            )
        constexpr, const, forced = _read_annotation(param.annotation)
        params.append(
            KernelParam(
                num,
                name,
                param.annotation,
                param.default,
                name in plain or num in plain,
                name in unaligned or num in unaligned,
                constexpr,
                const,
                forced,
                param.kind is inspect.Parameter.VAR_POSITIONAL,
                param.kind is inspect.Parameter.KEYWORD_ONLY,
            )
        )
    return tuple(params)


def bind(
    kernel: str, params: Sequence[KernelParam], args: Sequence[object], kwargs: Mapping[str, object]
) -> Bound:
    """Bind arguments to parameters as Python does; other keywords are launch options.

    A keyword that names both a constexpr parameter and an option (`num_stages`) is both.  Raises
    LaunchError for missing, surplus, repeated and unknown arguments.
    """
    values: dict[str, object] = {}
    positional = [param for param in params if not param.keyword_only]
    rest = list(args)
    for param in positional:
        if param.variadic:
            values[param.name] = tuple(rest)
            rest = []
        elif rest:
            values[param.name] = rest.pop(0)
    if rest:
        raise _too_many(kernel, positional, len(args))
    by_name = {param.name: param for param in params if not param.variadic}
    options: dict[str, object] = {}
    for name, value in kwargs.items():
        param = by_name.get(name)
        if param is None and name not in launch_options.NAMES:
            raise _unknown_name(kernel, name, by_name)
        if param is not None and name in values:
            raise LaunchError(
                f"kernel {kernel}: argument {name!r} is given twice\n"
                f"  expected: {name} by position or by name\n"
                "  got:      both\n"
                f"  remedy:   take {name}=… out of the call, or what stands at its place"
            )
        if param is not None:
            values[name] = value
        if name in launch_options.NAMES and (param is None or param.is_constexpr):
            options[name] = value
    missing = [p.name for p in params if p.name not in values and not p.has_default]
    if missing:
        given = [param.name for param in params if param.name in values]
        raise _missing(kernel, params, given, missing)
    return Bound(tuple(values.get(p.name, p.default) for p in params), options)


def _read_annotation(annotation: object) -> tuple[bool, bool, DType | Pointer | None]:
    """(is constexpr, is const, forced type) of an annotation, which may be its source text."""
    if isinstance(annotation, (DType, Pointer)):
        return False, False, annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    text = str(text).strip("'\" ")
    name = text.rpartition(".")[2]
    if name == "constexpr":
        return True, False, None
    if name == "const":
        return False, True, None
    if text.startswith("*"):
        const = text.startswith("*k") and text.removeprefix("*k") in BY_SHORT
        pointee = BY_SHORT.get(text.removeprefix("*k" if const else "*"))
        return False, const, pointee and Pointer(pointee, const)
    return False, False, BY_SHORT.get(name) or BY_NAME.get(name)


def _too_many(kernel: str, positional: Sequence[KernelParam], got: int) -> LaunchError:
    names = ", ".join(param.name for param in positional)
    return LaunchError(
        f"kernel {kernel} got too many arguments\n"
        f"  expected: at most {len(positional)}: {names}\n"
        f"  got:      {got}\n"
        "  remedy:   launch options such as num_warps are given by name"
    )


def _missing(
    kernel: str, params: Sequence[KernelParam], given: Sequence[str], missing: Sequence[str]
) -> LaunchError:
    names = ", ".join(param.name for param in params)
    return LaunchError(
        f"kernel {kernel}: no argument for {', '.join(missing)}\n"
        f"  expected: {names}\n"
        f"  got:      {', '.join(given) or 'nothing'}\n"
        f"  remedy:   add {missing[0]}=… to the call"
    )


def _unknown_name(kernel: str, name: str, params: Iterable[str]) -> LaunchError:
    known = [*params, *sorted(launch_options.NAMES)]
    close = get_close_matches(name, known, n=1)
    remedy = f"did you mean {close[0]!r}?" if close else "see the kernel's parameters"
    return LaunchError(
        f"kernel {kernel} has no parameter {name!r}, and no launch option is called so\n"
        f"  expected: one of {', '.join(params)}, or a launch option\n"
        f"  got:      {name!r}\n"
        f"  remedy:   {remedy}"
    )
