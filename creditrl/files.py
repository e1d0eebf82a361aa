"""Where our own files go, and how a file is written so that it is never half written."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_home", "write_atomic"]


def cache_home() -> Path:
    """Return our folder for what can be made or fetched again.

    ``$CREDITRL_CACHE``, else ``~/.cache/creditrl``. It need not exist, or be writable.
    """
    return Path(os.environ.get("CREDITRL_CACHE") or "~/.cache/creditrl").expanduser()


def write_atomic(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    The new content is on the disk before it takes the name, so a power cut leaves one of the two.

    Args:
        path: the file; its folder must exist.
        data: text is written as UTF-8, lone surrogates replaced.
    """
    target = Path(path)
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
