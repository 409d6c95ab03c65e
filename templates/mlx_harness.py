#!/usr/bin/env python3
"""Measures MLX-LM as llama-bench measures llama.cpp: prompt and generation rates of fixed lengths, no early end.

Needs `mlx-lm` in the Python that runs it. `lumelift bench VM --mlx` starts it for each arm. By hand, it writes one JSON object,
which `lumelift report` and `lumelift evidence` read:

    lumelift run VM --stock -- python3 mlx_harness.py --model FOLDER -o stock.json
    lumelift run VM         -- python3 mlx_harness.py --model FOLDER -o unlocked.json

The prompt is made of random tokens from a fixed seed, one higher for each repeat, so that two arms see the same tokens and
no repeat is answered from a cache. End-of-text is switched off: every repeat generates exactly the tokens asked for.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import time
from importlib import metadata


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a number above 0 is wanted")
    return number


def options():
    parser = argparse.ArgumentParser(description="Prompt and generation rates of MLX-LM")
    parser.add_argument("--model", required=True, help="folder or name of the model")
    parser.add_argument("-p", "--prompt-tokens", type=positive, default=512)
    parser.add_argument("-n", "--generation-tokens", type=positive, default=128)
    parser.add_argument("-r", "--repeats", type=positive, default=10)
    parser.add_argument("--cpu", action="store_true", help="without the GPU")
    parser.add_argument("--no-warmup", action="store_true")
    parser.add_argument("--text", metavar="PROMPT", help="measure nothing; print the greedy continuation of this text, -n tokens at most")
    parser.add_argument("--warmup-prompt-tokens", type=positive, default=64)
    parser.add_argument("--warmup-generation-tokens", type=positive, default=16)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("-o", "--output", help="file to write; standard output without")
    return parser.parse_args()


def version_of(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def described(model):
    """Name and revision without the folders above, which would tell who measured."""
    parts = pathlib.PurePath(model).parts
    if "snapshots" in parts[1:]:  # a model cache: models--OWNER--NAME/snapshots/REVISION
        at = parts.index("snapshots")
        name = parts[at - 1].removeprefix("models--").replace("--", "/", 1)
        return {"id": name, "revision": parts[at + 1] if len(parts) > at + 1 else "", "path": parts[-1]}
    return {"id": parts[-1] if os.path.exists(model) else model, "revision": "", "path": parts[-1]}


class Harness:
    def __init__(self, model, cpu):
        if cpu:
            import mlx.core
            mlx.core.set_default_device(mlx.core.cpu)
        from mlx_lm import load, stream_generate
        self.generate = stream_generate
        self.model, self.tokenizer = load(model)
        self.words = int(self.tokenizer.vocab_size)

    def text(self, prompt, tokens):
        """The library's own default is greedy."""
        return "".join(step.text for step in self.generate(self.model, self.tokenizer, prompt, max_tokens=tokens))

    def never_end(self):
        """Nothing ends a text but its length."""
        self.tokenizer._eos_token_ids = set()

    def measure(self, prompt_tokens, generation_tokens, seed):
        source = random.Random(seed)
        prompt = [source.randrange(self.words) for _ in range(prompt_tokens)]
        begun = time.perf_counter()
        last = None
        for last in self.generate(self.model, self.tokenizer, prompt, max_tokens=generation_tokens):
            pass
        if last is None or last.generation_tokens != generation_tokens:
            made = 0 if last is None else last.generation_tokens
            sys.exit(f"mlx_harness: {made} of {generation_tokens} tokens were generated: the figures would not be comparable")
        return {"prompt_tokens": last.prompt_tokens, "prompt_tps": last.prompt_tps, "generation_tokens": last.generation_tokens,
                "generation_tps": last.generation_tps, "peak_memory_gb": last.peak_memory, "finish_reason": last.finish_reason,
                "wall_seconds": time.perf_counter() - begun}


def main():
    wanted = options()
    harness = Harness(wanted.model, wanted.cpu)
    if wanted.text is not None:
        print(harness.text(wanted.text, wanted.generation_tokens))
        return
    harness.never_end()
    warmup = None
    if not wanted.no_warmup:
        warmup = harness.measure(wanted.warmup_prompt_tokens, wanted.warmup_generation_tokens, wanted.seed - 1)
    samples = [harness.measure(wanted.prompt_tokens, wanted.generation_tokens, wanted.seed + i) for i in range(wanted.repeats)]
    result = {
        "schema_version": 1,
        "runtime": {"python": platform.python_version(), "mlx": version_of("mlx"), "mlx_lm": version_of("mlx-lm"), "platform": platform.platform()},
        "model": described(wanted.model),
        "configuration": {
            "prompt_tokens": wanted.prompt_tokens, "generation_tokens": wanted.generation_tokens, "repeats": wanted.repeats,
            "warmup_prompt_tokens": wanted.warmup_prompt_tokens, "warmup_generation_tokens": wanted.warmup_generation_tokens,
            "seed": wanted.seed, "eos_stopping": False, **({"devices": "none"} if wanted.cpu else {})},
        "warmup": warmup,
        "samples": samples,
        "median": {key: statistics.median(sample[key] for sample in samples) for key in ("prompt_tps", "generation_tps", "peak_memory_gb")},
    }
    text = json.dumps(result, indent=2) + "\n"
    if not wanted.output:
        sys.stdout.write(text)
        return
    # Whole or not at all: a half file would look like a result.
    part = wanted.output + ".part"
    pathlib.Path(part).write_text(text)
    os.replace(part, wanted.output)


if __name__ == "__main__":
    main()
