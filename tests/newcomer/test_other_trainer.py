"""A user of another trainer: our server and its own client, as printed in the guide's table."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "integrations.md"


@pytest.mark.reference("openenv")
def test_openenvs_client_plays_on_the_server_of_the_guides_line(newcomer):
    row = re.search(r"`(creditrl serve .*?)`, and `(.*?)`", PAGE.read_text("utf-8"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = row[1].split()
    server = subprocess.Popen(
        [str(Path(sys.executable).parent / words[0]), *words[1:], "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=newcomer.folder,
    )
    try:
        while str(port) not in (line := server.stdout.readline()):
            assert line, "the server ended before it said where it is"
        newcomer.saves(
            "client.py",
            "from openenv import GenericEnvClient\n"
            f"with {row[2].replace('3000', str(port))}.sync() as env:\n"
            "    seen = env.reset(seed=7).observation\n"
            "    result = env.step({'action': seen['admissible_actions'][0]})\n"
            "    print(result.observation['grounded'], result.done)\n",
        )
        assert newcomer.types("python client.py").splitlines()[-1] == "True False"
    finally:
        server.terminate()
        server.wait(30)
