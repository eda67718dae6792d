"""The names of `triton.tools.tensor_descriptor`."""

from deuteron.runtime.descriptors import TensorDescriptor

__all__ = ["TensorDescriptor"]
