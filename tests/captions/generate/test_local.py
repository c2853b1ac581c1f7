"""Claims about the engine that runs a language model on this machine."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from mltta.captions.generate.engines import Request
from mltta.captions.generate.engines.local import TransformersEngine, _OwnDraws
from mltta.errors import EngineError

WORDS = ["<pad>", "<end>", "user", "a", "dog", "cat", "sofa", "photo", "of", "on", "the", ".", "sits", "and"]


def request(n: int, prompt: str = "a photo of a dog") -> Request:
    return Request(n, ("dog",), prompt, seed=1000 + n)


def test_noise_draws_words_with_the_softmax_at_the_temperature() -> None:
    scores = torch.tensor([1.0, 0.0, 2.0, -1.0]).repeat(1, 1)
    draws = _OwnDraws([7], temperature=0.5, device=torch.device("cpu"))
    drawn = torch.stack([draws(scores, scores).argmax(dim=-1)[0] for _ in range(20_000)])
    shares = torch.bincount(drawn, minlength=4) / 20_000
    torch.testing.assert_close(shares, (scores[0] / 0.5).softmax(dim=0), atol=0.015, rtol=0)


def test_a_request_draws_alike_in_any_batch() -> None:
    scores = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    together = _OwnDraws([1, 2, 3], 1.0, torch.device("cpu"))
    alone = _OwnDraws([2], 1.0, torch.device("cpu"))
    for _ in range(3):
        assert torch.equal(together(scores, scores)[1], alone(scores[1:2], scores[1:2])[0])


@pytest.mark.skipif(importlib.util.find_spec("transformers") is not None, reason="transformers is there")
def test_without_transformers_the_error_says_what_to_install() -> None:
    with pytest.raises(EngineError, match=r"pip install 'mltta\[llm\]'"):
        TransformersEngine("some/model")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A language model of random weights, saved as models are."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("model")
    vocabulary = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>")
    raw = tokenizers.Tokenizer(vocabulary)
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", unk_token="<pad>"
    )
    tokenizer.chat_template = "{% for m in messages %}user {{ m.content }} {% endfor %}."
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.5,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def test_answers_do_not_depend_on_the_batch_and_tokens_are_counted(model: str) -> None:
    asked = [request(n, "a photo of" + " a dog" * (n % 4)) for n in range(10)]
    answers = {
        size: list(TransformersEngine(model, temperature=1.0, max_tokens=12, batch_size=size).answers(asked))
        for size in (1, 4, 10)
    }
    assert answers[1] == answers[4] == answers[10]
    assert len({answer.text for answer in answers[1]}) > 5
    for answer, question in zip(answers[1], asked, strict=True):
        assert answer.prompt_tokens == len(question.prompt.split()) + 2  # with the template's words
        assert 1 <= answer.answer_tokens <= 12
        ended = answer.answer_tokens < 12
        assert len(answer.text.split()) <= answer.answer_tokens - ended


def test_temperature_zero_takes_the_likeliest_words_whatever_the_seed(model: str) -> None:
    greedy = TransformersEngine(model, temperature=0, max_tokens=6)
    assert len({answer.text for answer in greedy.answers([request(n) for n in range(5)])}) == 1


def test_a_model_that_is_not_there_is_an_error_with_advice(model: str, tmp_path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no weights")
    for wrong in (tmp_path, tmp_path / "x.gguf"):
        with pytest.raises(EngineError, match="cannot be opened as a language model"):
            TransformersEngine(str(wrong))
