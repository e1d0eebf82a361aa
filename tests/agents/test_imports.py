from __future__ import annotations

import subprocess
import sys


def test_agents_load_no_heavy_package():
    code = (
        "import sys, creditrl.agents, creditrl.agents.transformers\n"
        "heavy = {'torch', 'transformers', 'peft', 'numba', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"loaded at import: {done.stderr}"
