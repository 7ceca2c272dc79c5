"""The networks that FlexFlow was measured with (its Table 3 and section 8.4), as operators.

Batches, steps and hidden sizes are the paper's (section 8.1); a step's data is an operator, too. It
names neither vocabularies nor the width of embeddings: the former are those of the data it names,
the latter as wide as the recurrent layers, as Zaremba et al. have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dltune.simulate import architectures
from dltune.systems.parallelism.networks import folded
from dltune.systems.parallelism.networks.recurrent import Unrolled
from dltune.systems.parallelism.schemas.operators import Operators

STEPS = 40
# of the movie reviews: Kim, "Convolutional neural networks for sentence classification", 2014
_REVIEW_WORDS, _VERDICTS = 18_765, 2
# of the Penn Treebank as it is used: Zaremba, Sutskever and Vinyals, "Recurrent neural network
# regularization", 2014
_TREEBANK_WORDS = 10_000
# pieces of words: Wu et al., "Google's neural machine translation system", 2016
_PIECES = 32_000


def lenet(batch: int = 64) -> Operators:
    """The six layers of section 8.4."""
    return folded.operators(architectures.lenet(), "LeNet", batch)


def alexnet(batch: int = 256) -> Operators:
    """Return AlexNet as in TensorFlow's benchmarks, which the paper follows: 12 layers, one of
    which only gives its input another shape."""
    return folded.operators(architectures.alexnet_v2(227), "AlexNet", batch)


def inception_v3(batch: int = 64) -> Operators:
    """Without its auxiliary head; convolutions have biases, not batch normalisation."""
    return folded.operators(architectures.inception_v3(), "Inception-v3", batch)


def resnet_101(batch: int = 64) -> Operators:
    """Return version 1; convolutions have biases, not batch normalisation."""
    return folded.operators(architectures.resnet_v1((3, 4, 23, 3)), "ResNet-101", batch)


def rnntc(batch: int = 64, steps: int = STEPS, hidden: int = 1024) -> Operators:
    """Classifies a text after its last step."""
    net = Unrolled(batch)
    layer = net.embedding(net.tokens("words", steps), "embedding", _REVIEW_WORDS, hidden)
    for number in range(1, 5):
        layer = net.lstm(layer, f"lstm_{number}", hidden)
    net.softmax(layer[-1:], "softmax", _VERDICTS)
    return net.network("RNNTC")


def rnnlm(batch: int = 64, steps: int = STEPS, hidden: int = 2048) -> Operators:
    """Predicts the next word after each step. Section 8.4 has a variant with two steps."""
    net = Unrolled(batch)
    layer = net.embedding(net.tokens("words", steps), "embedding", _TREEBANK_WORDS, hidden)
    for number in range(1, 3):
        layer = net.lstm(layer, f"lstm_{number}", hidden)
    net.softmax(layer, "softmax", _TREEBANK_WORDS)
    return net.network("RNNLM")


def nmt(batch: int = 64, steps: int = STEPS, hidden: int = 1024) -> Operators:
    """Figure 14. Each layer of the decoder goes on from the state of the encoder's. The paper's
    attention is that of Bahdanau et al.; here a dot product scores, so that the layer has no
    weights but those that its channels divide."""
    net = Unrolled(batch)
    layer = net.embedding(net.tokens("source", steps), "source_embedding", _PIECES, hidden)
    states = []
    for number in range(1, 3):
        layer = net.lstm(layer, f"encoder_{number}", hidden)
        states.append(layer[-1])
    memory = net.together(layer, "memory")
    layer = net.embedding(net.tokens("target", steps), "target_embedding", _PIECES, hidden)
    for number, state in enumerate(states, 1):
        layer = net.lstm(layer, f"decoder_{number}", hidden, state)
    layer = net.attention(layer, memory, "attention")
    net.softmax(layer, "softmax", _PIECES)
    return net.network("NMT")


# each takes a batch size, recurrent ones also the number of steps
NETWORKS: Mapping[str, Callable[..., Operators]] = {
    "AlexNet": alexnet,
    "Inception-v3": inception_v3,
    "ResNet-101": resnet_101,
    "RNNTC": rnntc,
    "RNNLM": rnnlm,
    "NMT": nmt,
    "LeNet": lenet,
}
