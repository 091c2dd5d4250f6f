"""An editable install that type checkers and editors can follow; the rest is in pyproject.toml.

setuptools maps a package in another folder by an import hook, which no static tool sees. So the
package is linked under its name into a folder, and that folder is put on the path.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

FOLDER = Path("build", "editable")


class EditableWheel(editable_wheel):
    """An editable install as one path entry."""

    def finalize_options(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        link = FOLDER / "onefold"
        if not link.is_symlink():
            link.symlink_to(Path("..", ".."), target_is_directory=True)
        self.distribution.package_dir = {"": str(FOLDER)}
        super().finalize_options()


# The package's folder is this file's, and setuptools leaves out the script of this name alone.
setup(cmdclass={"editable_wheel": EditableWheel}, script_name="setup.py")
