"""What an editor offers at the end of a line, asked of pyright's language server."""

import json
import subprocess
import sys


class Server:
    """pyright's language server for one folder, as an editor starts it."""

    def __init__(self, folder, python):
        self.folder, self.python = folder, str(python)
        command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, **pipes)
        self.asked = 0

    def __enter__(self):
        root = {"uri": self.folder.as_uri(), "name": "program"}
        can = {"workspace": {"configuration": True, "workspaceFolders": True}}
        self.ask("initialize", processId=None, workspaceFolders=[root], capabilities=can)
        self.send(method="initialized", params={})
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def send(self, **message):
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self.process.stdin.flush()

    def read(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the language server has ended"
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, **params):
        """The answer to a request; the server asks for settings meanwhile."""
        self.asked += 1
        self.send(id=self.asked, method=method, params=params)
        while True:
            message = self.read()
            if "method" not in message:
                assert message["id"] == self.asked
                return message["result"]
            if "id" in message:
                settings = [{"pythonPath": self.python} for _ in message["params"].get("items", ())]
                self.send(id=message["id"], result=settings)

    def completions(self, text):
        """The names offered behind each line of a program that ends with a dot."""
        document = (self.folder / "program.py").as_uri()
        about = {"uri": document, "languageId": "python", "version": 1, "text": text}
        self.send(method="textDocument/didOpen", params={"textDocument": about})
        for number, line in enumerate(text.splitlines()):
            if line.endswith("."):
                found = self.ask(
                    "textDocument/completion",
                    textDocument={"uri": document},
                    position={"line": number, "character": len(line)},
                )
                yield {item["label"] for item in found["items"]}
