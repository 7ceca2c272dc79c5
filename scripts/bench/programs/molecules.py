"""1,000 molecules of a few groups each with a value of no chemistry: molecules.csv."""

import random

GROUPS = ("C", "CC", "C(C)", "N", "O", "c1ccccc1", "C(=O)", "CN", "S", "C(F)", "C(Cl)")

random.seed(0)
with open("molecules.csv", "w") as file:
    file.write("smiles,value\n")
    for _ in range(1000):
        molecule = "".join(random.choice(GROUPS) for _ in range(random.randint(3, 10)))
        file.write(f"{molecule},{random.gauss(0, 1):.4f}\n")
