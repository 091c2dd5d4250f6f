"""The tests that need a GPU, by several processes and within minutes: `make gpu-tests PART=1/4`.

    python tests/gpu_tests.py --part 1/4 tests/triton
    python tests/gpu_tests.py --again tests/triton/test_matmul.py -k descriptors

It needs torch, Triton, numpy and pytest. Every test's row is written when it ends, to
RESULTS/tests.jsonl, so a run that is cut off loses nothing; `--again` leaves out what has passed.
A test that hangs, crashes its process or breaks the CUDA context costs one process, which is
started again. No warning is an error.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import gpu_worker

TESTS = Path(__file__).resolve().parent
ALL = ["triton", "gpu", "kernels/test_random.py"]
POLL = 0.2  # seconds between two looks at the workers
TELL = 15.0  # seconds between two lines of progress
FAULTS = ("failed", "crashed", "hung")


@dataclass
class Process:
    """A worker process, and where its output goes."""

    number: int
    started: float
    popen: subprocess.Popen
    log: Path

    def test(self, shared):
        """The test that it runs and since when, or None."""
        state = shared / f"worker-{self.number}.json"
        found = json.loads(state.read_text()) if state.exists() else {}
        return (found["test"], found["since"]) if found else None

    def stop(self):
        """End it with the processes that it started."""
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", help="files, folders or tests; all without one")
    parser.add_argument("-k", dest="match", default="", help="only tests that match, as in pytest")
    parser.add_argument("-m", dest="marks", default="gpu", help="only tests with these marks")
    parser.add_argument("--part", default="1/1", metavar="i/n", help="the i-th of n parts")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=8.0, help="when to stop")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one test")
    parser.add_argument("--results", type=Path, default=Path("build/gpu"), help="where rows go")
    parser.add_argument("--again", action="store_true", help="leave out tests that have passed")
    options = parser.parse_args(arguments)
    index, _, count = options.part.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        parser.error(f"--part {options.part} is no i/n with 1 <= i <= n, such as 1/4")
    return options


def read_rows(path):
    """The rows of a file of results; half a row at its end is left out."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


class Run:
    """One run of the tests: its workers, its deadline and its rows."""

    def __init__(self, options, shared):
        self.options, self.shared = options, shared
        self.rows = options.results / "tests.jsonl"
        options.results.mkdir(parents=True, exist_ok=True)
        before = read_rows(self.rows)
        last = {row["test"]: row["outcome"] for row in before}
        done = [test for test, word in last.items() if word in ("passed", "skipped")]
        (shared / "done.json").write_text(json.dumps(done if options.again else []))
        self.skipped_rows = len(before)
        self.began = time.time()

    def go(self):
        """Run until all tests have a row, or until the deadline. Returns the exit status."""
        deadline = self.began + 60 * self.options.minutes
        running = [self.start(number) for number in range(self.options.workers)]
        told = self.began
        ended = []
        try:
            while running and time.time() < deadline:
                time.sleep(POLL)
                for index, process in enumerate(running):
                    running[index] = self.look(process, ended)
                running = [process for process in running if process is not None]
                if time.time() - told > TELL:
                    told = time.time()
                    self.tell(Counter(row["outcome"] for row in self.new_rows()))
        finally:
            for process in running:
                process.stop()
        return self.summary(ended)

    def start(self, number):
        log = self.shared / f"worker-{number}.log"
        words = ["--worker", str(number), "--workers", str(self.options.workers)]
        words += ["--shared", str(self.shared), "--rows", str(self.rows.resolve())]
        words += ["--part", self.options.part, "-m", self.options.marks, "-k", self.options.match]
        command = [
            sys.executable, "-m", "pytest", "-c", str(TESTS / "gpu.ini"), "--rootdir",
            str(TESTS.parent), "-p", "gpu_worker", "-p", "no:cacheprovider", "-q", *words,
            *(self.options.tests or [str(TESTS / path) for path in ALL]),
        ]  # fmt: skip
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        # The same order of sets in all workers, since they must collect the same tests.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
        with log.open("ab") as file:
            popen = subprocess.Popen(
                command, stdout=file, stderr=file, env=env, start_new_session=True
            )
        return Process(number, time.time(), popen, log)

    def look(self, process, ended):
        """The process, or the one that replaces it, or None where its work is done."""
        code, test = process.popen.poll(), process.test(self.shared)
        if code is None:
            if test is None or time.time() - test[1] < self.options.limit:
                return process
            process.stop()
            self.lost(process, test, "hung", f"ran for more than {self.options.limit:g} s")
        elif test is not None:
            self.lost(process, test, "crashed", f"exit status {code}")
        elif code != gpu_worker.DEVICE_LOST:
            ended.append((code, process.log))
            return None
        return self.start(process.number)

    def lost(self, process, test, outcome, why):
        tail = process.log.read_text(errors="replace")[-2000:]
        seconds = round(time.time() - test[1], 3)
        row = {"test": test[0], "outcome": outcome, "seconds": seconds, "why": f"{why}\n{tail}"}
        gpu_worker.add_row(self.rows, row)
        (self.shared / f"worker-{process.number}.json").unlink()

    def new_rows(self):
        return read_rows(self.rows)[self.skipped_rows :]

    def total(self):
        path = self.shared / "total"
        return int(path.read_text() or 0) if path.exists() else 0

    def tell(self, outcomes):
        found = ", ".join(f"{count} {word}" for word, count in sorted(outcomes.items()))
        seconds = time.time() - self.began
        done = sum(outcomes.values())
        print(f"{done}/{self.total()} tests, {seconds:.0f} s: {found}", flush=True)

    def summary(self, ended):
        """Print what failed, and how many tests have no row."""
        rows = self.new_rows()
        outcomes = Counter(row["outcome"] for row in rows)
        for row in rows:
            if row["outcome"] in FAULTS:
                print(f"{row['outcome'].upper()} {row['test']}: {reason(row['why'])}")
        self.tell(outcomes)
        print(f"rows in {self.rows}")
        # 5: pytest found no test that was asked for.
        if broken := [log for code, log in ended if code not in (0, 1, 5)]:
            print(broken[0].read_text(errors="replace")[-4000:])
        missing = self.total() - len(rows)
        if missing or not self.total():
            print(f"{missing} tests were not run; the same command with --again runs the rest")
        return int(bool(missing or broken or any(outcomes[word] for word in FAULTS)))


def reason(why):
    """The line of a failure that says most: pytest marks it by an E."""
    lines = why.strip().split("\n")
    return next((line[1:].strip() for line in lines if line.startswith("E ")), lines[0])[:200]


def main(arguments=None):
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as shared:
        return Run(options, Path(shared)).go()


if __name__ == "__main__":
    # Stopped from outside, it still stops its workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
