"""``python -m creditrl.suites``: regenerate the standard suite; a test compares the files."""

from __future__ import annotations

from creditrl.envs.record import file_at
from creditrl.envs.register import ENVIRONMENTS
from creditrl.suites import make_standard, write_suite

if __name__ == "__main__":
    for record in ENVIRONMENTS:
        (target,) = map(file_at, record.suites)
        write_suite(make_standard(envs=[record.id]), target)
        print(f"Wrote {target}")
