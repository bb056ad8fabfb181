"""Eight threads call all operators through numpy and sessions that they share: results stay the same.

python -m tests.fuzz.threads --seconds 600 [--seed N] [--numpy-only]

The calls are small random ones and the largest of the tests, whose work is split over further threads.  Under
ThreadSanitizer only numpy is of use: it does not know ONNX Runtime's locks.
"""

import sys
import threading
import time

import numpy as np

import mmort
from tests import front_ends
from tests.compare import assert_same
from tests.fuzz import children, record
from tests.fuzz.valid import VALID, Call, make_call
from tests.operators import cases

THREADS, CALLS = 8, 6


def all_calls(seed: int) -> list[Call]:
    """Return the calls that the threads choose from."""
    seeds = range(seed, seed + CALLS)
    small = [make_call(operator, np.random.default_rng(seed)) for operator in sorted(VALID) for seed in seeds]
    large = [max(cases.of(operator), key=lambda case: sum(array.size for array in case.arrays)) for operator in VALID]
    return [*small, *(Call(case.operator, case.arrays, case.attributes) for case in large)]


def main() -> int:
    parser = children.parser("Calls from eight threads.")
    parser.add_argument("--numpy-only", action="store_true", help="no sessions of ONNX Runtime")
    options = parser.parse_args()
    calls = all_calls(options.seed)
    mmort.set_num_threads(4)
    with np.errstate(all="ignore"):
        wanted = [front_ends.run_numpy(call.operator, call.arrays, call.attributes) for call in calls]
    in_session = [not options.numpy_only and front_ends.row_of(call.operator) is not None for call in calls]
    for call, has_session in zip(calls, in_session, strict=True):  # the sessions are made here, not in the threads
        if has_session:
            front_ends.session_for(call.operator, call.attributes, 2, len(call.arrays))
    before = record.totals(options.record).get("threads", {})
    done, failures, start = [0] * THREADS, [], time.monotonic()
    end = start + options.seconds - before.get("seconds", 0)

    def run(i: int, use_session: bool) -> None:
        operator, arrays, attributes = calls[i].operator, calls[i].arrays, calls[i].attributes
        if use_session and in_session[i]:
            got = front_ends.run_ort(operator, arrays, attributes, 2)
            assert_same(got, front_ends.node_outputs(operator, wanted[i]), operator)
        else:
            assert_same(front_ends.run_numpy(operator, arrays, attributes), wanted[i], operator)

    def hammer(thread: int) -> None:
        rng = np.random.default_rng([options.seed, thread, int(before.get("cases", 0))])
        try:
            while time.monotonic() < end and not failures and done[thread] < options.count:
                run(int(rng.integers(len(calls))), rng.random() < 0.5)
                done[thread] += 1
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=hammer, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if sum(done):
        record.note(options.record, "threads", cases=sum(done), seconds=round(time.monotonic() - start, 1))
    print(f"{sum(done)} calls from {THREADS} threads", *failures)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
