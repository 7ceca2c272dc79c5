"""A GradientTape loop over blocks with batch norm and dropout: activations take most memory."""

import keras
from keras import layers

from arguments import parser, recording
from small_model import batches, step_function

arguments = parser(__doc__)
arguments.add_argument("--batch", type=int, default=32)
args = arguments.parse_args()
keras.utils.set_random_seed(0)


def block(filters: int) -> list[layers.Layer]:
    return [
        layers.Conv2D(filters, 3, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Dropout(0.2),
    ]


blocks = [layer for _ in range(4) for layer in block(8)]
head = [layers.GlobalAveragePooling2D(), layers.Dense(10)]
model = keras.Sequential([layers.Input((24, 24, 3)), *blocks, *head])
train_step = step_function(model, keras.optimizers.SGD(0.01, momentum=0.9))
with recording(args) as record:
    for batch in batches(args.batch).take(args.steps):
        record(train_step(*batch))
print("trained")
