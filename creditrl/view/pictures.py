"""Pictures of turns: those that a run stored, else what can be drawn from the stored text.

A stored picture is a file ``pictures/update-000012/ID/0003.png`` of the run's folder (turn 3 of
episode ID of update 12; the ID is percent-encoded, of a long one the beginning and a hash). Whoever
collects episodes with images may put some there by :meth:`PictureStore.write`. A VisualSokoban room
needs none: its text says all.
"""

from __future__ import annotations

import io
import os
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from creditrl.files import write_atomic

__all__ = ["PictureStore", "can_draw", "draw_text"]

_LONGEST_NAME = 200
"""Bytes of a folder's name; most file systems take 255."""
_LARGEST_TILE = 32
_WIDEST = 480
"""Pixels of a drawn room, at most."""


class PictureStore:
    """Reads and writes the pictures of one run.

    Args:
        folder: made at the first ``write``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def write(self, update: int, episode: str, turn: int, png: bytes) -> Path:
        """Keep the picture that an agent saw before it acted; returns its path."""
        path = self._path(update, episode, turn)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, png)
        return path

    def has(self, update: int, episode: str, turn: int) -> bool:
        """Return whether a picture was kept."""
        return self._path(update, episode, turn).is_file()

    def read(self, update: int, episode: str, turn: int) -> bytes | None:
        """Return a PNG; None where none was kept."""
        path = self._path(update, episode, turn)
        return path.read_bytes() if path.is_file() else None

    def _path(self, update: int, episode: str, turn: int) -> Path:
        # A dot is left alone by quote(), and ".." would be another folder.
        name = quote(episode, safe="", errors="surrogatepass").replace(".", "%2E") or "%"
        if len(name) > _LONGEST_NAME:  # "%%" is in no quoted name
            name = f"{name[:100]}%%{sha256(name.encode()).hexdigest()}"
        return self.folder / f"update-{update:06d}" / name / f"{turn:04d}.png"


def can_draw(env_id: str, text: str) -> bool:
    """Return whether :func:`draw_text` makes a picture of an observation."""
    if not env_id.startswith("CreditRL/VisualSokoban-"):
        return False
    lines = text.split("\n")
    return len(text) > 0 and len({len(line) for line in lines}) == 1 and set(text) <= _signs()


def draw_text(env_id: str, text: str) -> bytes | None:
    """Return a PNG of what an observation describes; None where that cannot be drawn."""
    if not can_draw(env_id, text):
        return None
    import numpy as np
    from PIL import Image

    from creditrl.envs.sokoban.render import draw_rooms
    from creditrl.envs.sokoban.rooms import GLYPHS

    codes = np.array([[[GLYPHS.index(sign) for sign in line] for line in text.split("\n")]])
    tile = min(_LARGEST_TILE, max(16, _WIDEST // max(codes.shape[1:]) // 16 * 16))
    picture = io.BytesIO()
    drawn = draw_rooms(codes.astype(np.uint8), tile_px=tile)[0]
    Image.fromarray(drawn).save(picture, format="png", optimize=True)
    return picture.getvalue()


def _signs() -> set[str]:
    from creditrl.envs.sokoban.rooms import GLYPHS

    return {*GLYPHS.split("\n")[0], "\n"}
