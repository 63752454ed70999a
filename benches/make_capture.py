#!/usr/bin/env python3
"""Makes captures to measure with: make_capture.py KIND FRAMES OUT [FIRST]

KIND  roce-mixed   SMB Direct over RoCEv2: 12 small requests and replies, then a READ of 64 KiB by RDMA Write; 16 connections
      roce-one     the same on one connection
      roce-small   small requests and replies alone
      roce-bulk    READs alone, in packets of 1 KiB
      roce-bulk-4k the same in packets of 4 KiB
      roce-hosts   the first mix on 64 connections, each between hosts of its own
      iwarp-mixed  the first mix over iWARP, one connection, CRCs on
      iwarp-16     the same on 16 connections
All checksums, PSNs, invariant CRCs and MPA CRCs are right. Nanosecond pcap.

FIRST is the number of the first RoCE connection, for captures with no connection in common."""
import struct
import sys
import zlib

MTU = 1024
SERVER, PORT = bytes([10, 9, 0, 1]), 4791


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(src, dst, protocol, payload):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 2 if protocol == 17 else 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0, src, dst)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:]


class Capture:
    def __init__(self, path, wanted):
        self.file = open(path, "wb", buffering=1 << 20)
        self.file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        self.time, self.frames, self.wanted = 1_700_000_000 * 10**9, 0, wanted

    def full(self):
        return self.frames >= self.wanted

    def frame(self, src, dst, protocol, payload, after):
        data = b"\2\0\0\0\0" + dst[3:] + b"\2\0\0\0\0" + src[3:] + b"\x08\0" + ipv4(src, dst, protocol, payload) + payload
        self.time += after
        seconds, nanos = divmod(self.time, 10**9)
        self.file.write(struct.pack("<IIII", seconds, nanos, len(data), len(data)) + data)
        self.frames += 1


class RoceEnd:
    def __init__(self, ip, qp, psn):
        self.ip, self.qp, self.psn, self.msn = ip, qp, psn, 0


