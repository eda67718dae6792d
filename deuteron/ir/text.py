"""Prints tile IR for people: `kernel.asm["ir"]`, `deuteron inspect`, golden tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deuteron.dtypes import DType
from deuteron.ir.nodes import Block, For, Function, If, Node, Op, Reduce, Scan, Value, While
from deuteron.ir.types import Pointer


def format_function(function: Function) -> str:
    """The whole function, one node a line, values numbered in program order."""
    return _Printer().function(function)


class _Printer:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0

    def name(self, value: Value) -> str:
        known = self.names.get(value)
        if known is None:
            known = value.name
            if not known or known in self.used:
                known = f"{known}.{self.count}" if known else str(self.count)
                self.count += 1
            self.used.add(known)
            self.names[value] = known
        return f"%{known}"

    def list(self, values: Sequence[Value]) -> str:
        return ", ".join(self.name(v) for v in values)

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def function(self, function: Function) -> str:
        params = ", ".join(
            f"{self.name(p)}: {p.type}{self.attrs(a)}"
            for p, a in zip(function.params, function.param_attrs, strict=True)
        )
        self.line(f"func @{function.name}({params}){self.attrs(function.attrs)} {{")
        self.nodes(function.body)
        self.line("}")
        return "\n".join(self.lines) + "\n"

    def attrs(self, attrs: Any) -> str:
        shown = [f"{k}={self.attr(v)}" for k, v in attrs.items() if v is not None]
        return f" {{{', '.join(shown)}}}" if shown else ""

    def attr(self, value: Any) -> str:
        if isinstance(value, DType):
            return value.short
        if isinstance(value, Pointer):
            return str(value)
        return repr(value)

    def nodes(self, block: Block) -> None:
        self.depth += 1
        for node in block.nodes:
            self.node(node)
        if block.yields:
            self.line(f"yield {self.list(block.yields)}")
        self.depth -= 1

    def results(self, node: Node) -> str:
        return f"{self.list(node.results)} = " if node.results else ""

    def types(self, values: Sequence[Value]) -> str:
        return f" : {', '.join(str(v.type) for v in values)}" if values else ""

    def node(self, node: Node) -> None:
        match node:
            case Op():
                operands = f" {self.list(node.operands)}" if node.operands else ""
                types = self.types(node.results or node.operands[:1])
                head = f"{self.results(node)}{node.name}{operands}"
                self.line(f"{head}{self.attrs(node.attrs)}{types}")
            case For():
                iv, *carried = node.body.args
                bounds = f"{self.name(node.lower)} to {self.name(node.upper)}"
                head = f"for {self.name(iv)} = {bounds} step {self.name(node.step)}"
                self.loop(node, head, carried, node.inits)
                self.region(node.body, self.attrs(node.attrs))
            case While():
                self.loop(node, "while", node.condition.args, node.inits)
                self.region(node.condition)
                self.line(f"do ({self.list(node.body.args)})")
                self.region(node.body)
            case If():
                types = self.types(node.results)
                self.line(f"{self.results(node)}if {self.name(node.condition)}{types}")
                self.region(node.then)
                self.line("else")
                self.region(node.otherwise)
            case Reduce() | Scan():
                kind = "reduce" if isinstance(node, Reduce) else "scan"
                reverse = " reverse" if isinstance(node, Scan) and node.reverse else ""
                head = f"{self.results(node)}{kind} {self.list(node.operands)}"
                args = self.list(node.combine.args)
                tail = self.types(node.results)
                self.line(f"{head} axis {node.axis}{reverse} by ({args}){tail}")
                self.region(node.combine)

    def loop(
        self, node: For | While, head: str, carried: Sequence[Value], inits: Sequence[Value]
    ) -> None:
        pairs = [f"{self.name(c)} = {self.name(i)}" for c, i in zip(carried, inits, strict=True)]
        carry = f" carry ({', '.join(pairs)})" if pairs else ""
        self.line(f"{self.results(node)}{head}{carry}{self.types(node.results)}")

    def region(self, block: Block, suffix: str = "") -> None:
        self.lines[-1] += f"{suffix} {{"
        self.nodes(block)
        self.line("}")
