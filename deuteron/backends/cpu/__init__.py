"""The CPU backend: tile IR to fused loop nests to LLVM, dot microkernels, thread pool."""
