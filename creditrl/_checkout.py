"""The source checkout that this package runs from, if it is no installed wheel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CHECKOUT"]

_here = Path(__file__).resolve().parent
# In a checkout four subpackages are links to folders beside this one; in a wheel they are folders.
CHECKOUT: Path | None = _here.parent if (_here / "envs").is_symlink() else None
"""The checkout; None in an installed wheel."""
