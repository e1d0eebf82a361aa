"""Find the subpackages in a source checkout, where they lie beside this folder, not in it.

An editable install maps them, but Python started in the checkout finds this folder first and would
not ask the install. Imported before anything else of the package; in a wheel it does nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["CHECKOUT"]

_here = Path(__file__).resolve().parent
CHECKOUT: Path | None = None if (_here / "envs").is_dir() else _here.parent
"""The checkout that this package runs from; None in an installed wheel."""

if CHECKOUT is not None and str(CHECKOUT) not in sys.modules["creditrl"].__path__:
    sys.modules["creditrl"].__path__.append(str(CHECKOUT))
