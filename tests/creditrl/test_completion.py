"""``creditrl completion``: bash completes by its script, and the other shells' have its words."""

from __future__ import annotations

import pytest
from programs import ran

from creditrl.cli import COMMANDS, run


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes_commands_recipes_flags_and_environments(tmp_path, capsys):
    file = tmp_path / "completion.sh"
    file.write_text(script("bash", capsys))

    def completed(*words: str) -> list[str]:
        code = f". {file}; COMP_WORDS=(creditrl {' '.join(words)}); COMP_CWORD={len(words)}"
        code += '; _creditrl; echo "${COMPREPLY[*]}"'
        done = ran("bash", "-c", code, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("tr") == ["train"]
    assert completed("train", "@quick") == ["@quickstart"]
    assert completed("train", "@quickstart", "--optim.l") == ["--optim.lr"]
    assert completed("play", "Visual") == ["VisualSokoban"]
    assert completed("bench", "conf") == ["conformance"]
    assert completed("eval", "ALFWorld", "--epi") == ["--episodes"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(shell, capsys):
    told = script(shell, capsys)
    assert told.startswith("# In ~/.") and "@quickstart" in told and "optim.lr" in told
    assert all(command.name in told for command in COMMANDS)
