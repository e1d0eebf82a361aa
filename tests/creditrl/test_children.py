"""Children end with their parent, also where it ends before they can ask for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATE = """
import os, time
from creditrl.children import end_with_parent
end, parent = end_with_parent(), os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
end()
print("goes on")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_child_whose_parent_has_ended_before_it_asks_ends_as_well():
    # Its end closes the pipe, for which this waits.
    told = subprocess.run([sys.executable, "-c", LATE], stdout=subprocess.PIPE, timeout=600)
    assert (told.returncode, told.stdout) == (0, b"")
