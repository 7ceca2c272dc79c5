from __future__ import annotations

import pytest

from dltune.simulate.networks import Device, algorithms, fastest
from dltune.systems.memory import cudnn
from dltune.systems.memory.cudnn import inception_v4

NETWORK = cudnn.alexnet()
LAYERS = {layer.name: layer for layer in NETWORK.layers}
DEVICE = Device(flops=4.29e12, bandwidth=288e9)


def of(name, batch=128):
    return {one.name: one for one in algorithms(NETWORK, LAYERS[name], batch)}


def test_a_stride_leaves_the_direct_way_alone():
    assert list(of("CONV1")) == ["direct"]
    assert list(of("CONV2")) == ["direct", "fft"]
    assert list(of("CONV3")) == ["direct", "winograd", "fft"]


def test_windows_of_one_pixel_have_nothing_to_share():
    net = cudnn.resnet((1, 1, 1, 1))
    (layer,) = (one for one in net.layers if one.name == "CONV2_1_1")
    assert [one.name for one in algorithms(net, layer, 1)] == ["direct"]


def test_spectra_take_complex_numbers_for_half_the_plane():
    """Pictures of 27 and a window of 5 are transformed as 32 x 32."""
    fft = of("CONV2")["fft"]
    assert fft.workspace == 8 * 32 * 17 * (128 * 96 + 96 * 256 + 128 * 256)
    assert of("CONV3")["fft"].workspace == 8 * 16 * 9 * (128 * 256 + 256 * 384 + 128 * 384)


def test_winograd_multiplies_2_25_times_less():
    """F(2x2, 3x3) where tiles fit; 13 x 13 takes 14 x 14 of them."""
    found = of("CONV3")
    products = 2 * 128 * 7 * 7 * 16 * 256 * 384
    assert found["direct"].flops / products == pytest.approx(2.25 * (13 / 14) ** 2)
    assert products < found["winograd"].flops < 1.1 * products


def test_the_fastest_that_has_room():
    def chosen(free):
        return fastest(algorithms(NETWORK, LAYERS["CONV3"], 128), free, DEVICE).name

    need = of("CONV3")
    assert chosen(1 << 40) == "fft"
    assert chosen(need["fft"].workspace) == "fft"
    assert chosen(need["fft"].workspace - 1) == "winograd"
    assert chosen(need["winograd"].workspace - 1) == "direct"
    assert chosen(-1) == "direct"


def test_inception_v4():
    """42.7 million parameters; the paper counts 515 layers."""
    net = inception_v4()
    assert len(net.layers) == 514
    assert sum(layer.kind == "conv" for layer in net.layers) == 149
    assert sum(one.bytes for one in net.parameters) // 4 == 42_615_648
    shapes = [layer.shape for layer in net.layers if layer.kind == "concat"]
    assert shapes[:3] == [(73, 73, 160), (71, 71, 192), (35, 35, 384)]
    assert shapes[7] == (17, 17, 1024)
    assert shapes[-1] == (8, 8, 1536)
