"""Eight threads make valid calls of all operators, through numpy and sessions that they share: results stay the same.

python -m tests.fuzz.threads --seconds 600 [--seed N]
"""

import sys
import threading
import time

import numpy as np

import mmort
from tests import front_ends
from tests.compare import assert_same
from tests.fuzz import children, record
from tests.fuzz.valid import VALID, make_call

THREADS, CALLS = 8, 6


def main() -> int:
    options = children.parser("Calls from eight threads.").parse_args()
    seeds = range(options.seed, options.seed + CALLS)
    calls = [make_call(operator, np.random.default_rng(seed)) for operator in sorted(VALID) for seed in seeds]
    mmort.set_num_threads(4)
    with np.errstate(all="ignore"):
        wanted = [front_ends.run_numpy(call.operator, call.arrays, call.attributes) for call in calls]
    for call in calls:  # the sessions are made here, not in the threads
        if front_ends.row_of(call.operator):
            front_ends.session_for(call.operator, call.attributes, 2, len(call.arrays))
    before, end = record.totals(options.record).get("threads", {}), time.monotonic() + options.seconds
    end -= before.get("seconds", 0)
    done, failures, start = [0] * THREADS, [], time.monotonic()

    def hammer(thread: int) -> None:
        rng = np.random.default_rng([options.seed, thread, int(before.get("cases", 0))])
        try:
            while time.monotonic() < end and not failures and done[thread] < options.count:
                i = int(rng.integers(len(calls)))
                call = calls[i]
                if front_ends.row_of(call.operator) and rng.random() < 0.5:
                    got = front_ends.run_ort(call.operator, call.arrays, call.attributes, 2)
                    assert_same(got, front_ends.node_outputs(call.operator, wanted[i]), call.operator)
                else:
                    assert_same(
                        front_ends.run_numpy(call.operator, call.arrays, call.attributes), wanted[i], call.operator
                    )
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
