"""The package exports every credit function, for users who write their own trainer."""

from __future__ import annotations

import importlib
from pathlib import Path

import creditrl.trainers.credit as credit


def test_the_package_exports_every_public_name_of_its_files():
    files = sorted(Path(credit.__file__).parent.glob("[a-z]*.py"))
    assert len(files) > 20
    names = []
    for file in files:
        module = importlib.import_module(f"{credit.__name__}.{file.stem}")
        for name in module.__all__:
            value, found = getattr(module, name), getattr(credit, name, None)
            # A mutation run replaces constants, and each would be noticed by its identity.
            assert found is value or type(found) is type(value) is float, (
                f"creditrl/trainers/credit/__init__.py lacks {name} of {file.name}"
            )
        names += module.__all__
        own = {
            name
            for name, value in vars(module).items()
            if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
        }
        # Type variables serve signatures alone.
        own = {name for name in own if type(getattr(module, name)).__name__ != "TypeVar"}
        assert own <= set(module.__all__), file.name
    assert len(names) == len(set(names)), "one name in two files"
    assert credit.__all__ == sorted(names)
