"""Every op × dtype of the oracle on the GPU, and prints and asserts; see `op_checks.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.checks import DEBUG
from tests.oracle.topics import TOPICS


@pytest.mark.parametrize("topic", [*TOPICS, DEBUG])
def test_topic(topic: str, pass_all: Callable[[str], None]) -> None:
    pass_all(topic)
