"""What kernels need on CPUs only: `from deuteron.language.extra import cpu`."""

from deuteron.lang.inline_asm import asm_body

__all__ = ["asm_body"]
