"""TextWorld without parsing the same few texts at every step."""

import copy
import functools
from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Parse each text of a game's grammar once; later askers get a copy of what came of it.

    Half of TextWorld's time here is its parser, on the same templates of commands over and over.
    """
    if find_spec("textworld") is None:
        yield
        return
    from textworld.envs.pddl import textgen

    parse = functools.cache(textgen._parse_and_convert)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textgen, "_parse_and_convert", lambda *a, **k: copy.deepcopy(parse(*a, **k)))
        yield
