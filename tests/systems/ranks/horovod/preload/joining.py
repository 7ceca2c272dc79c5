"""Process sets that come and go, ranks that are late, and a rank that runs out of data first."""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
rank = hvd.rank()
for times in range(3):
    alone = hvd.add_process_set([times % 2])
    if rank == times % 2:
        mine = hvd.allreduce(tf.fill([10], 1.0 + rank), op=hvd.Sum, process_set=alone)
        assert float(mine[0]) == 1.0 + rank
    time.sleep(0.05 * rank)
    hvd.remove_process_set(alone)
total = 0.0
for step in range(20 if rank == 0 else 12):
    time.sleep(0.01 * ((step + rank) % 3))
    total += float(hvd.allreduce(tf.fill([1000], 1.0 + rank), op=hvd.Sum, name="t")[0])
last = hvd.join()
# twelve steps of both ranks, then eight of the first alone
assert total == (12 * 3 + 8 if rank == 0 else 12 * 3), total
assert last == 0, last
print("joined", flush=True)
hvd.shutdown()
