"""People watch the maps of copies in a browser of their own."""

from __future__ import annotations

import io
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from email.message import Message

import numpy as np
import pytest
from env_helpers import without_display
from PIL import Image

from creditrl.envs.virtualhome.watch import MapWatch

RED, BLUE = (np.full((4, 6, 3), color, np.uint8) for color in ([255, 0, 0], [0, 0, 255]))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[MapWatch]:
    without_display(monkeypatch)
    watch = MapWatch()
    yield watch
    watch.close()


def _get(address: str) -> tuple[bytes, Message]:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read(), answer.headers


def test_the_last_map_of_each_copy_is_served(watch: MapWatch) -> None:
    told = watch.show(0, RED, "first")
    assert told == f"Watch copy 0 at {watch.address}/0"
    assert watch.show(3, BLUE, "other").endswith("/3")
    assert watch.show(0, BLUE, "grab café") == ""  # it is known by now
    page, headers = _get(f"{watch.address}/0")
    assert b"/0/map.png" in page and headers["Content-Type"].startswith("text/html")
    text, headers = _get(f"{watch.address}/0/text")
    assert text.decode() == "grab café" and headers["X-Number"] == "2"
    image, _ = _get(f"{watch.address}/0/map.png?2")
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(image))), BLUE)
    assert _get(f"{watch.address}/3/text")[1]["X-Number"] == "1"


def test_nothing_else_is_served(watch: MapWatch) -> None:
    watch.show(0, RED, "")
    for path in ("/", "/1", "/x", "/-1", "/0/etc", "/0/../map.png"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _get(watch.address + path)


def test_a_browser_opens_once_where_there_is_a_display(watch, monkeypatch):
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setattr(webbrowser, "open", opened.append)
    for _ in range(2):
        watch.show(1, RED, "")
    assert opened == [f"{watch.address}/1"]


def test_a_watch_can_be_closed_twice_and_used_again(watch: MapWatch) -> None:
    watch.show(0, RED, "")
    old = watch.address
    watch.close()
    watch.close()
    with pytest.raises(urllib.error.URLError):
        _get(f"{old}/0/text")
    assert watch.show(0, RED, "again")
    assert _get(f"{watch.address}/0/text")[0] == b"again"
