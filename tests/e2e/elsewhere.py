"""A process where `roformer` cannot be imported, to open exported folders in."""

import json
import os
import subprocess
import sys

OPEN = """
import json, sys
sys.modules["roformer"] = None  # any import of it fails
from transformers import AutoTokenizer, pipeline
from transformers.utils import logging
logging.disable_progress_bar()
answers = {}
for task, folder, texts in json.load(sys.stdin):
    pipe = pipeline(task, model=folder)
    if task == "fill-mask":
        answers[folder] = [pipe(text, top_k=3) for text in texts]
    elif task == "text-generation":
        answers[folder] = [pipe(text, max_new_tokens=9, do_sample=False) for text in texts]
    else:
        texts = [{"text": t[0], "text_pair": t[1]} if isinstance(t, list) else t for t in texts]
        answers[folder] = [pipe(text, truncation=True) for text in texts]
print(json.dumps(answers))
"""


def open_elsewhere(tasks):
    """Open exported folders in an isolated process where `roformer` cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", OPEN],
        input=json.dumps(tasks),
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    assert "newly initialized" not in done.stderr and "MISSING" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
