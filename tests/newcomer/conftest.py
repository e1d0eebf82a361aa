"""A new user: types what the pages print, in an empty folder, and follows the output."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass
class Newcomer:
    folder: Path
    typed: list[str] = field(default_factory=list)

    def blocks(self, page: str, kind: str) -> list[str]:
        """Return the code blocks of a page, as printed."""
        return re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S)

    def saves(self, name: str, code: str) -> None:
        (self.folder / name).write_text(code, "utf-8")

    def types(self, command: str, answers: str = "") -> str:
        """Run a command in a shell and return what it prints."""
        self.typed.append(command)
        here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            input=answers,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PATH": here},
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def goes_on(self, told: str) -> str:
        """Run the command that another one suggested last."""
        return self.types(re.findall(r"^Next: (creditrl .*)$", told, re.M)[-1])

    @staticmethod
    def cpu_seconds() -> float:
        """Return the CPU time of all commands so far."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


@pytest.fixture
def newcomer(tmp_path) -> Newcomer:
    return Newcomer(tmp_path)
