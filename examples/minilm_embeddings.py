"""How far do sentence embeddings move when a model is quantized?

A small BERT in numpy embeds the lines of `examples/sentences.txt`, once with all-MiniLM-L6-v2 as it was published and
once with each export of its artifacts, and prints the cosine between the two embeddings of a sentence:

    ninfer-convert MODEL --recipe q4 -o minilm-q4.ninfer
    ninfer-convert export minilm-q4.ninfer -o minilm-q4
    python examples/minilm_embeddings.py MODEL minilm-q4

MODEL and the exports are folders of config.json, tokenizer.json and model.safetensors.
"""

from __future__ import annotations

import json
import math
import string
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]

erf = np.frompyfunc(math.erf, 1, 1)


@dataclass(frozen=True)
class Model:
    """A BERT: weights by name, the id of each token, and what shapes do not tell."""

    weights: Mapping[str, Array]
    vocabulary: Mapping[str, int]
    layers: int
    heads: int
    epsilon: float

    def linear(self, name: str, x: Array) -> Array:
        """[tokens, in] -> [tokens, out]."""
        y: Array = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return y

    def norm(self, name: str, x: Array) -> Array:
        """Layer normalisation of each token."""
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(self.epsilon))
        y: Array = centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return y


def load(folder: Path) -> Model:
    """The model in `folder`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return Model(
        load_file(folder / "model.safetensors"),
        tokenizer["model"]["vocab"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["layer_norm_eps"],
    )


def words(text: str) -> list[str]:
    """`text` in lower case and without accents, cut at spaces and around each punctuation mark and ideograph."""
    spaced = ""
    for character in unicodedata.normalize("NFD", text):
        category = unicodedata.category(character)
        if category == "Mn":
            continue
        alone = character in string.punctuation or category[0] == "P" or "\u4e00" <= character <= "\u9fff"
        spaced += f" {character} " if alone else character.lower()
    return spaced.split()


def pieces(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The ids of what makes up `word`: from left to right, the longest piece that the vocabulary has (WordPiece)."""
    found: list[int] = []
    begin = 0
    while begin < len(word):
        prefix = "##" if begin else ""
        ends = range(len(word), begin, -1)
        end = next((end for end in ends if prefix + word[begin:end] in vocabulary), None)
        if end is None:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[prefix + word[begin:end]])
        begin = end
    return found


def tokens(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The ids of `text`, between those of [CLS] and [SEP]."""
    ids = [id for word in words(text) for id in pieces(word, vocabulary)]
    return [vocabulary["[CLS]"], *ids, vocabulary["[SEP]"]]


def attention(heads: int, query: Array, key: Array, value: Array) -> Array:
    """Each token of one text mixes the values of all, in each head by itself; [tokens, hidden] throughout."""
    q, k, v = (x.reshape(len(x), heads, -1).swapaxes(0, 1) for x in (query, key, value))
    scores = q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: Array = (shares / shares.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(query.shape)
    return mixed


def gelu(x: Array) -> Array:
    """x times the share of a normal distribution that lies below x."""
    below: Array = (1 + erf(x / np.float32(2**0.5)).astype(np.float32)) / 2
    return x * below


def embed(model: Model, texts: Sequence[str]) -> Array:
    """The embeddings of `texts`, [texts, hidden]: each the mean over a text's tokens, of length 1.

    The tokens of all texts stand in one array; only attention and the mean take a text by itself.
    """
    ids = [tokens(text, model.vocabulary) for text in texts]
    cuts = np.cumsum([len(text) for text in ids])[:-1]
    word, position, kind = (
        model.weights[f"embeddings.{table}_embeddings.weight"] for table in ("word", "position", "token_type")
    )
    x = np.concatenate([word[text] + position[: len(text)] + kind[0] for text in ids])
    x = model.norm("embeddings.LayerNorm", x)
    for layer in range(model.layers):
        name = f"encoder.layer.{layer}"
        inputs = (
            np.split(model.linear(f"{name}.attention.self.{role}", x), cuts) for role in ("query", "key", "value")
        )
        y = np.concatenate([attention(model.heads, *text) for text in zip(*inputs, strict=True)])
        x = model.norm(f"{name}.attention.output.LayerNorm", x + model.linear(f"{name}.attention.output.dense", y))
        y = gelu(model.linear(f"{name}.intermediate.dense", x))
        x = model.norm(f"{name}.output.LayerNorm", x + model.linear(f"{name}.output.dense", y))
    means = np.stack([text.mean(0) for text in np.split(x, cuts)])
    embeddings: Array = means / np.linalg.norm(means, axis=-1, keepdims=True)
    return embeddings


def main(original: Path, *exports: Path) -> None:
    """Print how near the embeddings of each export are to those of `original`."""
    sentences = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
    reference = embed(load(original), sentences)
    print(f"cosine over {len(sentences)} sentences     mean   lowest")
    for export in exports:
        cosines = (embed(load(export), sentences) * reference).sum(-1)
        print(f"{export.name:25} {cosines.mean():8.4f} {cosines.min():8.4f}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
