"""Where an example's arrays lie: NumPy arrays in the CPU's memory, or torch tensors on a GPU.

    python examples/01_vector_add.py --device cuda

The kernels are the same for both.  An array's device is where its kernel runs.
"""

import argparse

import numpy as np

from deuteron.ops.arrays import empty, empty_like, strides

__all__ = [
    "address", "chosen_device", "empty", "empty_like", "fetch", "place", "strides", "tolerance",
]  # fmt: skip


def chosen_device():
    """What --device says: "cpu" unless it is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args().device


def place(array, device):
    """A NumPy array as an array on the device."""
    if device == "cpu":
        return array
    import torch

    return torch.from_numpy(array).to(device)  # with the same strides


def fetch(array):
    """The NumPy array of what lies on either device."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def tolerance(device, rtol, atol):
    """How far float32 products may be off: a GPU's tensor cores take ten bits of each factor."""
    return {"rtol": rtol, "atol": atol} if device == "cpu" else {"rtol": 1e-2, "atol": 2e-2}


def address(array):
    """Where element 0 lies."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()
