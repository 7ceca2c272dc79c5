"""Keras `fit` with validation, checkpoints and a last batch that is smaller than the others."""

import math
import tempfile
from pathlib import Path

import keras

from arguments import parser, recording
from small_model import classifier, images

BATCH = 32
EXAMPLES = 40 * BATCH + 8

arguments = parser(__doc__)
arguments.add_argument("--steps-per-execution", type=int, default=1)
arguments.add_argument("--checkpoints", metavar="FOLDER")
arguments.add_argument("--validate-first", action="store_true")
args = arguments.parse_args()
keras.utils.set_random_seed(0)


class RecordLosses(keras.callbacks.Callback):
    """Keras reports the mean loss of the epoch so far, once per execution."""

    def __init__(self, record):
        super().__init__()
        self.record = record
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.record(logs["loss"])
        self.steps += args.steps_per_execution
        if self.steps >= args.steps:
            self.model.stop_training = True


model = classifier()
model.compile(
    optimizer=keras.optimizers.SGD(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    steps_per_execution=args.steps_per_execution,
)
inputs, labels = images(EXAMPLES)
if args.validate_first:
    model.evaluate(inputs, labels, batch_size=BATCH, verbose=0)
with tempfile.TemporaryDirectory() as temporary, recording(args) as record:
    folder = Path(args.checkpoints or temporary)
    history = model.fit(
        inputs,
        labels,
        batch_size=BATCH,
        epochs=math.ceil(args.steps / math.ceil(EXAMPLES / BATCH)),
        validation_data=images(3 * BATCH + 4),
        callbacks=[RecordLosses(record), keras.callbacks.ModelCheckpoint(folder / "last.keras")],
        verbose=0,
    )
print(f"trained {len(history.epoch)} epochs, validation loss {history.history['val_loss'][-1]:.3f}")
