#!/usr/bin/env python3
"""Cuts seeds for the fuzz targets out of captures: seeds.py CAPTURE.pcap …

Takes little-endian pcap files of Ethernet frames. Of frames that look alike (same opcode, command, kind and about the same
length) only the first is kept. Writes to corpus/TARGET/ beside this script; what is there stays.
"""
import gzip
import hashlib
import pathlib
import shutil
import struct
import subprocess
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


def smb_session():
    """The conversations that the analyzer's tests read, without their NEGOTIATE."""
    folder = CORPUS.parent.parent / "analyzer/src/keys/testdata"
    for path in sorted(folder.glob("*-3.*.txt")):
        lines = [line.split() for line in path.read_text().splitlines() if line[0] in "<>"]
        seed = b"\3\x12" if "3.1.1" in path.name else b"\2\x11"
        for n, (way, digits) in enumerate(lines[2:]):
            message = bytes.fromhex(digits)
            seed += struct.pack("<BH", (way == "<") | (n == 3) << 1, len(message)) + message
        keep("smb_session", path.stem, seed)


def capture_file(packets):
    """The same few packets in every container that is read."""
    def pcap(order, magic, extra=b""):
        out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
        for n, packet in enumerate(packets):
            out += struct.pack(order + "IIII", 1_700_000_000 + n, n, len(packet), len(packet)) + extra + packet
        return out

    def option(order, code, value):
        return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)

    def block(order, kind, body):
        length = 12 + len(body)
        return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)

    def pcapng(order):
        end = option(order, 0, b"")
        out = block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + option(order, 4, b"seeds.py") + end)
        out += block(order, 1, struct.pack(order + "HHI", 1, 0, 65535) + option(order, 2, b"eth0") + option(order, 9, b"\x09") + end)
        out += block(order, 1, struct.pack(order + "HHI", 247, 0, 0) + option(order, 9, b"\x9e") + option(order, 14, bytes(8)) + end)
        for n, packet in enumerate(packets):
            fixed = struct.pack(order + "IIIII", n % 2, 0x18000, n << 20, len(packet), len(packet) + n)
            out += block(order, 6, fixed + packet + bytes(-len(packet) % 4) + option(order, 1, b"a comment") + option(order, 2, bytes(4)) + end)
        out += block(order, 3, struct.pack(order + "I", len(packets[0])) + packets[0] + bytes(-len(packets[0]) % 4))
        out += block(order, 10, struct.pack(order + "II", 0x544C534B, 4) + b"keys")
        out += block(order, 4, struct.pack(order + "HH", 1, 8) + bytes([192, 0, 2, 1]) + b"srv\0" + struct.pack(order + "HH", 0, 0))
        return out + block(order, 5, struct.pack(order + "III", 0, 0, 0) + option(order, 4, struct.pack(order + "Q", 9)) + end)

    plain = pcap("<", 0xA1B2C3D4)
    keep("capture_file", "pcap", plain)
    keep("capture_file", "pcap-big-endian-ns", pcap(">", 0xA1B23C4D))
    keep("capture_file", "pcap-modified", pcap("<", 0xA1B2CD34, bytes(8)))
    keep("capture_file", "pcapng", pcapng("<"))
    keep("capture_file", "pcapng-two-sections", pcapng(">") + pcapng("<"))
    keep("capture_file", "gzip", gzip.compress(plain, mtime=0) + gzip.compress(b"", mtime=0))
    for tool in ("zstd", "lz4"):
        if shutil.which(tool):
            keep("capture_file", tool, subprocess.run([tool, "-c"], input=plain, stdout=subprocess.PIPE, check=True).stdout)


def send(frame):
    """The whole RDMA Send in a RoCEv2 frame of one packet, or None."""
    if len(frame) < 58 or frame[12:14] != b"\x08\x00" or frame[14:15] != b"\x45" or frame[23] != 17:
        return None
    if struct.unpack_from(">H", frame, 36)[0] != ROCE_PORT:
        return None
    opcode, flags = frame[42], frame[43]
    header = {0x04: 12, 0x17: 16}.get(opcode)
    if header is None or frame[47:50] == b"\0\0\1":
        return None
    return frame[42 + header : len(frame) - 4 - (flags >> 4 & 3)]


