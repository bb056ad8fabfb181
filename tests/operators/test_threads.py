"""Operators called from several threads at once, after a fork, and while the number of threads changes."""

import subprocess
import sys
import threading

import pytest

import mmort
from tests import front_ends
from tests.compare import assert_same
from tests.operators import cases

LARGEST = {
    operator: max(cases.of(operator), key=lambda case: sum(array.size for array in case.arrays))
    for operator in cases.OPERATORS
}


def run(case):
    return front_ends.run_numpy(case.operator, case.arrays, case.attributes)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_many_callers(threads):
    """Eight threads call all operators, each in its own order, and keep setting the number of threads."""
    mmort.set_num_threads(threads)
    wanted = {operator: run(case) for operator, case in LARGEST.items()}
    failures = []

    def hammer(first):
        try:
            operators = cases.OPERATORS[first:] + cases.OPERATORS[:first]
            for operator in operators * 2:
                assert_same(run(LARGEST[operator]), wanted[operator], operator)
                mmort.set_num_threads(threads)
        except BaseException as failure:
            failures.append(failure)

    callers = [threading.Thread(target=hammer, args=(i,)) for i in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures, failures[0]


def test_many_callers_of_one_session():
    wanted = {operator: run(case) for operator, case in LARGEST.items() if front_ends.row_of(operator)}
    failures = []

    def hammer():
        try:
            for operator, outputs in wanted.items():
                case = LARGEST[operator]
                got = front_ends.run_ort(operator, case.arrays, case.attributes, threads=2)
                assert_same(got, front_ends.node_outputs(operator, outputs), operator)
        except BaseException as failure:
            failures.append(failure)

    for operator in wanted:  # the sessions are made here, not in the threads
        front_ends.session_for(operator, LARGEST[operator].attributes, threads=2)
    callers = [threading.Thread(target=hammer) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures, failures[0]


FORK = """
import multiprocessing
import sys

import numpy as np

import mmort
import mmort._threads

mmort.set_num_threads(4)
array = np.random.default_rng(0).standard_normal((64, 65, 66))
before = mmort.cummax(array, 1).values  # the pool has its threads now


def child(queue):
    queue.put(np.array_equal(mmort.cummax(array, 1).values, before))


context = multiprocessing.get_context("fork")
queue = context.Queue()
children = [context.Process(target=child, args=(queue,)) for _ in range(3)]
with mmort._threads._lock:  # another thread might hold it at that moment
    for process in children:
        process.start()
answers = [queue.get(timeout=30) for _ in children]
for process in children:
    process.join(50)
assert np.array_equal(mmort.cummax(array, 1).values, before)  # the parent's pool still works
sys.exit(not all(answers))
"""


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="no fork here")
def test_fork_after_use():
    """Threads do not survive a fork; a child that waited for them would hang."""
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        FORK,
    ]  # Python itself warns of fork with threads
    subprocess.run(command, check=True, timeout=100)


@pytest.mark.parametrize("number", [1.0, "2", None, True])
def test_number_of_threads_of_another_type(number):
    with pytest.raises(TypeError, match=r"^set_num_threads: num_threads must be an integer, got "):
        mmort.set_num_threads(number)


@pytest.mark.parametrize("number", [0, -1])
def test_number_of_threads_below_one(number):
    with pytest.raises(ValueError, match=f"^set_num_threads: num_threads must be at least 1, got {number}$"):
        mmort.set_num_threads(number)


def test_number_of_threads():
    for number in (1, 3):
        mmort.set_num_threads(number)
        assert mmort.get_num_threads() == number


def test_an_error_in_threads_reaches_the_caller():
    """Also when a thread other than the caller's ran the chunk that failed."""
    from mmort import _threads

    def chunk(phase, begin, end):
        if begin <= 50 < end:
            raise MemoryError("out of memory")

    mmort.set_num_threads(3)
    for _ in range(20):
        with pytest.raises(MemoryError, match="out of memory"):
            _threads.split(chunk, 0, 100, 100)


def test_each_chunk_is_done_once():
    from mmort import _threads

    for threads, work, chunks in ((1, 100, 100), (2, 7, 3), (3, 1000, 40), (5, 16, 16)):
        mmort.set_num_threads(threads)
        done = [0] * work

        def chunk(phase, begin, end, done=done):
            for i in range(begin, end):
                done[i] += 1

        _threads.split(chunk, 0, work, chunks)
        assert done == [1] * work


def test_calls_while_the_interpreter_exits():
    """No thread can be started then; the calling thread does the work."""
    code = """
import atexit, numpy, mmort
mmort.set_num_threads(4)
array = numpy.ones((64, 20000), numpy.float32)
class Late:
    def __del__(self):
        print(int(mmort.cummax(array, 1)[0].sum()))
late = Late()
atexit.register(lambda: print(int(mmort.cummax(array, 1)[0].sum())))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("1280000\n" * 2, "")
