"""Every call of `bad_input_calls` with every kind of bad input: `python tests/bad_input.py`.

What torch refuses and ours accepts, and what differs, is counted; the rest is a failure.
"""

import contextlib
import io
import sys
import warnings
from collections import Counter

from bad_input_calls import NOT_REFUSED, OTHER_WORDS, TWO, calls

from onefold.distributed.world import virtual_world


def main():
    warnings.simplefilter("ignore")
    found = []
    for placement in (None, TWO):
        with virtual_world(), contextlib.redirect_stdout(io.StringIO()):
            for call in calls(placement):
                found += call.check()
    failures = [
        failure
        for failure in found
        if failure.kind in NOT_REFUSED and not failure.call.endswith(OTHER_WORDS)
    ]
    for failure in failures if "-v" not in sys.argv else found:
        print(failure)
    print(dict(Counter(failure.kind for failure in found)))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
