"""Every call of `bad_input_calls` with every kind of bad input.

    python tests/bad_input.py                # all, some minutes
    python tests/bad_input.py -v optim. nn.  # of calls with such names, also what is only counted

What torch refuses and ours accepts, and what differs, is counted; the rest is a failure.
"""

import contextlib
import io
import sys
import warnings
from collections import Counter

from bad_input_calls import ENDLESS, NOT_REFUSED, OTHER_WORDS, TWO, calls
from bad_input_objects import object_calls

from onefold.distributed.world import virtual_world


def main():
    warnings.simplefilter("ignore")
    names = tuple(arg for arg in sys.argv[1:] if not arg.startswith("-")) or ("",)
    found = []
    for placement in (None, TWO):
        with virtual_world(), contextlib.redirect_stdout(io.StringIO()):
            for call in (*calls(placement), *object_calls(placement)):
                if any(name in call.name for name in names):
                    found += call.check(lambda text: not text.endswith(ENDLESS))
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
