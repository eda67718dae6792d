"""The names of `triton.tools.mxfp`."""

from deuteron.testing.mxfp import MXFP4Tensor, MXScaleTensor

__all__ = ["MXFP4Tensor", "MXScaleTensor"]