def by_frame(frame, seen, calls):
    """Seeds from one frame; `seen` remembers what they looked like, `calls` the RPC calls."""
    def first(target, *looks):
        if (target, looks) in seen:
            return False
        seen.add((target, looks))
        return True

    is_roce = frame[12:14] == b"\x08\x00" and frame[23] == 17 and struct.unpack_from(">H", frame, 36)[0] == ROCE_PORT
    kind = (frame[42], frame[47:50] == b"\0\0\1" and frame[54:72]) if is_roce else (frame[23:24], frame[47] & 0x3F if len(frame) > 47 else 0)
    if is_roce and frame[47:50] == b"\0\0\1" and first("mad", frame[62:63], frame[78:80]):
        keep("mad", "captured", frame[62:-4])
    if first("frame", frame[12:14], kind, about(len(frame))):
        keep("frame", "ethernet", b"\x40" + frame)
        if frame[12:14] == b"\x08\x00" and len(frame) < 300 and first("tunnel", kind[0]):
            ip = frame[14:]
            keep("frame", "vlan", b"\x40" + frame[:12] + b"\x81\0\x60\x64" + frame[12:])
            keep("frame", "raw-ip", b"\x04" + ip)
            keep("frame", "cooked", b"\x06" + bytes(14) + b"\x08\0" + ip)
            vxlan = struct.pack(">HHHHII", 1, 4789, 16 + len(frame), 0, 0x0800_0000, 0x2A00) + frame
            outer = struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(vxlan), 1, 0, 64, 17, 0, bytes(8)) + vxlan
            keep("frame", "vxlan", b"\x04" + outer)
    if frame[12:14] == b"\x08\x00" and frame[23] == 6 and 5445 in struct.unpack_from(">HH", frame, 34):
        stream = frame[34 + (frame[46] >> 4) * 4 : 14 + struct.unpack_from(">H", frame, 16)[0]]
        if stream[:4] == b"MPA " and first("iwarp", stream[:16]):
            keep("iwarp", "startup", stream)
        elif len(stream) > 4 and first("iwarp", stream[2:4], about(len(stream))):
            length = struct.unpack_from(">H", stream)[0]
            keep("iwarp", "fpdu", b"\1" + stream[: 2 + length + (2 - length) % 4 + 4])
            keep("iwarp", "ulpdu", b"\0" + stream[2 : 2 + length])
    message = send(frame)
    if not message:
        return
    if message[4:8] == b"\0\0\0\1":
        rpcrdma(message, calls, first)
        return
    smb2_id = message[24:28]
    if first("smbd", smb2_id, len(message) if len(message) < 40 else about(len(message))):
        keep("smbd", "message", message)
    if smb2_id == b"\xfeSMB" and message[8:12] == bytes(4):
        smb2(message[24:], first)


RPC_PROGRAMS = {(100003, 3): 0, (100003, 4): 1, (100003, 2): 2, (0x40000000, 1): 3, (100005, 3): 4, (100021, 4): 5, (100000, 4): 6, (100227, 3): 7}


def rpcrdma(message, calls, first):
    """Header and RPC message of a Send of NFS over RDMA; `calls` remembers calls for their replies."""
    words = struct.unpack(f">{len(message) // 4}I", message[: len(message) & ~3])
    if len(words) < 7 or words[1] != 1 or words[3] > 4:
        return
    if first("rpcrdma", words[3], words[4:7], about(len(message))):
        keep("rpcrdma", "send", message)
    if words[3] != 0:
        return
    at = 4  # behind the read list, the write list and the reply chunk
    while words[at]:
        at += 6
    at += 1
    while words[at]:
        at += 2 + 4 * words[at + 1]
    at += 1
    at += 2 + 4 * words[at + 1] if words[at] else 1
    rpc, words = message[4 * at :], words[at:]
    if len(words) < 6:
        return
    if words[1] == 0:
        call = (RPC_PROGRAMS.get((words[3], words[4]), 0), words[5])
        calls[words[0]] = call
    else:
        call = calls.get(words[0], (0, 0))
    if first("rpc_nfs", words[1], call, about(len(rpc)) if call[0] else 0):
        keep("rpc_nfs", "reply" if words[1] else "call", bytes([call[0] | 0x40, call[1]]) + rpc)


