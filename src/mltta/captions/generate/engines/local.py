"""Captions by a language model on this machine, through Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mltta.captions.generate.engines import Answer, Request
from mltta.errors import EngineError
from mltta.model.device import pick_device


class TransformersEngine:
    """Writes a batch of sentences at a time.

    A request draws its words from random numbers of its own, so that it is answered alike in any batch, as far as
    the rounding of the arithmetic allows.
    """

    def __init__(
        self,
        model: str,
        *,
        temperature: float = 0.7,
        max_tokens: int = 96,
        batch_size: int = 16,
        device: str = "auto",
    ) -> None:
        """Args:
        model: a name on the Hugging Face hub, a folder, or a GGUF file (on the hub: OWNER/NAME/FILE.gguf).
        temperature: 0 always takes the likeliest word.
        """
        self.batch_size = batch_size
        self._device = pick_device(device)
        self._temperature, self._max_tokens = temperature, max_tokens
        self._name = Path(model).name if Path(model).exists() else model
        self._tokenizer, self._model = _load(model, self._device)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and how it samples."""
        return {
            "engine": "transformers",
            "model": self._name,
            "temperature": self._temperature,
            "max_tokens": self._max_tokens,
        }

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Give the answers of one batch after another."""
        for start in range(0, len(requests), self.batch_size):
            yield from self._batch(requests[start : start + self.batch_size])

    @torch.inference_mode()
    def _batch(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer a few requests at once."""
        texts = [self._chat(request.prompt) for request in requests]
        # a chat template writes the special tokens itself
        plain = self._tokenizer.chat_template is None
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=plain)
        inputs = {name: inputs[name].to(self._device) for name in ("input_ids", "attention_mask")}
        draws = _OwnDraws([request.seed for request in requests], self._temperature, self._device)
        written = self._model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=self._max_tokens,
            logits_processor=[draws] if self._temperature > 0 else [],
            pad_token_id=self._tokenizer.pad_token_id,
        )[:, inputs["input_ids"].shape[1] :]
        prompts = inputs["attention_mask"].sum(dim=1).tolist()
        return [
            Answer(
                request.n, self._tokenizer.decode(row, skip_special_tokens=True), prompt, self._length(row)
            )
            for request, row, prompt in zip(requests, written, prompts, strict=True)
        ]

    def _chat(self, prompt: str) -> str:
        """The question as this model is used to seeing one."""
        if self._tokenizer.chat_template is None:
            return prompt
        chat = [{"role": "user", "content": prompt}]
        # models that think first are asked not to; templates without this word ignore it
        return str(
            self._tokenizer.apply_chat_template(
                chat, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        )

    def _length(self, row: Tensor) -> int:
        """Tokens of an answer, its end included."""
        ends = torch.tensor(self._ends, device=row.device)
        at = torch.isin(row, ends).nonzero()
        return int(at[0]) + 1 if len(at) else len(row)

    @property
    def _ends(self) -> list[int]:
        held = self._model.generation_config.eos_token_id
        return held if isinstance(held, list) else [] if held is None else [held]


class _OwnDraws:
    """Turns taking the best word into drawing one: noise that makes the highest score a draw from the softmax."""

    def __init__(self, seeds: Sequence[int], temperature: float, device: torch.device) -> None:
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        noise = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)  # (B, V)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        return scores.float() / self._temperature - noise.log()


def _load(model: str, device: torch.device) -> tuple[Any, Any]:
    """Tokenizer and model; weights are read from safetensors or GGUF only, which hold no programs."""
    try:
        transformers = import_module("transformers")
    except ImportError as error:
        raise EngineError("this engine needs Hugging Face transformers: pip install 'mltta[llm]'") from error
    source, options = model, {}
    if model.endswith(".gguf"):
        path = Path(model)
        source, options = path.parent.as_posix(), {"gguf_file": path.name}
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, padding_side="left", **options)
        network = transformers.AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, use_safetensors=True, **options
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise EngineError(
            f"{model} cannot be opened as a language model: {error}. Give a name on the Hugging Face hub, a folder "
            "with safetensors weights, or a GGUF file."
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    for name in ("temperature", "top_p", "top_k"):  # sampling is ours
        setattr(network.generation_config, name, None)
    return tokenizer, network.to(device).eval()
