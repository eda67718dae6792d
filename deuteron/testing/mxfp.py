"""Microscaling formats for tests: 4-bit floats (E2M1) and scales (E8M0) in torch tensors.

By the OCP Microscaling Formats specification 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by code, without the sign
_SIGN = 8
_BIAS, _NAN = 127, 255


class _Codes:
    """Codes of numbers, one in a byte of `data`; made of floats, or of a size to be filled."""

    data: Any

    def __init__(self, data: Any = None, size: Any = None, device: Any = None) -> None:
        if data is None and size is None:
            raise ValueError("data or size is needed")
        self.device = device if data is None else data.device
        if data is None:
            self.size: Any = (size,) if isinstance(size, int) else size
        else:
            self.data = self._from_float(data)

    def _from_float(self, values: Any) -> Any:
        raise NotImplementedError


class MXFP4Tensor(_Codes):
    """Floats of a sign, two bits of exponent and one of mantissa: ±0, ±0.5, … ±6."""

    def random(self) -> MXFP4Tensor:
        """Any codes."""
        import torch

        self.data = torch.randint(0, 16, self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers, in float32."""
        import torch

        _require_float32(dtype)
        table = torch.tensor([*_E2M1, *(-v for v in _E2M1)], device=self.data.device)
        return table[self.data.int()]

    def _from_float(self, values: Any) -> Any:
        """To nearest, ties to the even code; what is beyond 6, infinite or no number gives 6."""
        import torch

        size = torch.nan_to_num(values.abs(), nan=_E2M1[-1], posinf=_E2M1[-1])
        middles = [(a + b) / 2 for a, b in pairwise(_E2M1)]
        code = torch.zeros_like(values, dtype=torch.uint8)
        for below, middle in enumerate(middles):
            # A tie goes up where the code above is the even one.
            code += (size >= middle) if below % 2 else (size > middle)
        return code | (torch.signbit(values).to(torch.uint8) * _SIGN)

    def to_packed_tensor(self, dim: int) -> Any:
        """Two neighbours along an axis in a byte, the first in its low half; padded with 0."""
        import torch

        data: Any = self.data
        if not 0 <= dim < data.ndim:
            raise AssertionError(f"the tensor has {data.ndim} axes, and no axis {dim}")
        if data.size(dim) % 2:
            pad = list(data.shape)
            pad[dim] = 1
            data = torch.cat([data, data.new_zeros(pad)], dim)
        low: Any
        high: Any
        low, high = data.unflatten(dim, (-1, 2)).unbind(dim + 1)
        return low | (high << 4)

    def unpack_packed_tensor(
        self, packed_tensor: Any, dim: int, original_shape: Sequence[int]
    ) -> Any:
        """The codes of a packed tensor, without padding."""
        import torch

        pair = torch.stack((packed_tensor & 15, packed_tensor >> 4), dim + 1)
        return pair.flatten(dim, dim + 1).narrow(dim, 0, original_shape[dim]).to(torch.uint8)


class MXScaleTensor(_Codes):
    """Powers of two from 2^-127 to 2^127, or NaN."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Any powers from `low` to `high`."""
        import torch

        def code(value: float) -> int:
            return int(torch.log2(torch.tensor(value))) + _BIAS

        least = 0 if low is None else max(0, code(low))
        most = _NAN - 1 if high is None else min(_NAN - 1, max(0, code(high)))
        if least > most:
            raise ValueError(f"low {low} is above high {high}")
        self.data = torch.randint(least, most + 1, self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers, in float32."""
        import torch

        _require_float32(dtype)
        value = torch.exp2(self.data.to(torch.float64) - _BIAS).to(dtype)
        return torch.where(self.data == _NAN, torch.nan, value)

    def _from_float(self, values: Any) -> Any:
        """The power of two below; NaN for what is not above 0 and finite."""
        import torch

        usual = torch.isfinite(values) & (values > 0)
        exponent = torch.frexp(torch.where(usual, values, 1.0)).exponent - 1
        code = torch.clamp(exponent + _BIAS, 0, _NAN - 1)
        return torch.where(usual, code, _NAN).to(torch.uint8)


def _require_float32(dtype: Any) -> None:
    if str(dtype) != "torch.float32":
        raise TypeError(f"these convert to torch.float32, not {dtype}")
