"""The repository as files: which of them are the package, and which are tracked."""

import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
PACKAGE = "onefold"

# Folders of the root that are not part of the package.
NOT_PACKAGE = frozenset({"benchmarks", "build", "dist", "docs", "examples", "tests"})
_NEVER = frozenset({"__pycache__", "setup.py"})


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or part in _NEVER or part.endswith(".egg-info")


def module_files(root: Path = REPO) -> list[Path]:
    """The package's python files, relative to the root, sorted."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not any(map(_is_hidden, parts)) and parts[0] not in NOT_PACKAGE:
            found.append(path.relative_to(root))
    return found


def module_name(file: Path) -> str:
    """`engine/sbp.py` is `engine.sbp`, `engine/__init__.py` is `engine`, the root's is `""`."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Modules for packages that need not be installed.
OPTIONAL = {
    "onefold.utils.einops_backend": "einops",
    "onefold.utils.einops_layers": "einops",
    "onefold.utils.tensorboard": "tensorboard",
}


def full_name(file: Path) -> str:
    """The name to import a module file by, such as `onefold.engine.sbp`."""
    return ".".join(filter(None, (PACKAGE, module_name(file))))


def tracked_files(root: Path = REPO) -> list[Path]:
    """What git tracks or would add, relative to the root; every visible file outside a clone."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
        files = [Path(name) for name in listed.stdout.split("\0") if name]
        return sorted(file for file in files if (root / file).is_file())
    return sorted(
        path.relative_to(root)
        for path in root.rglob("*")
        if path.is_file()
        and not any(map(_is_hidden, path.relative_to(root).parts))
        and path.relative_to(root).parts[0] not in {"build", "dist"}
    )