def smb2(message, first):
    """The SMB2 message in an SMB Direct message that is not fragmented."""
    command, flags, next_command = struct.unpack_from("<H", message, 12)[0], message[16], struct.unpack_from("<I", message, 20)[0]
    status = struct.unpack_from("<I", message, 8)[0] if flags & 1 else 0
    if first("smb2", command, flags & 1, next_command > 0, status, message[64:67]):
        choice = {0x10: 1, 0x11: 2, 0x0E: 3, 0x0B: 4}.get(command, 0)
        keep("smb2", "response" if flags & 1 else "request", bytes([choice, 1, 18]) + message)


def key_file():
    keep("key_file", "smbinfo", b"# c\nSession Id: 45 00 00 08 00 c8 00 00\nCipher: AES-128-GCM\nSession Key: " + b"0f " * 16 + b"\n")
    keep("key_file", "kernel-log", b"[ 1234.567890] CIFS: VFS: Session Id    45 00 00 08 00 c8 00 00\n[ 1.5] CIFS: VFS: Signing Key   " + b"a4 " * 16)
    keep("key_file", "wireshark", b"4500000800c80000," + b"ab" * 16 + b",,\nuser=D\\a password=x\nnthash=" + b"01" * 16 + b"\n")


def pipeline(name, packets):
    """The frames of a short connection, or of pieces of a long one, in the form that the target takes."""
    out, before = b"\0", None
    for header, frame in packets:
        seconds, microseconds, captured, wire = struct.unpack("<IIII", header)
        now = seconds * 10**9 + microseconds * 1000
        step = max(1, now - (before or now)).bit_length() - 1
        before = now
        out += struct.pack("<HBB", len(frame), min(step, 39), min(wire - captured, 255)) + frame
    keep("pipeline", name, out)


def tcp_segment(frame):
    """Ports, flags and payload of a TCP segment, or None."""
    if frame[12:14] == b"\x08\x00" and frame[23] == 6:
        at, end = 14 + (frame[14] & 15) * 4, 14 + struct.unpack_from(">H", frame, 16)[0]
    elif frame[12:14] == b"\x86\xdd" and frame[20] == 6:
        at, end = 54, 54 + struct.unpack_from(">H", frame, 18)[0]
    else:
        return None
    return struct.unpack_from(">HH", frame, at), frame[at + 13], frame[at + (frame[at + 12] >> 4) * 4 : end]


def tcp_flow(path):
    """The first connection with payload, as segments that follow one another."""
    first, seed, kinds = None, b"", set()
    for _, frame in frames(path):
        ports, flags, payload = tcp_segment(frame) or (None, 0, b"")
        if ports is None or len(seed) > 6000:
            continue
        first = first or ports
        look = (ports == first, flags & 7, payload[2:4], about(len(payload)))
        if set(ports) != set(first) or look in kinds:
            continue
        kinds.add(look)
        payload = payload[:0x7FF]
        seed += struct.pack("<BBBBBBH", ports != first, flags & 0x1F, 0, 9, 0, 0, len(payload)) + payload
    if len(seed) > 500:
        keep("tcp_flow", pathlib.Path(path).stem, seed)


def tcp_flow_made():
    """MPA frames and FPDUs that the target makes by itself, in order and out of it."""
    def head(kind, made, opcode, payload=b"", more=0, seq=0, far=0):
        return struct.pack("<BBBBBBH", kind << 4 | made << 1 | (opcode & 0x80) >> 7, 0x18, opcode & 0x7F, more, 1, far, len(payload)) + payload

    opening = head(0, 1, 0x40) + head(0, 1, 0xC0)
    read = struct.pack(">IQIIQ", 7, 0, 5, 8, 64)
    talk = head(0, 2, 3, b"hello") + head(0, 2, 1, read) + head(0, 2, 0x82, b"abcde") + head(0, 2, 0, b"write", 1) + head(0, 3, 0x13, b"no crc")
    keep("tcp_flow", "made", opening + talk)
    keep("tcp_flow", "made-late", talk + talk)
    keep("tcp_flow", "made-gaps", opening + head(10, 2, 3, b"later", far=40) + head(0, 2, 3, b"x" * 20) + head(12, 2, 4, b"again", far=30) + talk)


