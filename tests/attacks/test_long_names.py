"""Names that are too long for a file system."""

from __future__ import annotations

from creditrl.view.pictures import PictureStore

LONG = ["x" * 250, "x" * 9**5, "é" * 90, "a/../" * 99, "." * 300, "\ud800" * 80, "%" * 200]


def test_pictures_of_episodes_with_any_names_do_not_collide(tmp_path):
    store = PictureStore(tmp_path / "pictures")
    names = ["", ".", "..", "a/b", "%", *LONG, *(name + "y" for name in LONG)]
    assert not any(store.has(1, name, 0) for name in names)
    for i, name in enumerate(names):
        path = store.write(1, name, 0, f"picture {i}".encode())
        assert path.resolve().is_relative_to(tmp_path / "pictures" / "update-000001")
    for i, name in enumerate(names):
        assert store.has(1, name, 0) and store.read(1, name, 0) == f"picture {i}".encode()


def test_short_ids_keep_their_folders(tmp_path):
    kept = PictureStore(tmp_path).write(3, "eval/7", 2, b"p")
    assert kept == tmp_path / "update-000003" / "eval%2F7" / "0002.png"
