"""A vLLM server as an engine: token ids over its OpenAI-compatible interface.

The user starts the server, on this machine or another, with ``--logprobs-mode processed_logprobs``.
To train, it also needs ``--enable-lora --max-lora-rank 16`` and
``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`` in its environment; or, to train all weights,
``VLLM_SERVER_DEV_MODE=1``. Both are passed through a folder that the server can read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditrl.agents.reply_queue import FutureQueue
from creditrl.agents.vllm_engine import SamplingRule, TokenAnswer, TokenRequest
from creditrl.chat import ChatAnswer, ChatClient, ChatSettings
from creditrl.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import torch

__all__ = ["ServerEngine"]

_MOST_BYTES = 64 << 20
"""Maximum size of an answer: it repeats the prompt's token ids and has all log-probabilities."""
_MOST_TOKEN_ID = 2**31 - 1


class ServerEngine:
    """Sends token ids to a vLLM server, all prompts of a turn at once.

    A request that fails after all tries gives an answer with ``error``; its episode is invalid.

    Args:
        base_url: URL up to ``/completions``: ``http://127.0.0.1:8000/v1``.
        model: the server's name for it; None: the model that it serves.
        api_key_env: environment variable with the server's key; None: it needs none.
        timeout: maximum seconds for one answer.
        concurrency: maximum number of requests under way at once.

    Raises:
        MissingExtraError: httpx is not installed.
        EngineError: the server does not answer, or does not serve the model.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key_env: str | None = None,
        timeout: float = 600.0,
        concurrency: int = 256,
    ) -> None:
        settings = ChatSettings(
            model or "the model served",
            base_url=base_url,
            api_key_env=api_key_env,
            timeout=timeout,
            concurrency=concurrency,
            retries=3,
            cache=False,
            max_bytes=_MOST_BYTES,
        )
        self._client = ChatClient(settings)
        self.base_url = base_url
        served = {str(card.get("id")): card for card in self._models()}
        if model is not None and model not in served:
            raise EngineError(
                f"{base_url} serves {', '.join(served) or 'nothing'}, not {model!r}: name one of "
                "those, or start a server with that model."
            )
        self.name = model or next(iter(served))
        length = served[self.name].get("max_model_len")
        self.context = length if isinstance(length, int) else 0
        if self.context < 1:
            raise EngineError(
                f"{base_url} does not say how many tokens {self.name} reads (max_model_len): "
                "expected a vLLM server."
            )
        self._asked = self.name  # the model itself, or the adapter on it
        self._processed: bool | None = None

    # -- sampling -------------------------------------------------------------------------------

    def generate(self, requests: Sequence[TokenRequest], rule: SamplingRule) -> list[TokenAnswer]:
        """Return one answer per request, in their order.

        Raises:
            ConfigError: the server's log-probabilities are not those of the distribution that
                tokens are drawn from.
        """
        bodies = [self._question(request, rule) for request in requests]
        return [
            _answer(request, answer)
            for answer, request in zip(
                self._client.request("completions", bodies), requests, strict=True
            )
        ]

    def token_queue(self, rule: SamplingRule) -> FutureQueue[TokenRequest, ChatAnswer, TokenAnswer]:
        """Return a queue with up to ``concurrency`` requests under way at once."""
        return FutureQueue(
            lambda request: self._client.submit_request(
                "completions", self._question(request, rule)
            ),
            _answer,
        )

    def top_logprobs(
        self,
        prompts: Sequence[tuple[int, ...]],
        count: int,
        images: Sequence[tuple[Any, ...]] = (),
    ) -> list[dict[int, float]]:
        """Return the ``count`` most probable next tokens of each prompt, at temperature 1."""
        _no_pictures(images)
        return self._top([(ids, 1.0) for ids in prompts], count)

    def _top(
        self, prompts: Sequence[tuple[tuple[int, ...], float]], count: int
    ) -> list[dict[int, float]]:
        bodies = [
            self._body(ids, 1, 0)
            | {"temperature": heat, "logprobs": count, "return_tokens_as_token_ids": True}
            for ids, heat in prompts
        ]
        found = []
        for answer in self._client.request("completions", bodies):
            if answer.error:
                raise EngineError(f"The vLLM server gives no log-probabilities: {answer.error}")
            try:
                top = answer.data["choices"][0]["logprobs"]["top_logprobs"][0]
                found.append({int(k.removeprefix("token_id:")): float(v) for k, v in top.items()})
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                raise EngineError(
                    f"{self.base_url} gives no log-probabilities by token id: expected a vLLM "
                    "server, 0.32 or newer."
                ) from error
        return found

    def _question(self, request: TokenRequest, rule: SamplingRule) -> dict[str, Any]:
        _no_pictures([request.images])
        if not rule.greedy and (rule.temperature != 1 or rule.top_p != 1):
            self._check_processed(request.prompt_ids)
        return (
            self._body(request.prompt_ids, request.max_tokens, request.seed)
            | {
                "temperature": 0.0 if rule.greedy else rule.temperature,
                "top_p": 1.0 if rule.greedy else rule.top_p,
                "stop_token_ids": list(rule.stop_ids),
                "logprobs": 0,
            }
            | ({"stop": list(rule.stop), "include_stop_str_in_output": True} if rule.stop else {})
            | ({"allowed_token_ids": list(request.allowed)} if request.allowed else {})
        )

    def _body(self, ids: tuple[int, ...], max_tokens: int, seed: int) -> dict[str, Any]:
        return {
            "model": self._asked,
            "prompt": list(ids),
            "max_tokens": max_tokens,
            "seed": seed,
            "return_token_ids": True,
            # Else the server uses the model's saved generation settings.
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }

    def _check_processed(self, prompt_ids: tuple[int, ...]) -> None:
        if self._processed is None:
            one, half = self._top([(prompt_ids, 1.0), (prompt_ids, 0.5)], 2)
            self._processed = any(abs(half[t] - one[t]) > 1e-6 for t in one if t in half)
        if not self._processed:
            raise ConfigError(
                f"{self.base_url} gives log-probabilities at temperature 1 whatever the "
                "temperature: expected those of the distribution that tokens are drawn from. "
                "Start the server with --logprobs-mode processed_logprobs."
            )

    # -- weights --------------------------------------------------------------------------------

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Raise: weights reach a server by path, see :meth:`load_folder`."""
        raise EngineError(
            f"{self.base_url} is another process: weights are loaded there from a folder."
        )

    def load_folder(self, folder: Path) -> None:
        """Make the server reload all weights from a folder that it can read.

        Raises:
            EngineError: the server refuses.
        """
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}}
        self._must("../collective_rpc", body, "start it with VLLM_SERVER_DEV_MODE=1")
        self._must("../reset_prefix_cache", {}, "start it with VLLM_SERVER_DEV_MODE=1")
        self._asked = self.name

    def load_adapter(self, folder: Path) -> None:
        """Use the LoRA adapter of a folder that the server can read, from now on.

        Every load gets a new adapter name: under a known one the server would keep using prefixes
        that it computed before.

        Raises:
            EngineError: the server refuses.
        """
        old, new = self._asked, f"creditrl-{secrets.token_hex(8)}"
        advice = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
        self._must(
            "load_lora_adapter", {"lora_name": new, "lora_path": str(folder.resolve())}, advice
        )
        self._asked = new
        if old != self.name:
            self._client.request("unload_lora_adapter", [{"lora_name": old}])

    def reset_cache(self) -> None:
        """Do nothing: loading weights already resets it."""

    def sleep(self) -> None:
        """Do nothing: the server manages its own memory."""

    def close(self) -> None:
        """Unload the adapter and close the connections; the server keeps running."""
        if self._asked != self.name:
            self._client.request("unload_lora_adapter", [{"lora_name": self._asked}])
            self._asked = self.name
        self._client.close()

    # -- requests -------------------------------------------------------------------------------

    def _models(self) -> list[dict[str, Any]]:
        [answer] = self._client.request("models", [None])
        try:
            found = None if answer.error else answer.data["data"]
        except (LookupError, TypeError):
            found = None
        listed = found if isinstance(found, list) else []
        cards: list[dict[str, Any]] = [card for card in listed if isinstance(card, dict)]
        if not cards:
            raise EngineError(
                f"No vLLM server answers at {self.base_url}"
                f"{': ' + answer.error if answer.error else ''}. Start one with `vllm serve MODEL "
                "--logprobs-mode processed_logprobs`, or name another address (base_url)."
            )
        return cards

    def _must(self, path: str, body: dict[str, Any], advice: str) -> None:
        [answer] = self._client.request(path, [body])
        if answer.error:
            raise EngineError(
                f"The server does not take the new weights ({answer.error}): {advice}, and keep "
                "the folder where the server sees it."
            )


def _no_pictures(images: Sequence[tuple[Any, ...]]) -> None:
    if any(images):
        raise ConfigError(
            "A server takes token ids without pictures: expected a vLLM engine in this process "
            "(--rollout.backend vllm), or --rollout.backend transformers."
        )


def _answer(request: TokenRequest, answer: ChatAnswer) -> TokenAnswer:
    if answer.error:
        return TokenAnswer(error=answer.error)
    try:
        choice = answer.data["choices"][0]
        ids = tuple(int(token) for token in choice["token_ids"])
        logprobs = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
        read = tuple(choice["prompt_token_ids"])
    except (LookupError, TypeError, ValueError):
        ids, logprobs, read = (), (), request.prompt_ids
    if min(ids, default=-1) < 0 or max(ids) > _MOST_TOKEN_ID or len(ids) != len(logprobs):
        return TokenAnswer(
            error="the server's answer has no token ids with log-probabilities: expected a vLLM "
            "server, 0.32 or newer"
        )
    if read != request.prompt_ids:
        return TokenAnswer(error="the server read other tokens than it was sent")
    return TokenAnswer(ids, logprobs)
