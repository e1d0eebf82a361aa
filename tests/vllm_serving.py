"""Small policies for vLLM, and a vLLM server on this machine, as a user starts one on a CPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEXTS = ["######\n#PX_O#\n#_S√_#\n######", "up", "down", "left", "right", "push the box", "go to 1"]
ROOMS = ["#P_XO#\n", "#_PXO#\n", "#P#", "##__XOSP√##\n#", "#P_XO#\n" * 6]


def small_policy(seed: int = 0, lora: Any = None) -> Any:
    """Return the default small policy with heads that vLLM computes on a CPU: 32 wide, not 16.

    Its weights are three times as large, so that tokens have unequal probabilities.
    """
    import torch

    from creditrl.trainers.models.configs import SmallPolicyConfig
    from creditrl.trainers.models.policy import Policy
    from creditrl.trainers.models.tokenizer import build_tokenizer

    policy = Policy.small(
        SmallPolicyConfig(hidden=64, heads=2), build_tokenizer(TEXTS), seed=seed, lora=lora
    )
    with torch.no_grad():
        for name, value in policy.base.named_parameters():
            if "lora_" not in name:
                value.mul_(3.0)
    return policy


def move(policy: Any, size: float = 0.1, seed: int = 0) -> None:
    """Change the trained weights as an optimizer would."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in policy.trainable_parameters():
            value.add_(torch.randn(value.shape, generator=generator) * size)


def model_logprobs(model: Any, reply: Any, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of the reply's tokens by one plain forward pass over the whole row."""
    import torch

    ids = torch.tensor([reply.prompt_ids + reply.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0] / temperature
    logp = torch.log_softmax(logits, dim=-1)
    n = len(reply.prompt_ids)
    return [logp[n - 1 + k, token].item() for k, token in enumerate(reply.token_ids)]


def reply_logprobs(policy: Any, reply: Any, temperature: float = 1.0) -> list[float]:
    return model_logprobs(policy.model, reply, temperature)


@contextmanager
def serving(folder: Path, policy: Any) -> Iterator[str]:
    """Serve the policy's base model, and yield the server's address.

    A server that is shown pictures takes new weights as well.
    """
    model, tokenizer, log = folder / "served", folder / "tokenizer", folder / "server.log"
    policy.base.save_pretrained(model)
    policy.tokenizer.save_pretrained(tokenizer)
    if policy.image_processor is not None:  # looked for beside the config
        policy.image_processor.save_pretrained(model)
        policy.image_processor.save_pretrained(tokenizer)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    settings["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    if policy.image_processor is None:  # a model that sees needs the path's torchvision
        settings["PYTHONPATH"] = ""
    # The command `vllm` of the build for CPUs asks for the version of a package "vllm", and ends.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model), "--tokenizer", str(tokenizer), "--served-model-name", "it"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--enforce-eager", "--no-enable-chunked-prefill"]
    command += ["--max-num-batched-tokens", "8192", "--logprobs-mode", "processed_logprobs"]
    command += ["--enable-lora", "--max-lora-rank", "8"]
    if policy.image_processor is not None:
        command += ["--enable-scale-out", "--enable-tower-connector-lora"]
        # At startup it would process the largest picture and the longest video.
        command += ["--skip-mm-profiling", "--limit-mm-per-prompt", '{"image": 3, "video": 0}']
        command += ["--worker-extension-cls", "plain_linears.PlainLinears"]
    with log.open("wb") as file:
        server = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | settings,
            start_new_session=True,
        )
    try:
        _wait(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        # The server's engine is a process of its own, in the same session.
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path, seconds: float = 400.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"no vLLM server came up:\n{log.read_text()[-3000:]}")
