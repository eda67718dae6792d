"""Shared by the CPU and CUDA backends: LLVM text, math, compilation, object cache."""
