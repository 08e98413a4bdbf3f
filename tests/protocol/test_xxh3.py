"""XXH3 against values of hash4j, the library that Kafka hashes with."""

import pytest

from protocol.xxh3 import BLOCKS_PER_PIECE, xxh3_64, xxh3_64_in_pieces

HASHES = {
    0: 3244421341483603138,
    1: 1433843135270481901,
    2: 2058273368586827884,
    3: 12180141160879835164,
    4: 7895465118229274323,
    7: 10268930274873212462,
    8: 6941064856527638883,
    9: 18374517719163151272,
    15: 11439541028034589121,
    16: 13314990914799711621,
    17: 8163341949877205007,
    31: 17096134949297616051,
    32: 1873302701886544469,
    33: 4486878507168070088,
    64: 2917965298538373825,
    65: 9408609914592003654,
    96: 17331232145433315139,
    97: 2137665177113230204,
    127: 11065239157069024523,
    128: 7440608504995537343,
    129: 14295761343243267012,
    130: 11970791819318324907,
    144: 6947391739561490738,
    160: 15496299788031539331,
    200: 8389308914288017243,
    239: 2127415575477209850,
    240: 7229805477010515663,
    241: 10082113959289486871,
    255: 13149215926256561209,
    256: 4339360625268998362,
    300: 18274095394255143463,
    511: 16428187825505512987,
    512: 17690705279202729245,
    513: 12776501790586323590,
    1000: 7804479483783519874,
    1024: 11205349619999208113,
    1025: 9253807012321506678,
    2048: 12386592778227166929,
    4097: 11898137487726195576,
    10000: 18217320776762672685,
}


@pytest.mark.parametrize(("size", "expected"), HASHES.items())
def test_hash_of_each_size_class_is_that_of_hash4j(size: int, expected: int):
    data = bytes((i * 7 + 3) & 0xFF for i in range(size))

    assert xxh3_64(data) == expected


@pytest.mark.parametrize("size", [0, 240, 241, 1024, 8 * 1024, 8 * 1024 + 1, 100_000])
def test_hash_in_pieces_is_the_same(size: int):
    data = bytes(index * 31 % 256 for index in range(size))
    pieces = xxh3_64_in_pieces(data)
    count = 0
    while True:
        try:
            next(pieces)
            count += 1
        except StopIteration as e:
            found = e.value
            break

    assert found == xxh3_64(data)
    assert count == max(0, (size - 1) // (1024 * BLOCKS_PER_PIECE))
