"""The trained policy: a causal language model, its tokenizer, and what it makes of replies.

Replies are scored as they were sampled: logits are made at the positions that predict reply tokens
and nowhere else, in float32, divided by the sampler's temperature. Positions that several tokens
share (equal prompts, see :mod:`creditrl.trainers.batch`) are computed once.

On one core, the default small policy: 300 distinct rows of 42 tokens (2,150 one-token turns) take
about 70 ms to score and 190 ms for a whole update, gradient and AdamW included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from creditrl.agents.pictures import PictureReader, load_image_processor, load_model
from creditrl.agents.transformers import (
    load_tokenizer,
    quiet_bars,
    require_folder,
    why_not_loaded,
)
from creditrl.agents.tree_scores import TreeBatch
from creditrl.disk import writing
from creditrl.errors import (
    CheckpointError,
    ConfigError,
    CreditInputError,
    DataError,
    require_extra,
)
from creditrl.files import check_sums, remove_sums, write_sums
from creditrl.outside_json import read_object_file
from creditrl.trainers.batch import RowBatch, Rows, micro_batches
from creditrl.trainers.models.checkpointing import checkpointed
from creditrl.trainers.models.configs import LoRAConfig, SmallPolicyConfig
from creditrl.trainers.models.lora import (
    POLICY_ADAPTER,
    attach_lora,
    has_lora,
    load_lora,
    lora_state,
    merge_lora,
    own_weights,
    renew_lora,
    without_lora,
)
from creditrl.trainers.models.prefix import (
    SharedPrefixes,
    can_share,
    find_prefixes,
    hidden_after_prefixes,
)
from creditrl.trainers.models.scoring import (
    Menus,
    ReplyScores,
    distinct_places,
    menus_of,
    score_tokens,
)
from creditrl.trainers.models.small import build_small_policy
from creditrl.trainers.models.tail import last_mlp, only_at
from creditrl.trainers.parallel.ranks import ALONE, Ranks
from creditrl.types import FloatArray, IntArray

if TYPE_CHECKING:
    import os

    import torch
    from transformers import PreTrainedTokenizerBase

    from creditrl.trainers.parallel.sharding import ShardedModel

__all__ = ["Policy", "base_of"]


_ADAPTER_FILE = "adapter_config.json"
_GENERATION_FILE = "generation_config.json"
_BASE_FOLDER = "base"


class Policy:
    """A model to train, with its tokenizer.

    The model stands in evaluation mode (no dropout), in which gradients flow as well.

    Args:
        model: a causal language model of transformers, or a peft model around one.
        tokenizer: its tokenizer.
        lora: attach fresh adapters and train only them.
        seed: of the adapters' initial weights.
        image_processor: of a vision-language model; without it the policy reads text.

    Attributes:
        model: the live model; inside :meth:`reference` the reference.
        tokenizer: with its chat template, where it has one.
        share_prefixes: beginnings that rows have in common are computed once, where the model's
            layers allow it.
        checkpointing: where a gradient is recorded, blocks are computed again in the backward pass
            instead of being kept.
        compile: the decoder is compiled for :meth:`reply_logprobs` and :meth:`hidden_at`, but where
            it reads pictures; it then computes rows whole, and nothing of them once for several.
        ranks: the processes that train it together; one alone, unless a run sets more.
        logits_per_chunk: logits are made for so many numbers at a time (2**26: 256 MiB); with a
            gradient, chunks are computed again in the backward pass instead of being kept.
    """

    logits_per_chunk: int = 2**26

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        lora: LoRAConfig | None = None,
        seed: int = 0,
        image_processor: Any = None,
    ) -> None:
        if lora is not None and has_lora(model):
            raise ConfigError(
                "The model has adapters already: load it without `lora` to train these, or merge "
                "them first (peft's merge_and_unload)."
            )
        self.model = attach_lora(model, lora, seed) if lora is not None else model
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self._seed = seed
        self.checkpointing = False
        self.share_prefixes = True
        self.compile = False
        self._compiled: dict[int, Any] = {}
        self.ranks: Ranks = ALONE
        self._sharded: list[ShardedModel] = []
        self._reference: Any = None
        self._base_moved = False
        self._head_is_plain: bool | None = None
        self._mlp_is_local = False
        self._can_share_prefixes = False
        self._pictures: PictureReader | None = None
        if image_processor is not None:
            self._pictures = PictureReader(image_processor, self.base.config, tokenizer)
        self.model.eval()

    # ---- making, loading, saving ----------------------------------------------------------------

    @classmethod
    def small(
        cls,
        config: SmallPolicyConfig,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int = 0,
        lora: LoRAConfig | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: str | torch.device = "cpu",
    ) -> Policy:
        """Return a policy with random weights; see :func:`build_small_policy`.

        Equal seeds give equal weights, rounded where ``dtype`` is coarse; adapters are float32.
        """
        model: Any = build_small_policy(config, tokenizer, seed)
        for weight in model.parameters():
            # Not what is no weight: rotary frequencies stay exact, as where a model is loaded.
            weight.data = weight.data.to(_dtype(dtype))
        return cls(model.to(device), tokenizer, lora=lora, seed=seed)

    @classmethod
    def load(
        cls,
        path_or_name: str | os.PathLike[str],
        *,
        lora: LoRAConfig | None = None,
        dtype: Literal["float32", "bfloat16", "auto"] = "float32",
        device: str | torch.device = "auto",
        attention: str | None = None,
        seed: int = 0,
    ) -> Policy:
        """Return the policy of a folder that :meth:`save` wrote, or of any causal language model.

        A vision-language model of a known family comes with its image processor.

        Args:
            path_or_name: a folder, or a name that ``from_pretrained`` resolves.
            lora: attach fresh adapters; a folder with adapters goes on with its own.
            dtype: of the weights; ``"auto"``: as stored. Adapters are float32.
            device: ``"auto"`` takes a GPU where there is one.
            attention: transformers' ``attn_implementation``; None: its default.
            seed: of fresh adapters.

        Raises:
            DataError: there is no such model, or its files are damaged.
            ConfigError: ``lora`` for a folder that has adapters.
        """
        require_extra("torch", "train")
        require_extra("transformers", "train")
        import torch
        import transformers
        from transformers import GenerationConfig

        require_folder(str(path_or_name))
        folder = Path(path_or_name)
        adapted = (folder / _ADAPTER_FILE).is_file()
        if adapted and lora is not None:
            raise ConfigError(
                f"{folder} holds adapters already: load it without `lora` to go on training these."
            )
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        # transformers renamed the argument in 4.56.
        name = "dtype" if _version(transformers.__version__) >= (4, 56) else "torch_dtype"
        options: dict[str, Any] = {name: "auto" if dtype == "auto" else _dtype(dtype)}
        if attention is not None:
            options["attn_implementation"] = attention
        try:
            source = base_of(folder) if adapted else str(path_or_name)
            with quiet_bars() if Path(source).is_dir() else nullcontext():
                tokenizer = load_tokenizer(str(path_or_name))
                model: Any = load_model(source, **options)
                image_processor = load_image_processor(str(path_or_name), model.config)
            if adapted:
                check_sums(folder)
                model = load_lora(model, folder)
                if (folder / _GENERATION_FILE).is_file():
                    # The base's own, where it was loaded from, does not know how long replies are.
                    settings = GenerationConfig.from_pretrained(folder)
                    model.base_model.model.generation_config = settings
        except Exception as error:
            raise DataError(
                f"No model could be loaded from {str(path_or_name)!r}: {why_not_loaded(error)} "
                "Expected a folder "
                "with config.json, tokenizer and weights, or the name of a model that can be "
                "downloaded."
            ) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        policy = cls(
            model.to(device), tokenizer, lora=lora, seed=seed, image_processor=image_processor
        )
        policy._base_moved = (folder / _BASE_FOLDER).is_dir()
        return policy

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights and tokenizer in transformers' (adapters: peft's) own layout.

        With adapters, the base model is written beside them (``base/``) unless it was loaded from
        somewhere that it can be loaded from again.
        """
        if self.sharded is not None:
            with self.gathered() as whole:
                whole.save(folder)
            return
        path = Path(folder)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            for place in (path, path / _BASE_FOLDER):
                remove_sums(place)
            self._write(path)
            for place in (path, path / _BASE_FOLDER):
                if place.is_dir():
                    write_sums(place)

    def _write(self, path: Path) -> None:
        self.tokenizer.save_pretrained(path)
        if self.image_processor is not None:
            self.image_processor.save_pretrained(path)
        with quiet_bars():
            if has_lora(self.model):
                # Adapters of learned models are theirs, not the policy's.
                self.model.save_pretrained(str(path), selected_adapters=[POLICY_ADAPTER])
                self.base.generation_config.save_pretrained(path)
            else:
                self.model.save_pretrained(str(path))
            if self.has_own_base:
                without_lora(self.model).save_pretrained(path / _BASE_FOLDER)

    @property
    def has_own_base(self) -> bool:
        """Whether adapters belong to a base model that can be loaded from nowhere else."""
        return has_lora(self.model) and (self._base_moved or not self.base.config._name_or_path)

    def merged(self) -> Policy:
        """Return a policy of equal outputs without adapters; its weights are copies."""
        if not has_lora(self.model):
            whole = without_lora(self.model)
        else:
            whole = merge_lora(self.model)
        return Policy(whole, self.tokenizer, image_processor=self.image_processor)

    def state_dict(self) -> dict[str, Any]:
        """Return the trained weights, and the reference's where they cannot be told otherwise.

        The tensors are the live ones: write them, or clone them, before training goes on. Those
        of a sharded model are made whole, by all ranks together.
        """
        if has_lora(self.model) and not self._base_moved:
            weights = lora_state(self.model)
        else:
            weights = self._all_weights(self.model)
        reference = None if self._reference is None else self._all_weights(self._reference)
        return {"lora": has_lora(self.model), "weights": weights, "reference": reference}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned, in place.

        Raises:
            CheckpointError: it is of another kind of policy or of another shape.
        """
        if state["lora"] != has_lora(self.model):
            kinds = {True: "LoRA adapters", False: "full weights"}
            raise CheckpointError(
                f"The checkpoint holds {kinds[state['lora']]}, this policy trains "
                f"{kinds[not state['lora']]}. Use the settings that the checkpoint was made with."
            )
        try:
            self._load(self.model, state["weights"])
            self._base_moved |= has_lora(self.model) and _is_whole(self.model, state["weights"])
            if state["reference"] is not None:
                if self._reference is None:
                    self.freeze_reference()
                self._load(self._reference, state["reference"])
        except RuntimeError as error:
            raise CheckpointError(
                f"The checkpoint does not fit this policy: {str(error).strip()} Use the settings "
                "(shape, vocabulary) that it was made with."
            ) from error

    # ---- over several processes -----------------------------------------------------------------

    def shard(self, *, with_reference: bool = False) -> None:
        """Spread the weights, and a frozen reference's, over :attr:`ranks`; nothing where alone.

        Call it when all learned models stand beside the policy (they begin as copies of it) and no
        optimizer does: the parameters are others afterwards. From now on every rank must ask for
        equally many scores.

        Args:
            with_reference: the reference will be asked for: where it is a copy of the weights, and
                none was made, it is made now.
        """
        if self.ranks.size == 1 or self._sharded:
            return
        from creditrl.trainers.parallel.sharding import ShardedModel

        if with_reference and self._reference is None and not has_lora(self.model):
            self.freeze_reference()
        self._plain_head()  # asks the model as a whole
        for model in filter(lambda m: m is not None, (self.model, self._reference)):
            base = model.get_base_model() if has_lora(model) else model
            self._sharded.append(ShardedModel(model, base.get_decoder(), self.ranks))

    def unshard(self) -> None:
        """Have all weights on every rank again; the model is another object afterwards."""
        if not self._sharded:
            return
        with self.ranks.together("unshard"):
            for sharded in self._sharded:
                if self.model is sharded.model:
                    self.model = self.whole_model()
                else:
                    self._reference = sharded.fill()
            self._sharded = []

    @property
    def sharded(self) -> ShardedModel | None:
        """How the live model is sharded; None where it is whole."""
        return next((s for s in self._sharded if s.model is self.model), None)

    def whole_model(self) -> Any:
        """Return a model with all weights: the live one, or the twin of a sharded one, filled.

        The twin's weights are those of now; :meth:`release` lets them go.
        """
        sharded = self.sharded
        if sharded is None:
            return self.model
        if not sharded.filled:
            with self.ranks.together("fill"):
                sharded.fill()
        whole = sharded.twin
        inner = whole.get_base_model() if has_lora(whole) else whole
        inner.generation_config = self.base.generation_config
        return whole

    def release(self) -> None:
        """Free what :meth:`whole_model` made, because it is old or its memory is needed."""
        if self.sharded is not None and self.sharded.filled:
            with self.ranks.together("release"):
                self.sharded.release()

    @contextmanager
    def gathered(self) -> Iterator[Policy]:
        """Give this policy with whole weights, to be read: to save it, or to hand it on."""
        if self.sharded is None:
            yield self
            return
        kept = self.sharded.filled
        whole = object.__new__(type(self))
        whole.__dict__.update(self.__dict__)
        whole.model, whole.ranks, whole._sharded = self.whole_model(), ALONE, []
        try:
            yield whole
        finally:
            if not kept:
                self.release()

    def _all_weights(self, model: Any) -> dict[str, Any]:
        weights = own_weights(model.state_dict())
        if not self._sharded:
            return weights
        from creditrl.trainers.parallel.sharding import full_tensors

        return full_tensors(weights)  # type: ignore[no-any-return]

    def _load(self, model: Any, weights: dict[str, Any]) -> None:
        for sharded in self._sharded:
            if sharded.model is model and _is_whole(model, weights):
                sharded.load(own_weights(weights))
                return
        _load_weights(model, weights)

    def _run(self, work: Any, *arguments: Any) -> Any:
        """Compute with the live model's parts, wherever its weights are."""
        sharded = self.sharded
        return work(*arguments) if sharded is None else sharded.run(work, *arguments)

    # ---- what it is -----------------------------------------------------------------------------

    @property
    def base(self) -> Any:
        """The causal language model itself, inside its adapters where it has some."""
        return self.model.get_base_model() if has_lora(self.model) else self.model

    @property
    def pictures(self) -> PictureReader | None:
        """Reader of pictures; None for a text model."""
        return self._pictures

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def hidden_size(self) -> int:
        """D, the width of the last hidden state."""
        return int(self.base.config.get_text_config().hidden_size)

    @property
    def num_parameters(self) -> int:
        """Weights of the live model, adapters included; tied weights count once."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def num_trainable(self) -> int:
        """Weights that training moves."""
        return sum(p.numel() for p in self.trainable_parameters())

    def trainable_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters for the optimizer: the adapters' where there are some, else all."""
        return [p for p in self.model.parameters() if p.requires_grad]

    # ---- the reference --------------------------------------------------------------------------

    def freeze_reference(self) -> None:
        """Make the policy as it stands the reference.

        Without adapters this keeps a copy of the weights: once more the policy's memory. With
        adapters they are folded into the base weights and begun anew, which costs nothing later;
        call it before the optimizer is built, because the trained parameters are new ones.
        """
        with self.ranks.together("freeze"):
            if not has_lora(self.model):
                self._reference = without_lora(self.model).eval().requires_grad_(False)
                return
            self.model = renew_lora(self.model, self._seed + 1)
            self._base_moved = True

    @contextmanager
    def reference(self) -> Iterator[Policy]:
        """Make this object score as the reference policy while the context lasts.

        With adapters the reference is the model with them off. Otherwise it is a frozen copy, made
        by :meth:`freeze_reference`, or now, if that was never called.
        """
        if has_lora(self.model):
            with self.model.disable_adapter():
                yield self
            return
        if self._reference is None:
            self.freeze_reference()
        live, self.model = self.model, self._reference
        try:
            yield self
        finally:
            self.model = live

    # ---- scoring --------------------------------------------------------------------------------

    def reply_logprobs(
        self,
        rows: RowBatch,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
        with_hidden: bool = False,
        grad: bool = True,
    ) -> ReplyScores:
        """Return the log-probability of every reply token of a batch.

        Args:
            rows: padded model inputs; M reply tokens.
            temperature: divides the logits, so that they are those of the sampler; above 0.
            with_entropy: also the entropy of the distribution at each token.
            with_hidden: also the last hidden state before each token.
            grad: record what a backward pass needs.

        Returns:
            ``(logprob_M, entropy_M or None, hidden_M or None)``.

        Raises:
            ConfigError: the temperature is not positive.
        """
        if not temperature > 0:
            raise ConfigError(f"temperature is {temperature}: expected more than 0.")
        import torch

        with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
            scores: ReplyScores = self._run(
                self._reply_scores, rows, temperature, with_entropy, with_hidden
            )
            return scores

    def _reply_scores(
        self, rows: RowBatch, temperature: float, with_entropy: bool, with_hidden: bool
    ) -> ReplyScores:
        import torch

        whole = np.zeros(rows.num_tokens, dtype=np.bool_)
        if rows.tree_M is not None:
            whole = np.array([*(tree.whole for tree in rows.trees), False])[rows.tree_M]
        if whole.all() and len(whole) and not with_hidden:
            return ReplyScores(*self._whole_scores(rows, whole, temperature))
        found = self._token_scores(rows, temperature, with_entropy, with_hidden)
        if not whole.any():
            return found
        logprob_K, entropy_K = self._whole_scores(rows, whole, temperature)
        at_K = torch.from_numpy(np.flatnonzero(whole)).to(self.device)
        logprob_M, entropy_M, hidden_M = found
        return ReplyScores(
            logprob_M.index_copy(0, at_K, logprob_K),
            None if entropy_M is None else entropy_M.index_copy(0, at_K, entropy_K),
            hidden_M,
        )

    def _whole_scores(
        self, rows: RowBatch, whole: NDArray[np.bool_], temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies of the tokens of replies compared as a whole.

        Every prompt is read once, with the whole list behind it; see :mod:`agents.tree_scores`.
        """
        import torch

        assert rows.tree_M is not None and rows.node_M is not None, "some tokens are of a list"
        at = np.flatnonzero(whole)
        tree_K, node_K, row_K = rows.tree_M[at], rows.node_M[at], rows.row_M[at]
        depths = {k: rows.trees[k].depths for k in np.unique(tree_K).tolist()}
        depth_K = np.array([depths[k][n] for k, n in zip(tree_K.tolist(), node_K, strict=True)])
        # A reply's first token is predicted by the last one of its prompt.
        length_K = rows.position_M[at] - depth_K + 1
        pair_P3, pair_K = np.unique(
            np.stack([row_K, length_K, tree_K], axis=1), axis=0, return_inverse=True
        )
        pair_K = pair_K.reshape(-1)
        row_P, length_P, tree_P = pair_P3.T
        batch = TreeBatch([rows.trees[k] for k in tree_P.tolist()])
        width = int(length_P.max()) + batch.ids_PN.shape[1]
        ids_PW = np.zeros((len(row_P), width), dtype=np.int64)
        position_PW = np.zeros_like(ids_PW)
        sees_PWW = np.broadcast_to(np.tri(width, dtype=np.bool_), (len(row_P), width, width)).copy()
        for p, (row, length) in enumerate(zip(row_P.tolist(), length_P.tolist(), strict=True)):
            end = length + batch.ids_PN.shape[1]
            ids_PW[p, :length] = rows.ids_RL[row, :length]
            ids_PW[p, length:end] = batch.ids_PN[p]
            position_PW[p, :length] = np.arange(length)
            position_PW[p, length:end] = length - 1 + batch.depth_PN[p]
            sees_PWW[p, length:end, length:end] = batch.sees_PNN[p]
        column_E = length_P[batch.pair_E] + batch.column_E  # -1: the prompt's last token
        place_U, place_E = np.unique(batch.pair_E * width + column_E, return_inverse=True)
        tensors = (ids_PW, position_PW, sees_PWW, place_U // width, place_U % width, place_E)
        ids, position, sees, row_U, column_U, of_E = (
            torch.from_numpy(array).to(self.device) for array in tensors
        )
        token_E = torch.from_numpy(batch.token_E).to(self.device)
        logprob_E = self._after(ids, position, sees, row_U, column_U, of_E, token_E, temperature)
        gain_E, entropy_E = batch.renormalised(logprob_E)
        token_K = rows.token_M[at].tolist()
        child_K = np.array(
            [
                rows.trees[tree].children[node][token]
                for tree, node, token in zip(tree_K.tolist(), node_K.tolist(), token_K, strict=True)
            ]
        )
        chosen_K = torch.from_numpy(batch.branch(pair_K, child_K)).to(self.device)
        return gain_E[chosen_K], entropy_E[chosen_K]

    def _after(
        self,
        ids: torch.Tensor,
        position: torch.Tensor,
        sees: torch.Tensor,
        row_U: torch.Tensor,
        column_U: torch.Tensor,
        of_E: torch.Tensor,
        token_E: torch.Tensor,
        temperature: float,
    ) -> torch.Tensor:
        """Return the log-probability of E tokens after U places of rows that see what they may."""
        import torch

        dtype = self.base.get_output_embeddings().weight.dtype
        mask = torch.where(sees, 0.0, torch.finfo(dtype).min).to(dtype).unsqueeze(1)
        inputs = {"input_ids": ids, "position_ids": position, "attention_mask": mask}
        if not self._plain_head():
            logits_UV = self.base(**inputs, use_cache=False).logits[row_U, column_U]
            return score_tokens(logits_UV, of_E, token_E, temperature, False)[0]
        decoder = self.base.get_decoder()
        again = self.checkpointing and torch.is_grad_enabled()
        with checkpointed(decoder) if again else nullcontext():
            out = decoder(**inputs, use_cache=False)
        hidden_UD = out.last_hidden_state[row_U, column_U]
        return self._score(hidden_UD, of_E, token_E, temperature, False, ())[0]

    def _token_scores(
        self, rows: RowBatch, temperature: float, with_entropy: bool, with_hidden: bool
    ) -> ReplyScores:
        """Return the scores of all tokens, each as drawn by itself."""
        import torch

        row_U, position_U, place_M = distinct_places(rows, self.device)
        token_M = torch.from_numpy(rows.token_M).to(self.device)
        ids_RL = torch.from_numpy(rows.ids_RL).to(self.device)
        if rows.images and self._pictures is None:
            raise CreditInputError(
                "The rows have pictures, and this model reads text: expected a policy that was "
                "loaded with its image processor."
            )
        if self._pictures is not None and not rows.images:
            self._pictures.require_pictures(ids_RL)
        if not self._plain_head():
            if rows.images:
                raise ConfigError(
                    f"{type(self.base).__name__} makes its logits in a way of its own: expected"
                    " a plain output layer on the last hidden state beside pictures."
                )
            if with_hidden:
                raise ConfigError(
                    f"{type(self.base).__name__} makes its logits in a way of its own, so its "
                    "last hidden state is not known. Use a critic of kind 'copy'."
                )
            logits_UV = self.base(input_ids=ids_RL, use_cache=False).logits[row_U, position_U]
            found = score_tokens(
                logits_UV, place_M, token_M, temperature, with_entropy, menus_of(rows)
            )
            return ReplyScores(*found)
        hidden_UD = self._hidden(ids_RL, row_U, position_U, rows.images)
        logprob_M, entropy_M = self._score(
            hidden_UD, place_M, token_M, temperature, with_entropy, menus_of(rows)
        )
        return ReplyScores(logprob_M, entropy_M, hidden_UD[place_M] if with_hidden else None)

    def score(
        self, rows: Rows, *, token_budget: int = 16384, temperature: float = 1.0
    ) -> FloatArray:
        """Return the log-probability of every reply token, float32 [M], without a gradient.

        Where several ranks train together each computes some of them, so all must ask.
        """
        logprob_M = np.zeros(rows.num_tokens, dtype=np.float32)
        for batch, counts in self.micro_batches(rows, token_budget):
            scores = self.reply_logprobs(batch, temperature=temperature, grad=False)
            if counts:
                logprob_M[batch.token_index] = scores.logprob_M.float().cpu().numpy()
        return self.ranks.total(logprob_M)

    def micro_batches(self, rows: Rows, token_budget: int) -> list[tuple[RowBatch, bool]]:
        """Return this rank's micro-batches, and whether each counts; see :meth:`Ranks.deal`."""
        return self.ranks.divide(
            lambda budget: micro_batches(rows, budget), token_budget, rows.length_R
        )

    def hidden_at(
        self,
        ids_RL: NDArray[np.int64],
        row_K: IntArray,
        position_K: IntArray,
        *,
        logits: bool = False,
    ) -> torch.Tensor:
        """Return the last hidden state at K positions of R rows, [K, D]; with a gradient.

        Args:
            ids_RL: token ids, padded at the right.
            row_K: row of each position.
            position_K: position within the row.
            logits: return the logits of the next token instead, [K, V].
        """
        import torch

        def state(
            ids_RL: torch.Tensor, row_U: torch.Tensor, position_U: torch.Tensor
        ) -> torch.Tensor:
            hidden_UD = self._hidden(ids_RL, row_U, position_U)
            return self.base.get_output_embeddings()(hidden_UD) if logits else hidden_UD

        self._plain_head()  # finds out whether the last MLP may be left out elsewhere
        # A place that several turns are read at is computed once; written twice, it would lose the
        # gradient of all but one.
        width = ids_RL.shape[1]
        place_U, of_K = np.unique(row_K * width + position_K, return_inverse=True)
        state_UD: torch.Tensor = self._run(
            state,
            torch.from_numpy(ids_RL).to(self.device),
            torch.from_numpy(place_U // width).to(self.device),
            torch.from_numpy(place_U % width).to(self.device),
        )
        return state_UD[torch.from_numpy(of_K).to(self.device)]

    def _hidden(
        self,
        ids_RL: torch.Tensor,
        row_U: torch.Tensor,
        position_U: torch.Tensor,
        images: Sequence[Any] = (),
    ) -> torch.Tensor:
        """Return the last hidden state at U positions, [U, D]."""
        import torch

        decoder = self.base.get_decoder()
        again = self.checkpointing and torch.is_grad_enabled()
        pictured = any(image is not None for image in images)

        def mlp_at(size: int, row: torch.Tensor, position: torch.Tensor) -> Any:
            # Blocks that are computed again in the backward pass are so without the hooks.
            few = 2 * len(row) <= size and not self.model.training and not again
            mlp = last_mlp(decoder) if few and self._mlp_is_local else None
            return nullcontext() if mlp is None else only_at(mlp, row, position)

        if self.compile and not (pictured or again or self._sharded):
            out = self._compiled_decoder(decoder, ids_RL)
            return cast("torch.Tensor", out.last_hidden_state[row_U, position_U])
        # Weights that are gathered for a pass, and blocks that are run again, want one pass.
        one_pass = pictured or again or bool(self._sharded) or self.model.training
        if self.share_prefixes and self._can_share_prefixes and not one_pass:
            shared = find_prefixes(*(at.cpu().numpy() for at in (ids_RL, row_U, position_U)))
            if shared is not None:
                return hidden_after_prefixes(decoder, ids_RL, shared, row_U, position_U, mlp_at)
        inputs: dict[str, Any] = {"input_ids": ids_RL}
        if pictured:
            assert self._pictures is not None, "checked by the caller"
            inputs = self._pictures.embed(self.base, ids_RL, images)
        # No attention mask: padding stands at the right, where a causal model does not look.
        with (
            mlp_at(ids_RL.numel(), row_U, position_U),
            checkpointed(decoder) if again else nullcontext(),
        ):
            out = decoder(**inputs, use_cache=False)
        hidden: torch.Tensor = out.last_hidden_state[row_U, position_U]
        return hidden

    def _compiled_decoder(self, decoder: Any, ids_RL: torch.Tensor) -> Any:
        """Return what the compiled decoder computes; it is compiled when it is first asked for."""
        import torch

        compiled = self._compiled.get(id(decoder))
        if compiled is None:
            # It keeps its decoder alive, so no other has that id; a reference may be the second.
            while len(self._compiled) > 1:
                self._compiled.pop(next(iter(self._compiled)))
            compiled = self._compiled[id(decoder)] = torch.compile(decoder, dynamic=True)
        try:
            return compiled(input_ids=ids_RL, use_cache=False)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise ConfigError(
                "The policy's decoder cannot be compiled here: "
                f"{str(error).strip().splitlines()[0]} Leave policy.compile out."
            ) from error

    def _score(
        self,
        hidden_UD: torch.Tensor,
        place_M: torch.Tensor,
        token_M: torch.Tensor,
        temperature: float,
        with_entropy: bool,
        menu_M: Menus,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities and entropies, a chunk of positions at a time."""
        import torch
        from torch.utils.checkpoint import checkpoint

        head = self.base.get_output_embeddings()

        def part(
            hidden: torch.Tensor, place: torch.Tensor, token: torch.Tensor, menus: Menus
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            return score_tokens(head(hidden), place, token, temperature, with_entropy, menus)

        size = max(1, self.logits_per_chunk // head.weight.shape[0])
        if len(hidden_UD) <= size:
            return part(hidden_UD, place_M, token_M, menu_M)
        order_M = torch.argsort(place_M, stable=True)
        sorted_M = place_M[order_M]
        logprobs, entropies = [], []
        for start in range(0, len(hidden_UD), size):
            bounds = torch.tensor([start, start + size], device=sorted_M.device)
            first, last = torch.searchsorted(sorted_M, bounds).tolist()
            chosen = order_M[first:last]
            logprob, entropy = checkpoint(
                part,
                hidden_UD[start : start + size],
                place_M[chosen] - start,
                token_M[chosen],
                tuple(menu_M[k] for k in chosen.tolist()) if menu_M else (),
                use_reentrant=False,
            )
            logprobs.append(logprob)
            entropies.append(entropy)
        back_M = torch.argsort(order_M)
        logprob_M = torch.cat(logprobs)[back_M]
        return logprob_M, torch.cat(entropies)[back_M] if with_entropy else None

    def _plain_head(self) -> bool:
        """Whether the logits are the output layer on the last hidden state, and nothing more.

        Some models cap or scale them (Gemma 2, Granite, Cohere). Tried once, on four tokens; so is
        whether the last block's MLP may be computed at some positions only, and whether beginnings
        that rows share may be computed once.
        """
        if self._head_is_plain is None:
            import torch

            ids = torch.arange(4, device=self.device).unsqueeze(0)
            decoder, mlp = self.base.get_decoder(), last_mlp(self.base.get_decoder())
            with torch.no_grad():
                theirs = self.base(input_ids=ids, use_cache=False).logits
                hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state
                ours = self.base.get_output_embeddings()(hidden)
                # Both ran the same operations on the same shapes, so plain means (almost) equal.
                self._head_is_plain = _close(ours, theirs, 1e-3)
                if mlp is not None:
                    first = torch.zeros(1, dtype=torch.long, device=self.device)
                    try:
                        with only_at(mlp, first, first + 2):
                            tried = decoder(input_ids=ids, use_cache=False).last_hidden_state
                        # Other shapes round differently (bfloat16: 0.4 % at each step).
                        self._mlp_is_local = _close(tried[0, 2], hidden[0, 2], 0.05)
                    except (RuntimeError, TypeError, IndexError, AttributeError):
                        # An MLP with inputs or outputs of another form (some mixtures of experts).
                        self._mlp_is_local = False
                try:
                    self._can_share_prefixes = self._head_is_plain and self._tries_prefixes(ids)
                except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
                    # A cache or a mask of another form.
                    self._can_share_prefixes = False
        return self._head_is_plain

    def _tries_prefixes(self, ids: torch.Tensor) -> bool:
        """Return whether two rows that share a beginning come out as they do by themselves."""
        import torch

        if not can_share(self.base):
            return False
        decoder = self.base.get_decoder()
        ids_RL = torch.cat([ids, ids.flip(1)]).repeat(1, 2)
        ids_RL = torch.cat([ids_RL[:1], ids_RL[:1], ids_RL])
        ids_RL[1, -1] = 0
        # Three tokens that two rows share, one that the third has alone, none of the last's.
        shared = SharedPrefixes(
            row_K=np.array([0, 2, 3]),
            length_K=np.array([3, 1, 0]),
            prefix_R=np.array([0, 0, 1, 2]),
            suffix=8,
        )
        row_U = torch.arange(4, device=ids.device).repeat_interleave(2)
        position_U = torch.tensor([3, 7], device=ids.device).repeat(4)
        ours = hidden_after_prefixes(
            decoder, ids_RL, shared, row_U, position_U, lambda *_: nullcontext()
        )
        alone = decoder(input_ids=ids_RL, use_cache=False).last_hidden_state[row_U, position_U]
        return _close(ours, alone, 0.05)


def _close(ours: torch.Tensor, theirs: torch.Tensor, share: float) -> bool:
    """Return whether no number differs by more than a share of the largest."""
    if ours.shape != theirs.shape:
        return False
    return bool((ours - theirs).abs().max() <= share * theirs.abs().max())


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _dtype(name: str) -> torch.dtype:
    import torch

    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name not in known:
        raise ConfigError(f"dtype is {name!r}: expected 'float32', 'bfloat16' or 'auto'.")
    return known[name]


def base_of(folder: Path) -> str:
    """Return where the base model of a folder with adapters is."""
    if (folder / _BASE_FOLDER).is_dir():
        return str(folder / _BASE_FOLDER)
    named = read_object_file(folder / _ADAPTER_FILE).get("base_model_name_or_path")
    if not named:
        raise DataError(
            f"{folder / _ADAPTER_FILE} names no base model and {folder / _BASE_FOLDER} does not "
            "exist: expected one of them. Save the policy again with Policy.save."
        )
    return str(named)


def _load_weights(model: Any, weights: dict[str, Any]) -> None:
    if not has_lora(model):
        model.load_state_dict(weights)
        return
    if _is_whole(model, weights):
        # Adapters of learned models may stand beside them, here or there.
        model.load_state_dict(own_weights(weights), strict=False)
        return
    import peft

    odd = set(weights) ^ set(peft.get_peft_model_state_dict(model))
    if odd:
        raise RuntimeError(f"adapters sit on other layers, e.g. {min(odd)}.")
    peft.set_peft_model_state_dict(model, weights)


def _is_whole(model: Any, weights: dict[str, Any]) -> bool:
    """Whether these are all weights, not only an adapter's."""
    return set(own_weights(weights)) == set(own_weights(model.state_dict()))
