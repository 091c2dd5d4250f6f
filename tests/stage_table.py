"""Tables of what in torch's databases is not all right: a name, the stage it reaches, and why."""

import re


class StageTable:
    """A text file with a row `name | stage | why` for each entry that does not reach the end."""

    def __init__(self, path, complete):
        self.path = path
        self.complete = complete

    def read(self):
        """{name: (the stage it reaches, what is wrong then)} of those that are not all right."""
        rows = [line.split(" | ") for line in self.path.read_text().splitlines() if line[:1] != "#"]
        return {name: (stage, why) for name, stage, why in rows}

    def expected(self, name):
        """The stage that an entry reaches."""
        return self.read().get(name, (self.complete, ""))[0]

    def write(self, name, stage, why):
        """Give one entry the row of today, or none."""
        table = self.read()
        table.pop(name, None)
        if stage != self.complete:
            table[name] = (stage, re.sub(r"0x[0-9a-f]+", "0x", why)[:120].replace(" | ", " "))
        head = [line for line in self.path.read_text().splitlines() if line[:1] == "#"]
        rows = [" | ".join([name, *row]) for name, row in sorted(table.items())]
        self.path.write_text("\n".join([*head, *rows]) + "\n")
