"""Kernels in the language, the library and the examples on the GPU; see `language_checks.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.checks import LANGUAGE


@pytest.mark.parametrize("topic", LANGUAGE)
def test_topic(topic: str, torch: Any, pass_all: Callable[[str], None]) -> None:
    pass_all(topic)