def active(path):
    """Both directions of the iWARP connection of a capture without loss, for the targets of the side that talks."""
    streams = {}
    for _, frame in frames(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        ip = 14 + (frame[14] & 15) * 4
        tcp = frame[14 + (frame[14] & 15) * 4 : 14 + struct.unpack_from(">H", frame, 16)[0]]
        source, target = struct.unpack_from(">HH", frame, ip)
        if 5445 in (source, target):
            streams.setdefault((source, target), bytearray()).extend(tcp[(tcp[12] >> 4) * 4 :])
    for (source, _), stream in streams.items():
        server = source == 5445
        keep("iwarp_receiver", "server" if server else "client", bytes([0xF1 if server else 0xF0]) + bytes(stream[:4000]))
        messages, at = [], 20 + struct.unpack_from(">H", stream, 18)[0]
        while at + 20 <= len(stream):
            length = struct.unpack_from(">H", stream, at)[0]
            ulpdu = stream[at + 2 : at + 2 + length]
            # a whole Send
            if len(ulpdu) >= 18 and ulpdu[0] & 0xC0 == 0x40 and ulpdu[1] & 15 in (3, 4, 5, 6):
                messages.append(bytes(ulpdu[18:]))
            at += (2 + length + 3) // 4 * 4 + 4
        prefixed = b"".join(struct.pack("<H", len(m)) + m for m in messages[:40])
        keep("endpoint", "from-server" if server else "from-client", (b"\0" if server else b"\1") + prefixed)
        if not server:
            keep("peer", "session", b"\1" + b"".join(struct.pack("<H", len(m)) + m for m in messages[1:60]))


def roce(path):
    """Both directions of the first RoCEv2 connection of a capture, numbered from 0 on, for the receiver in user space."""
    firsts, sides = {}, {}
    for _, frame in frames(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 17 or struct.unpack_from(">H", frame, 36)[0] != ROCE_PORT:
            continue
        bth, sender = bytearray(frame[42 : 14 + struct.unpack_from(">H", frame, 16)[0] - 4]), frame[26:30]
        if bth[0] >= 0x20 or len(bth) > 700:
            continue
        answer = 0x0D <= bth[0] <= 0x12
        numbered = frame[30:34] if answer else sender
        psn = int.from_bytes(bth[9:12], "big")
        if numbered not in firsts:
            if answer:
                continue
            firsts[numbered] = psn
        bth[9:12] = (psn - firsts[numbered] & 0xFFFFFF).to_bytes(3, "big")
        sides.setdefault(sender, []).append(struct.pack("<HB", len(bth), 1) + bytes(bth))
    for n, (_, datagrams) in enumerate(sides.items()):
        keep("roce_receiver", ["client", "server"][n & 1], bytes([2 + (n & 1)]) + b"".join(datagrams[:24]))


def roce_cm(path):
    """The messages of the communication manager of each end of a capture's first connection, for the end that gets them."""
    sides = {}
    for _, frame in frames(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 17 or struct.unpack_from(">H", frame, 36)[0] != ROCE_PORT:
            continue
        bth = frame[42 : 14 + struct.unpack_from(">H", frame, 16)[0] - 4]
        if bth[0] == 0x64 and int.from_bytes(bth[5:8], "big") == 1:
            mad = bth[20:]
            sides.setdefault(frame[26:30], []).append(struct.pack("BB", 63, 0x13) + mad[:252])
    for n, (_, mads) in enumerate(sides.items()):
        for established in (0, 2):
            keep("roce_cm", ["to-server", "to-client"][n & 1], bytes([established + (n & 1)]) + b"".join(mads[:6]))


def main():
    tcp_flow_made()
    key_file()
    decompress()
    smb_session()
    packets = []
    for path in sys.argv[1:]:
        all_frames = list(frames(path))
        setup = [n for n, (_, frame) in enumerate(all_frames[:40])]
        small = [n for n, (_, frame) in enumerate(all_frames) if n >= 40 and len(frame) < 600]
        for piece in (setup, setup[:25] + small[:60], setup + small[-50:]):
            pipeline(pathlib.Path(path).stem, [all_frames[n] for n in piece])
        tcp_flow(path)
        active(path)
        roce(path)
        roce_cm(path)
        seen, calls = set(), {}
        for _, frame in frames(path):
            by_frame(frame, seen, calls)
        packets += [frame for _, frame in zip(range(2), (frame for _, frame in frames(path)))]
    if packets:
        capture_file(packets[:6])


if __name__ == "__main__":
    main()
