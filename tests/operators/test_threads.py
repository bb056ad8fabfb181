"""Operators called from several threads at once, after a fork, and while the number of threads changes."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import mmort.build
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
import threading

import numpy as np

import mmort

mmort.set_num_threads(4)
array = np.random.default_rng(0).standard_normal((64, 65, 66))
before = mmort.cummax(array, 1).values  # the pool has its threads now


def child(queue):
    queue.put(np.array_equal(mmort.cummax(array, 1).values, before))


def keep_calling():
    while not done.is_set():
        mmort.cummax(array, 1)


context = multiprocessing.get_context("fork")
queue = context.Queue()
children = [context.Process(target=child, args=(queue,)) for _ in range(3)]
done = threading.Event()
caller = threading.Thread(target=keep_calling)  # it may hold the pool's lock at that moment
caller.start()
for process in children:
    process.start()
answers = [queue.get(timeout=30) for _ in children]
for process in children:
    process.join(50)
done.set()
caller.join()
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


@pytest.mark.parametrize("number", [2**31, 2**100])
def test_number_of_threads_that_no_runtime_takes(number):
    with pytest.raises(ValueError, match=r"^set_num_threads: num_threads must (be less than 2\*\*31|fit in 64 bits)"):
        mmort.set_num_threads(number)


def test_number_of_threads():
    for number in (1, 3, np.int64(2)):
        mmort.set_num_threads(number)
        assert mmort.get_num_threads() == number
        assert type(mmort.get_num_threads()) is int


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("kind", ["uniform", "equal", "few", "strange", "one_far"])
def test_order_of_many_scores(kind, threads, rng):
    """On several threads, many scores are divided by their leading bits before they are sorted."""
    count = 20_000
    scores = {
        "uniform": lambda: rng.random(count),
        "equal": lambda: np.full(count, 0.5),
        "few": lambda: rng.integers(0, 5, count) / 4,
        "strange": lambda: rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1.5], count),
        "one_far": lambda: np.append(-1e30, 0.5 + rng.random(count - 1) * 1e-3),
    }[kind]().astype(np.float32)
    classes = rng.integers(-(2**62), 2**62, 50)[rng.integers(0, 50, count)]
    wanted = np.lexsort((np.arange(count), -scores))
    mmort.set_num_threads(threads)
    for precise in (scores, scores.astype(np.float64)):
        for idxs in (None, classes):
            boxes = np.zeros((count, 4), precise.dtype)  # without area, so that all are kept
            assert np.array_equal(mmort.nms(boxes, precise, 0.5, idxs=idxs)[1], wanted)


@pytest.fixture(scope="module")
def pool_program(tmp_path_factory):
    """Compile pool.c with the sources that it tests."""
    include, program = Path(mmort.build.get_include()), tmp_path_factory.mktemp("pool") / "pool"
    sources = [
        Path(__file__).with_name("pool.c"),
        *(include / f"{name}.c" for name in ("pool", "run", "check", "shapes")),
    ]
    subprocess.run(["cc", "-std=gnu11", "-pthread", f"-I{include}", *sources, "-o", program], check=True)
    return program


@pytest.mark.skipif(sys.platform == "win32", reason="the program forks")
@pytest.mark.parametrize("threads", [1, 3])
def test_pool(pool_program, threads):
    """Each unit of a loop is done once, by few enough threads; errors reach the caller, and forks do no harm."""
    subprocess.run([pool_program, str(threads)], check=True, timeout=120)


def test_calls_while_the_interpreter_exits():
    """The threads of the pool know nothing of Python."""
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
