"""What loops are written with: `tl.range`, `tl.static_range` and `tl.condition`.

They are plain data.  The AST walker makes one where a `for` names it and builds the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from deuteron.errors import UserError
from deuteron.lang.values import constexpr, unwrap

_ONE: Final = constexpr(1)
_ZERO: Final = constexpr(0)


@dataclass(slots=True, init=False)
class range:  # noqa: N801 - the language's own spelling
    """`for i in tl.range(stop)` or `tl.range(start, stop, step)`: a loop of the kernel.

    The bounds are numbers or scalar tensors.  The other arguments are hints to the compiler:
    `num_stages` and `warp_specialize` for pipelining, `loop_unroll_factor` for unrolling,
    `flatten` for merging with the loop around, `disallow_acc_multi_buffer` and `disable_licm` to
    forbid what the names say.
    """

    start: Any
    stop: Any
    step: Any
    attrs: dict[str, Any]

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
    ) -> None:
        self.start, self.stop, self.step = _bounds(arg1, arg2, step)
        hints = {
            "num_stages": num_stages,
            "loop_unroll_factor": loop_unroll_factor,
            "disallow_acc_multi_buffer": disallow_acc_multi_buffer,
            "flatten": flatten,
            "warp_specialize": warp_specialize,
            "disable_licm": disable_licm,
        }
        plain = {name: unwrap(value) for name, value in hints.items()}
        self.attrs = {name: value for name, value in plain.items() if value}

    def __iter__(self) -> Iterator[Any]:
        raise UserError("tl.range can be iterated in a kernel only")


@dataclass(slots=True, init=False)
class static_range:  # noqa: N801
    """`for i in tl.static_range(stop)`: unrolled while the kernel is compiled.

    The bounds are constants, and so is `i` in the body.
    """

    start: Any
    stop: Any
    step: Any

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        self.start, self.stop, self.step = _bounds(arg1, arg2, step)

    def __iter__(self) -> Iterator[Any]:
        raise UserError("tl.static_range can be iterated in a kernel only")


@dataclass(slots=True, init=False)
class condition:  # noqa: N801
    """`while tl.condition(c):`, the same as `while c:`; `disable_licm` is a hint."""

    value: Any
    disable_licm: bool

    def __init__(self, arg1: Any, disable_licm: Any = False) -> None:
        self.value = arg1
        self.disable_licm = bool(unwrap(disable_licm))

    def __bool__(self) -> bool:
        raise UserError("tl.condition can be asked for in a kernel only")


def _bounds(first: Any, second: Any, step: Any) -> tuple[Any, Any, Any]:
    step = _ONE if step is None or unwrap(step) is None else step
    if second is None or unwrap(second) is None:
        return _ZERO, first, step
    return first, second, step
