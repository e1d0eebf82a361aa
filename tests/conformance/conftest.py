"""Make TextWorld parse each text only once, instead of at every step."""

import copy
import functools
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Parse each text of a grammar and each query once; later calls get a copy of the result.

    Half of TextWorld's time here is its parsers, on the same texts over and over.
    """
    if find_spec("textworld") is None:
        yield
        return
    from textworld import logic
    from textworld.envs.pddl import textgen

    def once(parse: Callable[..., Any]) -> Callable[..., Any]:
        parse = functools.cache(parse)
        return lambda *texts, **names: copy.deepcopy(parse(*texts, **names))

    with pytest.MonkeyPatch.context() as patch:
        for module in (logic, textgen):
            patch.setattr(module, "_parse_and_convert", once(module._parse_and_convert))
        yield
