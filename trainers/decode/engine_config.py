"""Settings of vLLM as the policy's sampler, apart from its code: naming one imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from creditrl.errors import ConfigError

__all__ = ["SyncConfig", "VLLMConfig"]


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """How weights reach the engine and how strictly it is checked."""

    adapters: bool | None = None
    """True: the base weights when they change, and the adapters after every update. False: all
    weights, adapters folded in. None: adapters where the policy has some."""
    probe: bool = True
    """Compare log-probabilities after every sync: one forward pass of a few short rows."""
    tolerance: float | None = None
    """Largest mean difference of a token's log-probability, in nats. None: 1e-3 in float32, 0.1 in
    16 bits (where kernels differ by some hundredths)."""
    prompts: int = 4
    """Rows of the probe."""
    length: int = 136
    """Tokens of a row at most: longer than a block of the prefix cache (16 on a GPU, 128 on a CPU),
    so that a cache with old prefixes is found out as well."""
    top: int = 8
    """Most probable next tokens that are compared, 1 to 20."""

    def __post_init__(self) -> None:
        if not 1 <= self.top <= 20:
            raise ConfigError(f"SyncConfig.top is {self.top}: expected 1 to 20.")
        if self.prompts < 1 or self.length < 1:
            raise ConfigError(
                f"SyncConfig: prompts={self.prompts}, length={self.length}: expected at least 1."
            )
        if self.tolerance is not None and not self.tolerance > 0:
            raise ConfigError(f"SyncConfig.tolerance is {self.tolerance}: expected more than 0.")


@dataclass(frozen=True, slots=True)
class VLLMConfig:
    """vLLM, where ``rollout.backend`` is "vllm" (in this process) or "vllm-server"."""

    gpu_memory_utilization: float = 0.5
    """Share of the GPU's memory for the engine's weights and cache, in (0, 1); in this process."""
    cache_gib: float | None = None
    """Size of the cache in GiB. None: what the share leaves on a GPU, 1 on a CPU."""
    context: int | None = None
    """Most tokens of a row. None: what the model reads; a long one needs a large cache."""
    max_rows: int = 256
    """Rows that are computed at once."""
    sleep: bool = True
    """Free the GPU's memory while the policy is optimised; in this process, and not with
    ``rollout.ahead``, where the engine always samples."""
    base_url: str | None = None
    """Address of a server: ``http://127.0.0.1:8000/v1``."""
    model: str | None = None
    """The policy's base model as the server names it; None: what it serves."""
    api_key_env: str | None = None
    """Environment variable that holds the server's key."""
    timeout: float = 600.0
    """Seconds that the server has for an answer."""
    concurrency: int = 256
    """Most requests to the server at once."""
    folder: str | None = None
    """Folder that the server sees, through which weights reach it; None: ``sync`` in the run
    folder."""
    sync: SyncConfig = field(default_factory=SyncConfig)
    """How weights reach the engine; those on a Ray cluster are probed by it whatever they run."""

    def __post_init__(self) -> None:
        if not 0 < self.gpu_memory_utilization < 1:
            raise ConfigError(
                f"VLLMConfig.gpu_memory_utilization is {self.gpu_memory_utilization}: expected a "
                "share, above 0 and below 1."
            )
        if self.max_rows < 1 or self.concurrency < 1 or not self.timeout > 0:
            raise ConfigError(
                f"VLLMConfig: max_rows={self.max_rows}, concurrency={self.concurrency}, "
                f"timeout={self.timeout:g}: expected at least 1, at least 1 and above 0."
            )
