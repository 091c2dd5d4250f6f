"""Every example is a program whose --help names its options."""

import subprocess
import sys

import pytest
from source_tree import REPO

FOLDER = REPO / "examples"
OPTIONS = {
    "gpt.py": ["--strategy", "--ranks", "--graph", "--schedule", "--checkpoint", "--list"],
    "llama.py": ["--strategy", "--ranks", "--graph", "--kv-heads", "--sample", "--curve"],
    "mnist.py": ["--strategy", "--ranks", "--graph", "--schedule"],
    "parallelism.py": ["--device"],
    "plan_llama.py": ["--model", "--ranks", "--hardware", "--batch", "--memory", "--code"],
    "resnet.py": ["--strategy", "--ranks", "--graph", "--curve"],
    "train_gpt.py": ["--data", "--strategy", "--graph", "--micro-batches", "--resume", "--out"],
    "unet.py": ["--strategy", "--ranks", "--graph", "--picture", "--curve"],
    "vit.py": ["--strategy", "--ranks", "--graph", "--dropout", "--curve"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_command_line_explains_itself(name):
    command = [sys.executable, str(FOLDER / name), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert [option for option in OPTIONS[name] if option not in shown.stdout] == []


def test_every_program_is_listed():
    programs = {file.name for file in FOLDER.glob("*.py") if "__main__" in file.read_text()}
    assert programs == set(OPTIONS)
