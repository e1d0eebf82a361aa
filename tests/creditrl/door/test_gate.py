"""Which requests are admitted: host names, pages of other sites, tokens."""

from __future__ import annotations

import base64
import hmac

import pytest

from creditrl.door import gate
from creditrl.door.gate import Gate, is_loopback, serve_token
from creditrl.errors import ConfigError

TOKEN = "0123456789abcdef"
HERE = ("Host", "127.0.0.1:3000")


def status(*headers: tuple[str, str], token: str = "") -> int:
    refusal = Gate(token).refusal(headers)
    if refusal is None:
        return 200
    assert "\n" not in refusal.message and refusal.message.endswith(".")
    return refusal.status


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:3000", "127.8.0.1:1", "localhost", "LocalHost:65535", "[::1]:80"],
)
def test_this_machines_own_names_are_admitted(host):
    assert status(("Host", host)) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:3000", "127.0.0.1.evil.example", "localhost.evil.example",
     "192.168.0.3", "0.0.0.0:3000", "[2001:db8::1]:80", "[::]", "127.1", "2130706433",
     "0x7f.0.0.1", "localhost."],
)  # fmt: skip
def test_other_names_are_refused_if_no_token_is_required(host):
    assert status(("Host", host)) == 403
    assert status(("Host", host), ("Authorization", f"Bearer {TOKEN}"), token=TOKEN) == 200


UNPARSABLE = (
    "", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:999999", "127.0.0.1:-1",
    "127.0.0.1:\u0663", ":3000", "[::1", "::1", "[::1]x", "[::1]:", "[127.0.0.1]", "[]", "[[::1]]",
    "http://127.0.0.1", "127.0.0.1/x", "me@127.0.0.1", "127.0.0.1 evil.example",
    "127.0.0.1,evil.example", "127.0.0.1\x00", "127.0.0.1\t.evil", "l\xf6calhost",
    "127.0.0.1?x", "127.0.0.1#x", "127.0.0.1%00", "\u2024",
)  # fmt: skip
"""No names with a port."""


def test_a_malformed_host_is_a_bad_request_with_and_without_a_token():
    for host in UNPARSABLE:
        assert status(("Host", host)) == 400, host
        assert status(("Host", host), ("Authorization", f"Bearer {TOKEN}"), token=TOKEN) == 400


def test_exactly_one_host_header_is_required():
    assert status() == 400
    assert status(HERE, HERE) == 400
    assert status(HERE, ("host", "evil.example")) == 400


@pytest.mark.parametrize("token", ["", TOKEN])
def test_pages_of_other_sites_are_refused(token):
    told = ("Authorization", f"Bearer {TOKEN}")

    def asked(*headers: tuple[str, str]) -> int:
        return status(HERE, told, *headers, token=token)

    assert asked(("Origin", "http://127.0.0.1:3000")) == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:3001", "http://127.0.0.1", ""):
        assert asked(("Origin", origin)) == 403, origin
    assert asked(("Origin", "http://127.0.0.1:3000"), ("Origin", "http://evil.example")) == 403
    # Pictures and scripts have no Origin; a link that somebody follows may lead here.
    for site in ("cross-site", "same-site", "a new word"):
        assert asked(("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "no-cors")) == 403
        assert asked(("Sec-Fetch-Site", site)) == 403
        assert asked(("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "navigate")) == 200
    for site in ("same-origin", "none"):
        assert asked(("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "no-cors")) == 200


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(f"me:{TOKEN}")])
def test_a_valid_token_is_accepted(given):
    assert status(HERE, ("Authorization", given), token=TOKEN) == 200


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", TOKEN, f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", "Bearer \xff\xfe",
     f"Digest {TOKEN}", basic(TOKEN), basic(f"{TOKEN}:"), basic(f"me:{TOKEN}x"), "Basic ???",
     f"Bearer {TOKEN} {TOKEN}"],
)  # fmt: skip
def test_an_invalid_token_is_refused(given):
    assert status(HERE, ("Authorization", given), token=TOKEN) == 401


def test_exactly_one_token_header_is_required():
    told = ("Authorization", f"Bearer {TOKEN}")
    assert status(HERE, token=TOKEN) == 401
    assert status(HERE, told, told, token=TOKEN) == 401


def test_tokens_are_compared_in_constant_time(monkeypatch):
    # The standard library's constant-time comparison is used, and no other comparison before it.
    compared: list[tuple[bytes, ...]] = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(both) or False)
    wrong = ("x" + TOKEN[1:], TOKEN[:-1] + "x")
    for given in wrong:
        assert status(HERE, ("Authorization", f"Bearer {given}"), token=TOKEN) == 401
    assert compared == [(given.encode(), TOKEN.encode()) for given in wrong]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "", "0", "::ffff:0.0.0.0")),
        *((host, False) for host in ("192.168.0.3", "localhost.example.org")),
    ],
)
def test_only_this_machines_own_names_are_loopback(host, own, monkeypatch):
    assert is_loopback(host) is own
    monkeypatch.delenv(gate.TOKEN_ENV, raising=False)
    if own:
        assert serve_token(host) == ""
    else:
        with pytest.raises(ConfigError, match="can be reached by others: set CREDITRL_SERVE_TOKEN"):
            serve_token(host)
    monkeypatch.setenv(gate.TOKEN_ENV, TOKEN)
    assert serve_token(host) == TOKEN
