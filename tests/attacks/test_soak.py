"""A short soak test; its speed depends on the machine, so ``soak.py`` reports that."""

from __future__ import annotations

import pytest
import soak


@pytest.mark.slow
def test_honest_clients_are_served_among_hostile_ones():
    found = soak.soak(6.0)
    assert len(found.attacks) == 17
    assert not [status for status in found.answers if status >= 500]
    assert found.answers[200] > 20 and not found.refused
