"""NVIDIA GPUs: tile IR to PTX, by layouts that spread tiles over the threads of a block."""
