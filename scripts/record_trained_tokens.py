#!/usr/bin/env python3
"""Record the tokens that transformers generates with trained weights, for tests/gpu/test_generation_weights.py.

Transformers dequantizes the weights of the GGUF file and computes in float32. Needs torch, transformers and accelerate:

    scripts/record_trained_tokens.py SmolLM2-135M-Instruct.Q4_1.gguf > tests/data/trained/smollm2.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers

PROMPTS = (
    "Once upon a time",
    "def fibonacci(n):\n    ",
    "The three largest cities of Japan are",
    "1, 2, 3, 5, 8, 13,",
    "<|im_start|>user\nName a river.<|im_end|>\n<|im_start|>assistant\n",
)
COUNT = 60
MIN_MARGIN = 1e-3
"""Smallest difference between the two largest logits, in whose reach no rounding of float32 comes."""


def main() -> None:
    """Print prompts and tokens as JSON."""
    path = Path(sys.argv[1])
    source = {"gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **source)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **source)
    answers = []
    for prompt in PROMPTS:
        tokens = tokenizer.encode(prompt, add_special_tokens=False)
        with torch.no_grad():
            result = model.generate(
                torch.tensor([tokens]),
                max_new_tokens=COUNT,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        margins = [float(best - second) for best, second in (row[0].topk(2).values for row in result.logits)]
        if min(margins) < MIN_MARGIN:
            raise SystemExit(f"two tokens after {prompt!r} are equally likely up to {min(margins)}")
        answer = result.sequences[0, len(tokens) :].tolist()
        answers.append({"prompt": prompt, "prompt_tokens": tokens, "tokens": answer})
    print(json.dumps({"file": path.name, "transformers": transformers.__version__, "answers": answers}))


if __name__ == "__main__":
    main()
