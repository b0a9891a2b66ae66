"""When KV caching is exact, shown on a plainly written decoder: one sequence, no kernels.

Caching is exact under two conditions. (i) The hidden state of a token depends on no later token.
(ii) The cached values do not depend on the position of the query that reads them. A `Rule` defines
the attention scores and what is cached of a key; `recomputed` never caches, `cached` always does.
"""

import torch
from torch import Tensor

from kvsim.backend.transformer.between import EPSILON
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.products import plain
from kvsim.backend.transformer.rope import rotate, turns

NEVER = -torch.inf


class Rule:
    """An attention rule. Tensors are [tokens, heads, head_dim], positions int64 [tokens], scores
    [heads, n, m].
    """

    causal = True
    kept_width = 1  # times the width of a key

    def keep(self, key: Tensor, of: Tensor) -> Tensor:
        """Return the part of keys at positions `of` to cache: the keys unchanged, unless
        overridden.
        """
        return key

    def scores(self, query: Tensor, kept: Tensor, at: Tensor, of: Tensor) -> Tensor:
        """Scores of queries at positions `at` against the cached keys of positions `of`."""
        raise NotImplementedError(type(self).__name__)  # every subclass overrides this


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """Apply RoPE to x: each row is rotated by its position."""
    return rotate(x, turns(positions, x.shape[-1], x.dtype))


def meet(query: Tensor, key: Tensor) -> Tensor:
    """Dot products [heads, n, m] of every query with every key."""
    return torch.einsum("ihd,jhd->hij", query, key)


class Causal(Rule):
    """Llama: rotated keys are cached, later tokens are masked."""

    def keep(self, key: Tensor, of: Tensor) -> Tensor:
        return turned(key, of)

    def scores(self, query: Tensor, kept: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return meet(turned(query, at), kept)


class Bidirectional(Causal):
    """An encoder such as BERT: no mask, so a new token changes the hidden states of all others."""

    causal = False


class ReRope(Rule):
    """ReRoPE (Su, 2023): distances of `WINDOW` or more all count as WINDOW. The key is cached
    before rotation, and rotated when it is read.
    """

    WINDOW = 4

    def scores(self, query: Tensor, kept: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return self.choose(query, turned(kept, of), kept, at, of)

    def choose(self, query: Tensor, near: Tensor, far: Tensor, at: Tensor, of: Tensor) -> Tensor:
        """Scores with rotated keys within the window; beyond it only the query is rotated, by
        WINDOW.
        """
        constant = torch.full_like(at, self.WINDOW)
        distance = at[:, None] - of[None, :]
        return torch.where(
            distance < self.WINDOW,
            meet(turned(query, at), near),
            meet(turned(query, constant), far),
        )


class ReRopeRotated(ReRope):
    """ReRoPE that caches only the rotated key: right only for queries within the window."""

    def keep(self, key: Tensor, of: Tensor) -> Tensor:
        return turned(key, of)

    def scores(self, query: Tensor, kept: Tensor, at: Tensor, of: Tensor) -> Tensor:
        return self.choose(query, kept, kept, at, of)


class ReRopeBoth(ReRope):
    """ReRoPE that caches the rotated and the unrotated key: right, at twice the memory for keys."""

    kept_width = 2

    def keep(self, key: Tensor, of: Tensor) -> Tensor:
        return torch.cat((turned(key, of), key), dim=-1)

    def scores(self, query: Tensor, kept: Tensor, at: Tensor, of: Tensor) -> Tensor:
        near, far = kept.chunk(2, dim=-1)
        return self.choose(query, near, far, at, of)


@torch.inference_mode()
def recomputed(decoder: Decoder, tokens: list[int], rule: Rule) -> Tensor:
    """Logits [vocab] of the last of `tokens`, all of them computed together."""
    return _forward(decoder, tokens, 0, rule, {})[-1]


@torch.inference_mode()
def cached(decoder: Decoder, tokens: list[int], rule: Rule) -> list[Tensor]:
    """Logits [vocab] after each of `tokens`, computed one token per step with all earlier ones
    cached.
    """
    memory: dict[int, tuple[Tensor, Tensor]] = {}
    return [
        _forward(decoder, [token], start, rule, memory)[-1] for start, token in enumerate(tokens)
    ]


def largest_error(decoder: Decoder, tokens: list[int], truth: Rule, rule: Rule) -> float:
    """The largest |cached - recomputed| over the largest |recomputed|, over all prefixes."""
    worst = 0.0
    for end, found in enumerate(cached(decoder, tokens, rule), 1):
        exact = recomputed(decoder, tokens[:end], truth)
        worst = max(worst, float((found - exact).abs().max() / exact.abs().max()))
    return worst


def _forward(
    decoder: Decoder,
    tokens: list[int],
    start: int,
    rule: Rule,
    memory: dict[int, tuple[Tensor, Tensor]],
) -> Tensor:
    """Logits [new, vocab] of the tokens from index `start` on; earlier ones are read from `memory`,
    to which the new ones are added.
    """
    shape, weights = decoder.shape, decoder.weights
    at = torch.arange(start, start + len(tokens))
    of = torch.arange(start + len(tokens))
    x = weights.embedding[torch.tensor(tokens)]
    for index, layer in enumerate(weights.layers):
        heads = (_normed(x, layer.attention_norm) @ plain(layer.qkv).T).view(
            len(tokens), -1, shape.head_dim
        )
        query, key, value = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)  # type: ignore[no-untyped-call]
        kept = rule.keep(key, at)
        if index in memory:
            kept = torch.cat((memory[index][0], kept))
            value = torch.cat((memory[index][1], value))
        memory[index] = kept, value
        scores = rule.scores(query, kept.repeat_interleave(shape.group, dim=1), at, of)
        if rule.causal:
            scores = scores.masked_fill(of[None, :] > at[:, None], NEVER)
        share = (scores * shape.head_dim**-0.5).softmax(-1)
        mixed = torch.einsum("hij,jhd->ihd", share, value.repeat_interleave(shape.group, dim=1))
        x = x + mixed.flatten(1) @ plain(layer.output).T
        gate, up = (_normed(x, layer.mlp_norm) @ plain(layer.gate_up).T).chunk(2, dim=-1)
        x = x + (gate / (1 + (-gate).exp()) * up) @ plain(layer.down).T
    return _normed(x, weights.norm) @ weights.unembedding.T


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * weight