class Roce:
    """One connection of two queue pairs."""

    def __init__(self, capture, number, mtu=MTU):
        self.capture, self.mtu = capture, mtu
        self.client = RoceEnd(bytes([10, 9, 1 + number // 200, 1 + number % 200]), 0x100 + number, 0x10000 * (number + 1) & 0xFFFFFF)
        self.server = RoceEnd(SERVER, 0x8000 + number, 0x20000 * (number + 1) & 0xFFFFFF)

    def packet(self, by, to, opcode, psn, body, after, acknowledge=False):
        pad = -len(body) % 4
        ib = struct.pack("!BBHII", opcode, 0x40 | pad << 4, 0xFFFF, to.qp, (0x80000000 if acknowledge else 0) | psn) + body + bytes(pad)
        udp = struct.pack("!HHHH", 0xC000 | by.qp & 0x3FFF, PORT, 12 + len(ib), 0)
        ip = ipv4(by.ip, to.ip, 17, udp + ib + bytes(4))
        # what may change on the way counts as ones: ToS, TTL, checksums, and the BTH byte that carries FECN and BECN
        masked = b"\xff" * 8 + ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:] + udp[:6] + b"\xff\xff"
        icrc = struct.pack("<I", zlib.crc32(masked + ib[:4] + b"\xff" + ib[5:]))
        self.capture.frame(by.ip, to.ip, 17, udp + ib + icrc, after)

    def next(self, end):
        psn, end.psn = end.psn, end.psn + 1 & 0xFFFFFF
        return psn

    def send(self, by, to, message):
        psn = self.next(by)
        self.packet(by, to, 0x04, psn, message, 2000, True)
        to.msn = to.msn + 1 & 0xFFFFFF
        self.packet(to, by, 0x11, psn, struct.pack("!I", 0x1F000000 | to.msn), 900)

    def write(self, by, to, key, address, length):
        packets = length // self.mtu
        for n in range(packets):
            opcode = 0x06 if n == 0 else 0x08 if n == packets - 1 else 0x07
            reth = struct.pack("!QII", address, key, length) if n == 0 else b""
            psn = self.next(by)
            self.packet(by, to, opcode, psn, reth + bytes([n & 255]) * self.mtu, 300, n == packets - 1)
        self.packet(to, by, 0x11, psn, struct.pack("!I", 0x1F000000 | to.msn), 900)


class Iwarp:
    """One connection over TCP, MPA with CRC."""

    def __init__(self, capture, number=0):
        self.capture = capture
        self.client, self.server = (bytes([10, 9, 1, 1 + number]), 40000 + number), (SERVER, 5445)
        self.seq = {self.client: 1000, self.server: 5000}
        self.msn = {self.client: 0, self.server: 0}
        self.tcp(self.client, self.server, b"", 0x02)
        self.tcp(self.server, self.client, b"", 0x12)
        self.tcp(self.client, self.server, b"", 0x10)
        self.tcp(self.client, self.server, b"MPA ID Req Frame" + bytes([0x40, 1, 0, 0]))
        self.tcp(self.server, self.client, b"MPA ID Rep Frame" + bytes([0x40, 1, 0, 0]))

    def tcp(self, by, to, payload, flags=0x18):
        head = struct.pack("!HHIIBBHHH", by[1], to[1], self.seq[by] & 0xFFFFFFFF, self.seq[to] & 0xFFFFFFFF, 0x50, flags, 65535, 0, 0)
        self.seq[by] += len(payload) + (1 if flags & 2 else 0)
        self.capture.frame(by[0], to[0], 6, head + payload, 2000)

    def fpdu(self, by, to, ulpdu):
        body = struct.pack("!H", len(ulpdu)) + ulpdu
        body += bytes(-len(body) % 4)
        self.tcp(by, to, body + struct.pack("<I", crc32c(body)))

    def send(self, by, to, message):
        self.msn[by] += 1
        self.fpdu(by, to, struct.pack("!BBIIII", 0x41, 0x43, 0, 0, self.msn[by], 0) + message)

    def write(self, by, to, key, address, length):
        for at in range(0, length, 1400):
            piece = min(1400, length - at)
            control = 0xC1 if at + piece == length else 0x81
            self.fpdu(by, to, struct.pack("!BBIQ", control, 0x40, key, address + at) + bytes(piece))


def smb2(command, message_id, reply, body):
    return struct.pack("<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 1, 0, command, 1, 1 if reply else 0, 0, message_id, 0xFEFF, 5, 7, bytes(16)) + body


def data(message, granted=1):
    return struct.pack("<HHHHIII4x", 255, granted, 0, 0, 0, 24, len(message)) + message


class Talk:
    """What a client and a server say, over either transport."""

    def __init__(self, link):
        self.link, self.id = link, 0
        link.send(link.client, link.server, struct.pack("<HHHHIII", 0x100, 0x100, 0, 255, 1364, 1364, 173910))
        link.send(link.server, link.client, struct.pack("<HHHHHHIIIII", 0x100, 0x100, 0x100, 0, 255, 255, 0, 1 << 20, 1364, 1364, 173910))

    def small(self):
        self.id += 1
        request = struct.pack("<HBBIHHIII16s", 41, 1, 18, 4096, 0, 0, 0, 0, 0, b"F" * 16)
        self.link.send(self.link.client, self.link.server, data(smb2(16, self.id, False, request), 255 if self.id == 1 else 1))
        self.link.send(self.link.server, self.link.client, data(smb2(16, self.id, True, struct.pack("<HHI", 9, 72, 104) + bytes(104))))

    def read(self):
        self.id += 1
        key, address, length = self.id * 2654435761 & 0xFFFFFFFF, 0x7F0000000000 + self.id * 65536, 65536
        channel = struct.pack("<QII", address, key, length)
        request = struct.pack("<HBBIQ16sIIIHH", 49, 0x50, 0, length, self.id * length, b"F" * 16, 0, 1, 0, 0x70, 16) + channel
        self.link.send(self.link.client, self.link.server, data(smb2(8, self.id, False, request)))
        self.link.write(self.link.server, self.link.client, key, address, length)
        self.link.send(self.link.server, self.link.client, data(smb2(8, self.id, True, struct.pack("<HBBIII", 17, 0x50, 0, 0, length, 0))))


def main():
    kind, wanted, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    capture = Capture(path, wanted)
    if kind.startswith("iwarp-"):
        talks = [Talk(Iwarp(capture, first + n)) for n in range(16 if kind == "iwarp-16" else 1)]
    else:
        mtu = 4096 if kind == "roce-bulk-4k" else MTU
        count = {"roce-one": 1, "roce-hosts": 64}.get(kind, 16)
        talks = [Talk(Roce(capture, first + n, mtu)) for n in range(count)]
    turn = 0
    while not capture.full():
        talk = talks[turn % len(talks)]
        turn += 1
        for _ in range(0 if kind.startswith("roce-bulk") else 12):
            talk.small()
        if kind != "roce-small":
            talk.read()
    capture.file.close()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main()
