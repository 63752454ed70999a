#!/usr/bin/env python3
"""Prints what rdmascope says of the frames of a pcap file, last frame first, as of the end of the capture: facts.py ENGINE FILE, where ENGINE is
librdmascope_engine.so. The same as facts.c, with nothing but ctypes."""
import ctypes
import struct
import sys

NONE, UNSIGNED, SIGNED, BYTES, TEXT, TIME, APART, PLACED = 0, 1, 2, 3, 4, 5, 6, 0x80


class Frame(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("number", ctypes.c_uint64), ("time_ns", ctypes.c_int64), ("link_type", ctypes.c_int32),
                ("wire_length", ctypes.c_uint32), ("bytes", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class Engine:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.rdmascope_fields.restype = ctypes.c_void_p
        self.library.rdmascope_error.restype = ctypes.c_char_p
        if self.library.rdmascope_interface() != 1:
            raise RuntimeError("another version of the engine")
        length = ctypes.c_size_t()
        text = ctypes.string_at(self.library.rdmascope_fields(ctypes.byref(length)), length.value)
        self.fields = [line.split("\t")[0] for line in text.decode().splitlines()]
        self.engine = ctypes.c_void_p()
        self.check(self.library.rdmascope_open(None, ctypes.byref(self.engine)))

    def check(self, code):
        if code != 0:
            raise RuntimeError(self.library.rdmascope_error(self.engine).decode())

    def frame(self, number, time_ns, link_type, wire_length, captured):
        frame = Frame(ctypes.sizeof(Frame), number, time_ns, link_type, wire_length, captured, len(captured))
        facts, length = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.library.rdmascope_frame(self.engine, ctypes.byref(frame), ctypes.byref(facts), ctypes.byref(length)))

    def settle(self):
        self.check(self.library.rdmascope_settle(self.engine, 1))

    def facts(self, number):
        """Name, kind and value of each item."""
        facts, length = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.library.rdmascope_facts(self.engine, ctypes.c_uint64(number), ctypes.byref(facts), ctypes.byref(length)))
        data, at = ctypes.string_at(facts, length.value), 8
        while at + 8 <= len(data):
            field, kind, _depth, size = struct.unpack_from("<HBBI", data, at)
            value = data[at + 8:at + 8 + size]
            at += 8 + size
            if kind & PLACED:
                value = value[8:]
            yield self.fields[field], kind & ~PLACED, value

    def close(self):
        self.library.rdmascope_close(self.engine)


def show(kind, value):
    if kind == UNSIGNED:
        return b" %d" % struct.unpack("<Q", value)
    if kind == SIGNED:
        return b" %d" % struct.unpack("<q", value)
    if kind == TIME:
        return b" %d.%09d" % struct.unpack("<qI", value)
    if kind == TEXT:
        return b" " + value
    if kind == BYTES:
        return b" %d bytes" % len(value)
    if kind == APART:
        return b" message %d" % struct.unpack_from("<I", value)
    return b""


def main():
    engine, number = Engine(sys.argv[1]), 0
    with open(sys.argv[2], "rb") as file:
        head = file.read(24)
        link_type = struct.unpack_from("<H", head, 20)[0]
        while record := file.read(16):
            seconds, microseconds, captured, wire_length = struct.unpack("<IIII", record)
            number += 1
            engine.frame(number, (seconds * 1000000 + microseconds) * 1000, link_type, wire_length, file.read(captured))
    engine.settle()
    for number in range(number, 0, -1):
        for name, kind, value in engine.facts(number):
            sys.stdout.buffer.write(b"%d %s%s\n" % (number, name.encode(), show(kind, value)))
    engine.close()


if __name__ == "__main__":
    main()
