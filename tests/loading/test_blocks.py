"""Every GGUF tensor type, bit by bit against the `gguf` package's own dequantization."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from quantized_bytes import HALF_FLOATS, random_bytes
from surefoot.graph.spec import QuantizedWeight
from surefoot.loading.fidelity import dequantize, form_of, relative_error
from surefoot.loading.gguf.blocks import CONVERTERS

FORMS = {
    Type.Q4_0: "4 bits, blocks of 32",
    Type.Q4_1: "4 bits, blocks of 32, offsets",
    Type.Q5_0: "8 bits, blocks of 32",
    Type.Q5_1: "8 bits, blocks of 32, offsets",
    Type.Q8_0: "8 bits, blocks of 32",
    Type.Q2_K: "4 bits, blocks of 16, offsets",
    Type.Q3_K: "4 bits, blocks of 16",
    Type.Q4_K: "4 bits, blocks of 32, offsets",
    Type.Q5_K: "8 bits, blocks of 32, offsets",
    Type.Q6_K: "8 bits, blocks of 16",
    Type.IQ4_NL: "8 bits, blocks of 32",
    Type.IQ4_XS: "8 bits, blocks of 32",
}
BIT_EQUAL = {kind for kind, form in FORMS.items() if "offsets" not in form}


def test_every_type_that_is_converted_is_tested() -> None:
    assert set(CONVERTERS) - {Type.F32, Type.F16, Type.BF16} == set(FORMS) == set(HALF_FLOATS)


@pytest.mark.parametrize("kind", FORMS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(3))
def test_values_are_those_of_the_file(kind: Type, seed: int) -> None:
    data = random_bytes(kind, (16, 1024), seed)
    wanted = gguf.dequantize(data, kind)
    weight = CONVERTERS[kind](data)
    assert form_of(weight) == FORMS[kind]
    assert isinstance(weight, QuantizedWeight)
    assert weight.shape == (16, 1024)
    found = dequantize(weight)
    if kind in BIT_EQUAL:
        np.testing.assert_array_equal(found, wanted)
    else:
        # float32 rounds `8 * scale + minimum` once.
        assert relative_error(found, wanted) < 2e-7


@pytest.mark.parametrize(
    "kind", [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.BF16, Type.F16]
)
def test_what_the_package_writes_is_read_back(kind: Type) -> None:
    values = np.random.default_rng(5).standard_normal((8, 256)).astype(np.float32)
    data = gguf.quantize(values, kind)
    found = dequantize(CONVERTERS[kind](data.view(np.float16) if kind == Type.F16 else data))
    assert relative_error(found, gguf.dequantize(data, kind)) < 2e-7
    assert relative_error(found, values) < {Type.BF16: 0.004, Type.F16: 0.001}.get(kind, 0.2)
