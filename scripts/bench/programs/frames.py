"""160 frames of 16 waters at random places with forces of no physics, as DeePMD-kit reads them, and
a small model for them, its training without an end."""

import json
from pathlib import Path

import numpy

MOLECULES, SIDE = 16, 7.8  # at water's density, in Angstrom
random = numpy.random.default_rng(0)
folder = Path("frames/set.000")
folder.mkdir(parents=True, exist_ok=True)
kinds = numpy.tile([0, 1, 1], MOLECULES)
numpy.savetxt(folder.parent / "type.raw", kinds, fmt="%d")
(folder.parent / "type_map.raw").write_text("O\nH\n")
shape = (160, kinds.size * 3)
for name, values in {
    "box": numpy.tile(SIDE * numpy.eye(3).ravel(), (shape[0], 1)),
    "coord": random.uniform(0, SIDE, shape),
    "energy": random.normal(-30_000, 1, shape[0]),
    "force": random.normal(0, 1, shape),
}.items():
    numpy.save(folder / f"{name}.npy", values.astype("float32"))

descriptor = {
    "type": "se_e2_a",
    "sel": [46, 92],
    "rcut": 6.0,
    "rcut_smth": 0.5,
    "neuron": [25, 50, 100],
    "axis_neuron": 16,
    "seed": 1,
}
Path("input.json").write_text(
    json.dumps(
        {
            "model": {
                "type_map": ["O", "H"],
                "descriptor": descriptor,
                "fitting_net": {"neuron": [240, 240, 240], "seed": 1},
            },
            "learning_rate": {
                "type": "exp",
                "decay_steps": 5000,
                "start_lr": 1e-3,
                "stop_lr": 3.5e-8,
            },
            "loss": {
                "type": "ener",
                "start_pref_e": 0.02,
                "limit_pref_e": 1,
                "start_pref_f": 1000,
                "limit_pref_f": 1,
            },
            "training": {
                "training_data": {"systems": ["frames"], "batch_size": 1},
                "numb_steps": 10_000_000,
                "seed": 1,
                "disp_file": "lcurve.out",
                "disp_freq": 20,
                "save_freq": 1_000_000,
            },
        },
        indent=2,
    )
)
