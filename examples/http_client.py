"""A measured agent in a framework with its own loop, which calls a tool as often as it likes.

creditrl eval VisualSokoban --agent http --port 3000 --episodes 20
python examples/http_client.py http://127.0.0.1:3000
"""

import json
import random
import sys
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def post(url, **body):
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers, method="POST")) as answer:
        return json.load(answer)


class Episode:
    def __init__(self, session):
        self.session = session
        self.state = post(f"{session}/reset")  # the next task

    @property
    def over(self):
        return self.state.get("terminated", False) or self.state.get("truncated", False)

    def act(self, action):  # the tool
        self.state = post(f"{self.session}/step", action=action)
        return self.state["observation"]

    def end(self):
        if not self.over:  # the agent gave up: the episode counts as it stands
            self.state = post(f"{self.session}/end")


def run_framework(episode):
    """Stand in for your framework: eight calls of the tool at most."""
    for _ in range(8):
        if not episode.over:
            episode.act(random.choice(episode.state["info"]["admissible_actions"]))


def main(address):
    session = f"{address}/sessions/{post(f'{address}/sessions')['session']}"
    left = None
    while left != 0:
        try:
            episode = Episode(session)
        except HTTPError as error:
            if error.code != 429:  # other clients have the remaining tasks, and may lose them
                raise
            time.sleep(1)
            continue
        run_framework(episode)
        episode.end()
        info, left = episode.state["info"], episode.state["tasks_left"]
        print(info["task_id"], "solved" if info["success"] else "not solved")


if __name__ == "__main__":
    main(sys.argv[1])
