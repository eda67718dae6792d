"""Kernels compiled ahead of time, for programs without Python: `deuteron compile`.

interface.py    what a C caller passes, and which of several compiled kernels fits
wrapper_ir.py   the functions that a C caller calls, as LLVM IR
header.py       their C header; what all headers share is `deuteron.h`
build.py        from a kernel and its arguments' types to the files' contents
"""
