"""The exception family, and the user's line that messages name."""

import runpy
import sys
import threading

import pytest

from onefold import errors
from onefold.errors import OnefoldError, user_line


def here():
    return user_line()


def test_every_error_is_one_of_the_family():
    found = [
        e for e in vars(errors).values() if isinstance(e, type) and e.__module__.endswith("errors")
    ]
    assert len(found) > 10
    assert all(issubclass(e, OnefoldError) for e in found)


@pytest.mark.parametrize(
    ("error", "builtins"),
    [
        (errors.PlacementError, [ValueError]),
        (errors.SbpError, [ValueError]),
        (errors.ShapeError, [RuntimeError, ValueError]),
        (errors.MixedTensorsError, [RuntimeError, TypeError]),
        (errors.AutogradError, [RuntimeError]),
        (errors.CommTimeout, [RuntimeError]),
        (errors.PeerLost, [RuntimeError]),
        (errors.RankMismatch, [RuntimeError]),
        (errors.OnefoldIndexError, [IndexError]),
    ],
)
def test_errors_are_the_builtins_users_expect(error, builtins):
    for builtin in builtins:
        with pytest.raises(builtin, match="text"):
            raise error("text")


def test_user_line_is_this_file_and_line():
    line = sys._getframe().f_lineno + 1
    assert user_line() == f"test_errors.py:{line} in test_user_line_is_this_file_and_line"
    assert here().endswith("in here")


def test_user_line_skips_frames_of_the_package():
    scope = {"user_line": user_line, "__name__": "onefold.engine.something"}
    exec(compile("def inside():\n    return user_line()\n", "inside.py", "exec"), scope)
    assert scope["inside"]().startswith("test_errors.py:")
    scope["__name__"] = "onefold.tests.something"
    assert scope["inside"]() == "inside.py:2 in inside"
    scope["__name__"] = "onefoldish"
    assert scope["inside"]() == "inside.py:2 in inside"


def test_user_line_of_another_frame():
    def paused():
        yield sys._getframe()

    frame = next(paused())
    assert user_line(frame).endswith("in paused")


def test_user_line_in_a_thread_of_the_package():
    scope = {"user_line": user_line, "found": [], "__name__": "onefold.distributed.watchdog"}
    exec("def run():\n    found.append(user_line())", scope)
    thread = threading.Thread(target=scope["run"])
    thread.start()
    thread.join()
    assert scope["found"] == ["<no user line>"]


def test_user_line_at_module_level(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from onefold.errors import user_line\n\nfound = user_line()\n")
    found = runpy.run_path(str(script), run_name="__main__")["found"]
    assert found == "train.py:3 in <module>"
