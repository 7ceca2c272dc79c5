"""200 frames of 24 atoms at random places, with forces of no physics: water.xyz."""

import random

ATOMS = 24
HEAD = 'Lattice="8 0 0 0 8 0 0 0 8" Properties=species:S:1:pos:R:3:REF_forces:R:3 pbc="T T T"'

random.seed(0)
with open("water.xyz", "w") as file:
    for _ in range(200):
        file.write(f"{ATOMS}\n{HEAD} REF_energy={-100 + random.random():.6f}\n")
        for atom in range(ATOMS):
            place = [8 * random.random() for _ in range(3)]
            force = [random.gauss(0, 0.1) for _ in range(3)]
            numbers = " ".join(f"{number:.5f}" for number in (*place, *force))
            file.write(f"{'H' if atom % 3 else 'O'} {numbers}\n")
