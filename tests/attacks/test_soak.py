"""A short soak; how fast it is depends on the machine, so that is for ``soak.py`` to say."""

from __future__ import annotations

import pytest
import soak


@pytest.mark.slow
def test_honest_clients_are_served_among_hostile_ones():
    found = soak.soak(6.0)
    assert len(found.attacks) == 17
    assert not [status for status in found.answers if status >= 500]
    assert found.answers[200] > 20 and not found.refused
