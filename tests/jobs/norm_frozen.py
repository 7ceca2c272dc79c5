"""Transfer learning: a frozen body in inference mode, a head that is trained, validation."""

import keras

from arguments import parser, recording
from small_model import images

args = parser(__doc__).parse_args()
keras.utils.set_random_seed(0)


def block(filters, name):
    return [
        keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
        keras.layers.BatchNormalization(name=name),
        keras.layers.ReLU(),
    ]


body = keras.Sequential([keras.layers.Input((24, 24, 3)), *block(8, "body")])
body.trainable = False
inputs = keras.Input((24, 24, 3))
features = body(inputs, training=False)
late = keras.layers.BatchNormalization(name="late")
late.trainable = False
features = late(features)
for layer in block(16, "head"):
    features = layer(features)
model = keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(features)))
model.compile(
    keras.optimizers.SGD(0.05),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
data = images(32)
with recording(args) as record:
    for _ in range(args.steps):
        history = model.fit(*data, batch_size=32, validation_data=data, verbose=0).history
        record(history["loss"][0])
        record(history["val_loss"][0])
print("trained")
