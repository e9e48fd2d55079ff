"""Event files of test_tensorboard.c as TensorBoard's own package writes them, and what its reader finds in ours.

    python3 tests/golden/make-tensorboard.py > tests/golden/tensorboard.h      (pip install tensorboard)
    python3 tests/golden/make-tensorboard.py read FOLDER                       one line a number: tag step value

The records come from its RecordWriter, their contents from its protocol buffers.
"""
import io
import sys
import tensorboard

RUN = [  # wall time, step, [(tag, value)]
    (1700000000.25, 0, [("loss", 0.0)]),
    (1700000001.5, 1, [("loss_metrics/global_avg_loss", 10.825), ("lr", 6e-4), ("mfu(%)", 41.2)]),
    (1700000002.125, 127, [("loss", float("inf")), ("loss", float("-inf"))]),
    (1700000003.0, 128, [("a" * 113, 1.0), ("b" * 114, -1.0), ("c" * 130, 1e-45)]),
    (1700000004.0, 2**40 + 300, [("big", 3.4e38), ("small", 1.0 / 3.0)]),
    (1700000005.0, 7, []),
]


def write(f, run):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    w = RecordWriter(f)
    w.write(Event(wall_time=1700000000.0, file_version="brain.Event:2").SerializeToString())
    for wall, step, values in run:
        summary = Summary(value=[Summary.Value(tag=t, simple_value=v) for t, v in values])
        w.write(Event(wall_time=wall, step=step, summary=summary).SerializeToString())


def header():
    class Kept(io.BytesIO):
        def close(self):
            pass

    f = Kept()
    write(f, RUN)
    data = f.getvalue()
    print(f"/* Made by tests/golden/make-tensorboard.py with tensorboard {tensorboard.__version__}; do not edit. */")
    print("static const unsigned char golden_events[] = {")
    for i in range(0, len(data), 20):
        print("    " + " ".join(f"0x{b:02x}," for b in data[i : i + 20]))
    print("};")


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    acc = EventAccumulator(folder, size_guidance={"scalars": 0})
    acc.Reload()
    for tag in sorted(acc.Tags()["scalars"]):
        for e in acc.Scalars(tag):
            print(tag, e.step, repr(e.value), e.wall_time)


if sys.argv[1:2] == ["read"]:
    read(sys.argv[2])
else:
    header()
