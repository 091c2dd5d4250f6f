"""rank_zero_only and get_logger: rank 0 works and writes, the others do not."""

import io
import logging

import pytest
from launched import run_ranks

import onefold as flow
from onefold.utils import get_logger, rank_zero_only


@pytest.fixture(autouse=True)
def no_loggers():
    logging.Logger.manager.loggerDict.pop("rank-zero-test", None)


@rank_zero_only
def doubled(x, *, more=0):
    """Twice x."""
    return 2 * x + more


def logged(**options):
    """What this rank's logger writes, with a format of one's own."""
    logger = logging.getLogger("rank-zero-test")
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(rank)d %(levelname)s %(message)s"))
    logger.handlers = [handler]
    assert get_logger("rank-zero-test", **options) is logger
    assert logger.handlers == [handler]
    logger.debug("details")
    logger.info("step %d", 3)
    logger.warning("slow")
    return out.getvalue()


def test_one_process_does_everything():
    assert doubled(3, more=1) == 7
    assert doubled.__doc__ == "Twice x." and doubled.__name__ == "doubled"
    assert logged() == "0 INFO step 3\n0 WARNING slow\n"
    assert logged(level="WARNING") == "0 WARNING slow\n"
    assert logged(level=logging.DEBUG).startswith("0 DEBUG details\n")


def test_other_ranks_skip():
    def program():
        quiet, loud = logged(), logged(all_ranks=True)
        return doubled(3), quiet, loud, logged()

    first, second = run_ranks(2, program)
    both = "{0} INFO step 3\n{0} WARNING slow\n"
    assert first == (6, both.format(0), both.format(0), both.format(0))
    assert second == (None, "", both.format(1), "")


def test_a_logger_without_handlers_writes_to_stderr(capsys):
    root = logging.getLogger()
    kept, root.handlers = root.handlers, []
    try:
        for _ in range(2):
            logger = flow.utils.get_logger("rank-zero-test")
        logger.info("once")
    finally:
        root.handlers = kept
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" rank 0 INFO: once")
