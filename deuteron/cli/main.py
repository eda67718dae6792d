"""Entry point of the command `deuteron`: arguments to the command that serves them.

Exit codes: 0 done, 1 a result was wrong or a kernel failed, 2 the command was given wrongly,
130 interrupted.  A command's module is imported only when it is asked for, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from deuteron import __version__
from deuteron.cli import UsageError
from deuteron.cli.console import error_console
from deuteron.errors import DeuteronError


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    parser = argparse.ArgumentParser(
        prog="deuteron",
        description="Tile kernels in Python, compiled for this CPU and NVIDIA GPUs.",
    )
    parser.add_argument("--version", action="version", version=f"deuteron {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _describe_demo(
        commands.add_parser(
            "demo",
            help="compile and run six kernels, check them against NumPy, show how fast they are",
        )
    )
    _describe_inspect(
        commands.add_parser(
            "inspect",
            help="show what becomes of a kernel: source, IR after each pass, LLVM, assembly or PTX",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _describe_run(
        commands.add_parser("run", help="run a Python program in which `import triton` gives ours")
    )
    _describe_compile(
        commands.add_parser(
            "compile",
            help="compile a kernel for C programs: an object file, a header and a description",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    commands.add_parser("env", help="show what was detected on this machine, and why if it is off")
    return parser


def _describe_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE as well")
    parser.add_argument("--quick", action="store_true", help="measure for a shorter time")


def _describe_inspect(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  deuteron inspect deuteron.ops.softmax:softmax_kernel\n"
        "  deuteron inspect examples/01_vector_add.py:add_kernel --show asm\n"
        "  deuteron inspect my.py:add --signature '*fp32,*fp32,*fp32,i32,BLOCK=1024'\n"
        "  deuteron inspect my.py:add --target apple-m1 --show asm\n"
        "  deuteron inspect my.py:add --target sm_90a --show layouts,ptx"
    )
    parser.add_argument("kernel", metavar="FILE.py:KERNEL", help="or package.module:KERNEL")
    parser.add_argument(
        "--signature",
        metavar="TYPES",
        default="",
        help="comma list: one type an argument in order (*fp32, *bf16, i32, fp32, … or a number "
        "for an exact value) and NAME=VALUE for constexprs; what is left out is guessed",
    )
    parser.add_argument(
        "--target",
        metavar="MACHINE",
        default="",
        help="compile for another CPU (x86-64-v3, aarch64, apple-m1, windows-x86-64, …) or NVIDIA "
        "GPU (sm_80, sm_90a, …); neither is needed here",
    )
    parser.add_argument(
        "--show",
        metavar="PARTS",
        help="comma list of source, ir, passes, llvm, asm; for a GPU source, ir, passes, layouts, "
        "llvm, ptx (default: all but ir)",
    )


def _describe_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", metavar="PROGRAM", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")


def _describe_compile(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  deuteron compile my.py:add --signature '*fp32,*fp32,*fp32,i32,BLOCK=1024' --out build\n"
        "  deuteron compile my.py:add --signature '*fp32,*fp32,*fp32,i32:16,BLOCK=1024' \\\n"
        "      --signature '*fp32:1,*fp32:1,*fp32:1,i32,BLOCK=1024' --target znver4 --out build\n"
        "  deuteron compile my.py:add --signature '*fp32,*fp32,*fp32,i32,BLOCK=1024' "
        "--target sm_90a --out build"
    )
    parser.add_argument("kernel", metavar="FILE.py:KERNEL", help="or package.module:KERNEL")
    parser.add_argument(
        "--signature",
        metavar="TYPES",
        action="append",
        help="as for inspect, with nothing left out that has no default; given several times, a "
        "call runs the best of them that fits its arguments",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="where files go")
    parser.add_argument("--name", help="of functions and files (default: the kernel's)")
    parser.add_argument(
        "--target",
        metavar="ARCH",
        default="",
        help="a CPU (x86-64-v3, znver4, neoverse-v1, apple-m1, …; default: this one) or an NVIDIA "
        "GPU (sm_80, sm_90a, …)",
    )
    parser.add_argument(
        "--shared", action="store_true", help="a shared library, linked by the system's C compiler"
    )
    parser.add_argument(
        "--may-overlap", action="store_true", help="arrays may overlap; slower where that matters"
    )
    parser.add_argument("--debug", action="store_true", help="check device_assert")
    gpu = parser.add_argument_group("for a GPU")
    gpu.add_argument("--num-warps", type=int, metavar="N", help="of a program")
    gpu.add_argument("--num-stages", type=int, metavar="N", help="turns of a loop in flight")
    gpu.add_argument("--maxnreg", type=int, metavar="N", help="registers of a thread at most")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return import_module(f"deuteron.cli.{arguments.command}").run(arguments)
    except UsageError as error:
        _complain(str(error))
        return 2
    except DeuteronError as error:
        _complain(str(error))
        return 1
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130


def _complain(message: str) -> None:
    error_console().print(f"deuteron: {message}", style="red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
