"""A headless Chromium that tests drive: by its DevTools protocol, over two pipes.

The protocol is JSON, with a zero byte after each message, on the file descriptors 3 and 4. The
process is this file's own, in a session of its own, and ends with the block.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --mute-audio "
    "--disable-background-networking --disable-component-update --disable-extensions "
    "--disable-sync --no-default-browser-check --hide-scrollbars --force-device-scale-factor=1 "
    "--remote-debugging-pipe"
).split()
SECONDS = 60.0  # that one answer may take
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
KEYS |= {"ArrowDown": 40, "Tab": 9, "Home": 36, "End": 35, " ": 32}
SHIFT = 8


def executable():
    """The path of a Chromium; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. `errors` are what it told on its console, and `requests` what it asked for."""

    def __init__(self, process, to, back):
        self._process, self._to, self._back = process, to, back
        self._read, self._number, self._session = b"", 0, None
        self.errors, self.requests = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Ask for something; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return found["result"]

    def _next(self):
        """The next message, which is noted if it is an event."""
        until = time.monotonic() + SECONDS
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._back], [], [], max(until - time.monotonic(), 0))
            part = os.read(self._back, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("chromium has ended" if ready else "chromium does not answer")
            self._read += part
        text, _, self._read = self._read.partition(b"\0")
        found = json.loads(text)
        self._note(found.get("method"), found.get("params", {}))
        return found

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.errors.append(f"console.{params['type']}: {params['args']}")
        elif method == "Log.entryAdded":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path):
        """Load a file, and wait until its scripts have run."""
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        until = time.monotonic() + SECONDS
        while self.run("document.readyState") != "complete":
            if time.monotonic() > until:
                raise TimeoutError(f"{path} does not load")
            time.sleep(0.02)
        self.settle()

    def run(self, script):
        """The value of an expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def settle(self):
        """Wait until what has changed is drawn."""
        self.run("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(() => f(0))))")

    def press(self, key, modifiers=0):
        """Press a key of the keyboard and release it."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        what = {"key": key, "modifiers": modifiers}
        what["windowsVirtualKeyCode"] = KEYS.get(key, ord(key[0]))
        typed = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **what, **typed)
        self.call("Input.dispatchKeyEvent", **what, type="keyUp")
        self.settle()

    def type(self, text):
        """Put a text in where the focus is."""
        self.call("Input.insertText", text=text)
        self.settle()

    def mouse(self, kind, x, y, **more):
        """A mouse event: "mouseMoved", "mousePressed", "mouseReleased" or "mouseWheel"."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", buttons=1, clickCount=1)

    def size(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.settle()

    def media(self, kind="screen", scheme="light"):
        """What the page is shown on, and which colors the user prefers."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[feature])
        self.settle()

    def screenshot(self, path=None, whole=False):
        """The PNG of what is shown, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        found = base64.b64decode(answer["data"])
        if path is not None:
            Path(path).write_bytes(found)
        return found


@contextlib.contextmanager
def chromium():
    """A browser for the time of a block."""
    (read, to), (back, write) = os.pipe(), os.pipe()
    # Numbers that are neither 3 nor 4, and that a shell takes.
    given, taken = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        program = f'exec {executable()} "$@" 3<&{given} 4>&{taken} {given}<&- {taken}>&-'
        process = subprocess.Popen(
            ["bash", "-c", program, "chromium", *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(given, taken),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": profile},  # whose files go with it
            start_new_session=True,
        )
        for end in (read, write, given, taken):
            os.close(end)
        try:
            yield Browser(process, to, back)
        finally:
            os.close(to)
            os.close(back)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
