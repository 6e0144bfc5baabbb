"""The loss of connectionist temporal classification, and its gradient, computed one time step after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu import ops
from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.ops import directml
from dmlgpu.ops.shape import joined, stacked
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor, matmul

_IF = directml.element_wise_if


class _Alignment:
    """The states of labels with blanks between them, for log probabilities {time, batch, classes}.

    Attributes:
        states: Class of each state {batch, states}.
        scores: Log probability of each state {time, batch, states}.
        ends: Index of the last state of each label sequence.
    """

    def __init__(
        self, log_probs: Tensor, targets: Tensor, lengths: Sequence[int], target_lengths: Sequence[int], blank: int
    ):
        self.lengths, self.ends = np.array(lengths), 2 * np.array(target_lengths)
        self.time, batch, _ = log_probs.sizes
        longest = int(self.ends.max()) // 2
        if targets.ndim == 1:
            starts = np.cumsum([0, *target_lengths[:-1]])
            places = np.minimum(starts[:, None] + np.arange(longest), max(targets.size - 1, 0)).astype(np.int32)
        else:
            places = (np.arange(batch)[:, None] * targets.sizes[1] + np.arange(longest)).astype(np.int32)
        blanks = filled(targets, (batch, 1), blank, DataType.INT32)
        self.states = blanks
        if longest:
            labels = targets.reshape(-1)._taken(targets._beside(places.reshape(-1)), 0, "ctc_loss")
            labels = labels.reshape(batch, longest).astype(DataType.INT32)
            pairs = stacked([blanks.broadcast_to(labels.sizes), labels], 2).reshape(batch, 2 * longest)
            self.states = joined([pairs, blanks], 1)
        self.count = 2 * longest + 1
        index = self.states.expand_dims(0).broadcast_to((self.time, batch, self.count))
        self.scores: Any = directml.gather_elements(log_probs, index, axis=2)

    def skips(self, distance: int) -> Any:
        """Return a mask of the states reached from those a distance of 2 before (or after): their labels differ."""
        return _moved(self.states, distance, -1) != self.states if self.count > 2 else None

    def step(self, before: Any, skips: Any, direction: int) -> Any:
        """Return the log probabilities of reaching each state from those one step before, or after."""
        parts = [before]
        if self.count > 1:
            parts.append(_moved(before, direction, -math.inf))
        if skips is not None:
            parts.append(_IF(skips, _moved(before, 2 * direction, -math.inf), -math.inf))
        return _log_sum(parts)

    def chosen(self, numbers: np.ndarray[Any, Any], like: Tensor) -> Any:
        """Return 0 for the states {batch, states} listed by index in an array {batch, n}, else -inf."""
        marks = (numbers[:, :, None] == np.arange(self.count)).any(1)
        return like._beside(np.where(marks, 0, -np.inf).astype(np.float32))

    def last(self) -> np.ndarray[Any, Any]:
        """Return the indices {batch, 2} of the final states of sequences."""
        return np.stack([self.ends, np.where(self.ends > 0, self.ends - 1, self.ends)], 1)


def _moved(x: Any, distance: int, value: Any) -> Any:
    """Shift states by a distance, forwards or backwards, and fill the gap with a number."""
    rest = x[:, :-distance] if distance > 0 else x[:, -distance:]
    return ops.pad(rest, [(0, 0), (max(distance, 0), max(-distance, 0))], value=value)


def _log_sum(parts: Sequence[Any]) -> Any:
    largest = parts[0]
    for part in parts[1:]:
        largest = directml.element_wise_max(largest, part)
    base = _IF(largest == -math.inf, 0.0, largest)
    total: Any = None
    for part in parts:
        share = directml.element_wise_exp(part - base)
        total = share if total is None else total + share
    return directml.element_wise_log(total) + base


@aten("_ctc_loss")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the negative log likelihood of each label sequence, and the log probabilities of reaching each state
    {batch, time, states}."""
    if log_probs.data_type is not DataType.FLOAT32 or not log_probs.size:
        raise Unsupported("_ctc_loss computes float32, of at least one step and one sequence")
    alignment = _Alignment(log_probs, targets, input_lengths, target_lengths, blank)
    batch, count = log_probs.sizes[1], alignment.count
    first = np.stack([np.zeros(batch), np.minimum(alignment.ends, 1)], 1)
    skips = alignment.skips(2)
    sums = [alignment.scores[0] + alignment.chosen(first, log_probs)]
    for time in range(1, alignment.time):
        sums.append(alignment.step(sums[-1], skips, 1) + alignment.scores[time])
    reached = stacked(sums, 1)
    steps = np.maximum(alignment.lengths - 1, 0)
    ends = reached.reshape(-1, count)._taken(
        log_probs._beside((np.arange(batch) * alignment.time + steps).astype(np.int32)), 0, "ctc_loss"
    )
    last = log_probs._beside(alignment.last().astype(np.int32))
    ends = directml.gather_elements(ends, last, axis=1)
    has_labels = log_probs._beside(alignment.ends > 0)
    loss = -_log_sum([ends[:, 0], _IF(has_labels, ends[:, 1], -math.inf)])
    if not alignment.lengths.all():
        without_time = np.where(alignment.ends > 0, np.inf, 0).astype(np.float32)
        loss = _IF(log_probs._beside(alignment.lengths == 0), log_probs._beside(without_time), loss)
    return loss, reached


@aten("_ctc_loss_backward")
def ctc_loss_backward(
    gradient: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    loss: Tensor,
    reached: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """Return the gradient of the log probabilities of `_ctc_loss`, assuming that these come from a softmax."""
    alignment = _Alignment(log_probs, targets, input_lengths, target_lengths, blank)
    classes = log_probs.sizes[2]
    start = alignment.chosen(alignment.last(), log_probs)
    skips = alignment.skips(-2)
    remaining = alignment.lengths[None, :, None] - 1 - np.arange(alignment.time)[:, None, None]
    rest = log_probs._beside(remaining.astype(np.int32))
    sums: list[Any] = [None] * alignment.time
    after: Any = start * 0.0 - math.inf
    for time in reversed(range(alignment.time)):
        arrived = alignment.step(after, skips, -1)
        arrived = _IF(rest[time] == 0, start, _IF(rest[time] > 0, arrived, -math.inf))
        after = sums[time] = arrived + alignment.scores[time]
    scores = alignment.scores.transpose(1, 0, 2)
    logarithms = reached + stacked(sums, 1) - scores + loss.reshape(-1, 1, 1)
    is_possible = (reached > -math.inf) & (stacked(sums, 1) > -math.inf)
    shares = _IF(is_possible, directml.element_wise_exp(logarithms), 0.0)
    names = log_probs._beside(np.arange(classes, dtype=np.int32))
    marks = (alignment.states.expand_dims(2) == names).astype(DataType.FLOAT32)
    slopes = directml.element_wise_exp(log_probs) - matmul(shares, marks).transpose(1, 0, 2)
    is_infinite = (loss == math.inf).reshape(1, -1, 1)
    slopes = _IF(is_infinite, 0.0 if zero_infinity else math.nan, slopes)
    result: Tensor = _IF(rest >= 0, slopes * gradient.reshape(1, -1, 1), 0.0)
    return result
