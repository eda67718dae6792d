"""What a Python process finds as `triton` that was started by one with the door open.

This folder comes first in its PYTHONPATH; see `deuteron.compat.open_for_children`.
"""

import sys
from importlib import import_module

from deuteron import compat

del sys.modules["triton"]
compat.install("triton")
import_module("triton")  # the importer of this file then takes what stands in sys.modules
