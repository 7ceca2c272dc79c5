"""A perceptron as scikit-learn's estimators are trained."""

import numpy as np
from sklearn.datasets import make_classification
from skorch import NeuralNetClassifier
from torch import nn

X, y = make_classification(20000, 40, n_informative=20, random_state=0)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(40, 100), nn.ReLU(), nn.Dropout(0.5), nn.Linear(100, 100), nn.ReLU(),
            nn.Linear(100, 2),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


NeuralNetClassifier(
    Perceptron, max_epochs=100_000, lr=0.01, criterion=nn.CrossEntropyLoss, batch_size=128
).fit(X.astype(np.float32), y.astype(np.int64))
