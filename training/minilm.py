"""Sentence embeddings of all-MiniLM-L6-v2: the target space of the text tower."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional as F


@torch.inference_mode()
def embed(folder: Path, texts: list[str], device: torch.device, batch: int = 2048) -> torch.Tensor:
    """Unit embeddings (n, 384) in half precision: mean of the last layer over the tokens of each text."""
    from transformers import AutoModel, AutoTokenizer  # slow import, needed only once per pack

    tokenizer = AutoTokenizer.from_pretrained(folder)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    model = AutoModel.from_pretrained(folder, dtype=dtype).to(device).eval()
    out = torch.empty(len(texts), model.config.hidden_size, dtype=torch.float16, device=device)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # sorted by length
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        inputs = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=64,
                           return_tensors="pt").to(device)  # fmt: skip
        states = model(**inputs).last_hidden_state.float()
        mask = inputs["attention_mask"].unsqueeze(-1).float()
        mean = (states * mask).sum(1) / mask.sum(1)
        out[torch.tensor(rows, device=device)] = F.normalize(mean, dim=-1).half()
    return out.clone()
