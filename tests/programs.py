"""Programs that tests start, with what they say kept as text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def ran(
    *words: object,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program; ``env`` is added to this process's own variables."""
    return subprocess.run(
        [str(word) for word in words],
        input=stdin,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        **{"capture_output": True, "text": True, "check": False, **options},
    )


def by_python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run this Python with these words."""
    return ran(sys.executable, *words, **options)
