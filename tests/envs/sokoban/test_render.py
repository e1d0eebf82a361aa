from __future__ import annotations

import hashlib
import io
import sys

import numpy as np
import pytest

from creditrl.envs.sokoban.render import TINY_COLORS, draw_rooms, draw_tiles, print_board

ROOM = np.pad(np.array([[5, 4, 2], [1, 3, 6]], dtype=np.uint8), 1)


def test_tiles_are_at_the_places_of_their_cells():
    image = draw_rooms(ROOM[None])[0]
    assert image.shape == (64, 80, 3) and image.dtype == np.uint8
    tiles = draw_tiles()
    for y in range(4):
        for x in range(5):
            cell = image[16 * y : 16 * y + 16, 16 * x : 16 * x + 16]
            np.testing.assert_array_equal(cell, tiles[ROOM[y, x]])


def test_larger_tiles_repeat_pixels():
    small, large = draw_rooms(ROOM[None])[0], draw_rooms(ROOM[None], tile_px=48)[0]
    np.testing.assert_array_equal(large, small.repeat(3, axis=0).repeat(3, axis=1))


def test_the_tiny_form_has_one_pixel_per_cell_in_gym_sokobans_colours():
    image = draw_rooms(ROOM[None], "tiny")[0]
    assert image.shape == (4, 5, 3) and image.dtype == np.uint8
    assert image[1, 1].tolist() == [160, 212, 56]  # the player
    assert image[2, 3].tolist() == [219, 212, 56]  # the player on a target
    np.testing.assert_array_equal(image, TINY_COLORS[ROOM])


def test_tiles_have_the_distinct_colours_of_the_legend():
    tiles = draw_tiles().astype(int)
    assert len({tile.tobytes() for tile in tiles}) == 7
    red, green, blue = np.moveaxis(tiles, -1, 0)
    is_green = ((green > red + 40) & (green > blue + 40)).sum(axis=(1, 2))
    is_yellow = ((red > 200) & (green > 150) & (blue < 140)).sum(axis=(1, 2))
    is_red = ((red > 180) & (green < 150) & (blue < 150)).sum(axis=(1, 2))
    # wall, floor, target, box on target, box, player, player on target
    assert [count > 30 for count in is_green] == [False] * 5 + [True] * 2
    assert [count > 30 for count in is_yellow] == [False] * 3 + [True] * 2 + [False] * 2
    assert [count > 30 for count in is_red] == [False, False, True, True, False, False, True]


def test_the_drawing_does_not_change_unnoticed():
    # An observation's bytes are part of the environment's version.
    digest = hashlib.sha256(draw_tiles().tobytes()).hexdigest()
    assert digest.startswith("c5696ae0edaa9447")


def test_tiles_cannot_be_overwritten_by_accident():
    with pytest.raises(ValueError, match="read-only"):
        draw_tiles()[0] = 0
    draw_rooms(ROOM[None])[:] = 0
    assert draw_rooms(ROOM[None]).any()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_colors", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_are_printed_if_the_terminal_has_them(monkeypatch, no_colors):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm-256color", **no_colors}.items():
        monkeypatch.setenv(name, value)
    print_board(ROOM)
    if no_colors:
        assert terminal.getvalue() == "#####\n#PXO#\n#_√S#\n#####\n\n"
    else:
        assert terminal.getvalue().count("\x1b[0m") == 4 and "@@" in terminal.getvalue()


def test_printing_works_with_captured_ascii_and_missing_outputs(monkeypatch, capsys):
    print_board(ROOM)
    assert capsys.readouterr().out == "#####\n#PXO#\n#_√S#\n#####\n\n"
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print_board(ROOM)
    assert raw.getvalue() == b"#####\n#PXO#\n#_*S#\n#####\n\n"
    monkeypatch.setattr(sys, "stdout", None)
    print_board(ROOM)
