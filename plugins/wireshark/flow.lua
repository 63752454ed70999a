-- Packets to operations, in the order in which the receiver takes them: InfiniBand's reliable service by PSN (IBA volume 1, 9.7),
-- TCP by sequence number; MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040) on it.

local u8, be16, be24, be32, le32, cut, has = R.u8, R.be16, R.be24, R.be32, R.le32, R.cut, R.has
local byte, floor, max, NONE = string.byte, math.floor, math.max, {}

-- ── InfiniBand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

local PSN, HELD_MAX, HELD_TIME, JUMP, COPY_TIME, READS_MAX = 16777216, 512, 4000000000, 65536, 20000, 256

-- By the low five bits of an opcode: verb, part, what follows the BTH.
local OPCODES = {
    [0] = { "send", "first" }, { "send", "middle" }, { "send", "last" }, { "send", "last", 4 }, { "send", "only" }, { "send", "only", 4 },
    { "write", "first", 16 }, { "write", "middle" }, { "write", "last" }, { "write", "last", 4 }, { "write", "only", 16 }, { "write", "only", 20 },
    { "read_request", "only", 16 }, { "read_response", "first", 4 }, { "read_response", "middle" }, { "read_response", "last", 4 },
    { "read_response", "only", 4 }, { "acknowledge", "only", 4 }, { "acknowledge", "only", 12 }, { "atomic", "only", 28 }, { "atomic", "only", 28 },
    nil, { "send", "last", 4, true }, { "send", "only", 4, true },
}
-- services by the high three bits: reliable, unreliable; extended reliable has four bytes more
local RC, UC, RD, UD, CNP, XRC = 0, 1, 2, 3, 4, 5

-- An InfiniBand packet: `s` has its headers, from its BTH on, `size` is its length on the wire up to its invariant CRC. The table is the same one
-- every time; whoever keeps it has to copy it. Of the payload, that of Sends is read at once.
local P = {}

function R.ib_packet(s, size)
    local p = P
    local opcode, flags, _, _, _, q0, q1, q2, _, n0, n1, n2 = byte(s, 1, 12)
    local service, row = floor(opcode / 32), OPCODES[opcode % 32]
    p.opcode, p.service, p.qp, p.psn = opcode, service, q0 * 65536 + q1 * 256 + q2, n0 * 65536 + n1 * 256 + n2
    p.address, p.key, p.length, p.invalidate, p.syndrome, p.payload, p.unknown = nil, nil, nil, nil, nil, nil, nil
    if opcode == 0x81 then
        return p
    end
    if not row or service > XRC or service == CNP or (service == UD and row[1] ~= "send") then
        p.unknown = true
        return p
    end
    local verb, part, more = row[1], row[2], row[3]
    local request = verb ~= "acknowledge" and verb ~= "read_response"
    p.verb, p.part, p.request = verb, part, request
    local at = 12
    if service == UD then
        at = at + 8
    elseif service == RD then
        at = at + 4 + (verb == "send" and 4 or 0)
    elseif service == XRC then
        at = at + (request and 4 or 0)
    end
    p.begins, p.ends = part == "first" or part == "only", part == "last" or part == "only"
    if more then
        if more >= 16 and (verb == "write" or verb == "read_request") and be32(s, at + 12) then
            p.address = { high = be32(s, at), low = be32(s, at + 4) }
            p.key, p.length = be32(s, at + 8), be32(s, at + 12)
        elseif row[4] then
            p.invalidate = be32(s, at)
        elseif not request then
            p.syndrome = u8(s, at)
        end
        at = at + more
    end
    p.at = at
    local length = size - at - 4 - floor(flags / 16) % 4
    p.short = length < 0
    p.payload_length = max(length, 0)
    if verb == "send" then
        p.payload = R.read(at, p.payload_length)
    end
    return p
end

-- The payload of an operation, which is read when somebody wants it.
function R.payload_of(op)
    if not op.bytes then
        op.bytes = op.piece and cut(op.piece, op.from, op.length) or R.read(op.from, op.length)
    end
    return op.bytes
end

function R.ib_flow()
    local function sender()
        return { slack = 0, offset = 0, held = {}, reads = {} }
    end
    return { senders = { sender(), sender() } }
end

local function gap(c, flow, at, by, count, had_them)
    c.missed = true
    R.lost(c, by, at, count, had_them)
end

-- The request that is next becomes an operation. The table is the same one every time: nobody keeps it.
local OP = {}

local function take(c, flow, at, by, p, in_frame, shown)
    local sender, op, length, memory = flow.senders[by], OP, p.payload_length, nil
    sender.slack, sender.recovering, sender.last = 0, false, at.time
    if p.begins then
        sender.offset, sender.open, sender.memory, sender.whole = 0, p.verb, nil, p.length
    end
    op.at, op.by, op.verb, op.begins, op.ends, op.length, op.bytes = at, by, p.verb, p.begins, p.ends, length, p.payload
    op.invalidate, op.shown, op.in_frame, op.from = p.invalidate, shown, in_frame, p.at
    op.whole, op.key, op.address = nil, nil, nil
    local span = 1
    if p.verb == "write" then
        if p.address then
            op.whole = p.length
            sender.memory = { key = p.key, address = p.address }
        end
        memory = sender.open and sender.memory
        if memory then
            op.key, op.address = memory.key, memory.address
        end
    elseif p.verb == "read_request" and p.address then
        op.key, op.address, op.whole, op.length = p.key, p.address, p.length, 0
        local mtu = flow.mtu
        local most = math.max(math.ceil(p.length / 256), 1)
        if mtu then
            span = math.max(math.ceil(p.length / math.max(mtu, 1)), 1)
        else
            sender.slack = most - 1
        end
        local reads = sender.reads
        if #reads >= READS_MAX then
            table.remove(reads, 1)
        end
        reads[#reads + 1] = {
            first = p.psn, span = mtu and span or most, known = mtu ~= nil, key = p.key, address = p.address, length = p.length, next = p.psn,
            received = 0, missing = 0,
        }
        local limit = c.read_depth and c.read_depth[by]
        if limit and #reads > limit then
            R.judge(c, "RDMA-READ-DEPTH", by, at, string.format("has %d RDMA Reads outstanding; %d were agreed", #reads, limit))
        end
    end
    if p.verb == "read_request" and not p.address then
        -- its length was cut off: how many numbers its responses take is not known
        sender.slack = JUMP
    end
    sender.offset = sender.offset + length
    if p.ends then
        sender.open = nil
    end
    sender.next = (p.psn + span) % PSN
    R.op(c, op)
    if memory then
        R.advance(memory.address, length)
    end
end

local function drain(c, flow, by)
    local sender = flow.senders[by]
    while #sender.held > 0 do
        local q = sender.held[1]
        local ahead = R.ahead(q.packet.psn, sender.next, PSN)
        if ahead > sender.slack then
            return
        end
        table.remove(sender.held, 1)
        if ahead >= 0 then
            take(c, flow, q.at, by, q.packet, false, false)
        end
    end
end

-- Gives up what is missing before the first held packet.
local function skip_to_held(c, flow, by, had_them)
    local sender = flow.senders[by]
    local first = sender.held[1]
    if not first then
        return
    end
    local missing = R.ahead(first.packet.psn, sender.next, PSN)
    if missing <= 0 then
        return
    end
    gap(c, flow, first.at, by, missing, had_them)
    sender.next = first.packet.psn
    local hole = (flow.mtu or 0) * missing
    local goes_on = sender.open == "write" and first.packet.verb == "write" and not first.packet.begins
    if sender.memory and goes_on and hole > 0 and sender.whole and sender.offset + hole < sender.whole then
        R.advance(sender.memory.address, hole)
        sender.offset = sender.offset + hole
    else
        sender.open, sender.memory = nil, nil
    end
end

local function expire(c, flow, now)
    local senders = flow.senders
    if not senders[1].held[1] and not senders[2].held[1] then
        return
    end
    for by = 1, 2 do
        local held = senders[by].held
        while held[1] and now.time - held[1].at.time > HELD_TIME do
            skip_to_held(c, flow, by, false)
            drain(c, flow, by)
        end
    end
end

local function hold(c, flow, at, by, p)
    local sender = flow.senders[by]
    local q, place = { at = at, by = by, packet = {} }, #sender.held + 1
    for name, value in pairs(p) do
        q.packet[name] = value
    end
    q.packet.payload = p.payload or R.read(p.at, p.payload_length)
    for n, h in ipairs(sender.held) do
        local ahead = R.ahead(h.packet.psn, q.packet.psn, PSN)
        if ahead == 0 then
            R.retransmitted(c)
            return
        elseif ahead > 0 and place > n then
            place = n
        end
    end
    table.insert(sender.held, place, q)
    if (sender.acked_ahead and R.ahead(sender.acked_ahead, sender.next, PSN) >= 0) or #sender.held > HELD_MAX then
        skip_to_held(c, flow, q.by, #sender.held <= HELD_MAX)
        drain(c, flow, q.by)
    end
end

local function request(c, flow, at, by, p)
    if (p.part == "first" or p.part == "middle") and not flow.mtu and p.payload_length > 0 then
        flow.mtu = p.payload_length
    end
    local sender = flow.senders[by]
    sender.next = sender.next or p.psn
    local ahead = R.ahead(p.psn, sender.next, PSN)
    if ahead >= 0 and ahead <= sender.slack then
        local first = sender.held[1]
        take(c, flow, at, by, p, true, true)
        if first then
            drain(c, flow, by)
        end
    elseif ahead > JUMP or ahead < -JUMP then
        sender.held, sender.open, sender.next = {}, nil, p.psn
        take(c, flow, at, by, p, true, true)
    elseif ahead < 0 then
        local copy = ahead == -1 and not sender.recovering and at.time - (sender.last or 0) <= COPY_TIME
        if copy then
            R.report("RC-DUPLICATE", "capture", at, "the same packet stands in the capture twice")
        else
            R.retransmitted(c)
            sender.recovering = true
        end
        R.show_only(c, by, p, copy and "early" or "retransmission")
    elseif p.service == UC or not sender.last then
        gap(c, flow, at, by, ahead, false)
        sender.open, sender.next = nil, p.psn
        take(c, flow, at, by, p, true, true)
    else
        hold(c, flow, at, by, p)
        R.show_only(c, by, p, "early")
    end
end

local function acknowledged(c, flow, requester, psn)
    local sender = flow.senders[requester]
    if not sender.next then
        return
    end
    local ahead = R.ahead(psn, sender.next, PSN)
    if ahead < 0 or ahead > JUMP then
        return
    end
    sender.acked_ahead = psn
    if #sender.held > 0 then
        skip_to_held(c, flow, requester, true)
        drain(c, flow, requester)
    end
end

local NAKS = { "invalid request", "remote access error", "remote operational error", "invalid RD request" }

local function acknowledge(c, flow, at, by, p)
    local requester, kind = R.peer(by), p.syndrome and math.floor(p.syndrome / 32) % 4
    if kind == 3 then
        local code = p.syndrome % 32
        -- a sequence error asks for what was lost; 3: the responder could not do what it was rightly asked for
        if code ~= 0 then
            R.report("RC-NAK", R.blame(c, code == 3 and by or requester), at, string.format("%s at PSN %d", NAKS[code] or "NAK", p.psn))
        end
    elseif kind == 1 then
        R.report("RC-RNR", R.blame(c, by), at, string.format("had no receive posted for the Send at PSN %d", p.psn))
        local s = c.smbd and c.smbd.sides[requester]
        if s and s.overruns == 0 and s.credits and s.granted_total > 0 then
            local text = "granted a credit and had no receive posted for the Send that used it"
            if R.blame(c, by) == "server" then
                R.report("BUG-CVE-2026-31538", "server", at, text)
            end
            R.report("BUG-CVE-2026-31539", R.blame(c, by), at, text)
        end
    end
    if kind == 3 or kind == 1 then
        flow.senders[requester].recovering = true
        acknowledged(c, flow, requester, (p.psn - 1) % PSN)
    elseif kind == 0 or not kind then
        acknowledged(c, flow, requester, p.psn)
    end
end

local function read_response(c, flow, at, by, p)
    if (p.part == "first" or p.part == "middle") and p.payload_length > 0 then
        flow.mtu = flow.mtu or p.payload_length
    end
    local sender, mtu = flow.senders[R.peer(by)], flow.mtu
    local op = { at = at, by = by, verb = "read_response", begins = p.begins, ends = p.ends, length = p.payload_length, from = p.at, shown = true }
    local index
    for n, r in ipairs(sender.reads) do
        local ahead = R.ahead(p.psn, r.first, PSN)
        if ahead >= 0 and ahead < r.span then
            index = n
            break
        end
    end
    if not index then
        local behind = sender.reads_done and R.ahead(p.psn, sender.reads_done, PSN)
        if behind and behind < 0 and behind >= -JUMP then
            return R.retransmitted(c)
        end
        return R.op(c, op)
    end
    local r = sender.reads[index]
    if not r.known and mtu then
        r.span, r.known = math.max(math.ceil(r.length / mtu), 1), true
    end
    local ahead = R.ahead(p.psn, r.next, PSN)
    if ahead < 0 then
        R.retransmitted(c)
        if r.missing == 0 then
            return
        end
        r.missing = r.missing - 1
    elseif ahead > 0 then
        r.missing = r.missing + ahead
    end
    local offset = mtu and R.ahead(p.psn, r.first, PSN) * mtu or r.received
    op.key, op.address, op.whole = r.key, R.further(r.address, offset), r.length
    r.received = r.received + p.payload_length
    if ahead >= 0 then
        r.next = (p.psn + 1) % PSN
    end
    if p.ends and r.missing == 0 then
        for _ = 1, index do
            table.remove(sender.reads, 1)
        end
        sender.reads_done = (p.psn + 1) % PSN
    end
    R.op(c, op)
end

-- One packet that `by` sent.
function R.ib_flow_packet(c, at, by, p)
    local flow = c.flow
    if p.service ~= RC and p.service ~= UC and p.service ~= XRC then
        return
    end
    expire(c, flow, at)
    if p.verb == "acknowledge" then
        acknowledge(c, flow, at, by, p)
    elseif p.verb == "read_response" then
        read_response(c, flow, at, by, p)
    else
        request(c, flow, at, by, p)
    end
end

-- Whether a packet of the other direction may acknowledge what this sender requested.
function R.may_acknowledge(flow, psn)
    local sender = flow.senders[1]
    if not sender.next then
        return false
    end
    local behind = R.ahead(sender.next, psn, PSN)
    return (behind >= 1 and behind <= 256) or (behind <= 0 and behind > -sender.slack - 1)
end

-- ── TCP ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local SEQ, HELD_BYTES_MAX, REORDERED = 4294967296, 1048576, 3000000

function R.tcp_flow()
    local function stream()
        return { held = {}, held_bytes = 0, gap_since = 0 }
    end
    local function framer()
        return { phase = "opening", buffer = "", crc = nil, markers = false, skipped = 0, position = 0 }
    end
    local function half()
        return { queues = {}, reads = {} }
    end
    return { streams = { stream(), stream() }, framers = { framer(), framer() }, halves = { half(), half() }, startup = {} }
end

local function start(s, seq)
    s.started, s.first, s.next, s.acked, s.highest = true, seq, seq, 0, 0
    s.base = 0
end

-- Positions count from the first byte of the stream, so that they do not wrap.
local function position(s, seq)
    return s.base + R.ahead(seq, s.next, SEQ)
end

local function advance(s, to)
    s.next = (s.next + (to - s.base)) % SEQ
    s.base = to
end

-- A piece of the stream in order; `missing` bytes behind it were not captured.
local function piece(c, flow, at, by, bytes, missing, in_frame)
    R.mpa_push(c, flow, at, by, bytes, missing, in_frame)
end

local function skip_to(c, flow, at, by, to, had_them)
    local s = flow.streams[by]
    local count = to - s.base
    advance(s, to)
    R.ddp_lost(flow, by)
    if c.transport == "iwarp" or c.protocol then
        R.lost(c, by, at, count, had_them)
    end
    piece(c, flow, at, by, "", count, false)
end

local function drain_held(c, flow, at, by)
    local s = flow.streams[by]
    while s.held[1] and s.held[1].pos <= s.base do
        local h = table.remove(s.held, 1)
        s.held_bytes = s.held_bytes - #h.bytes
        local stop = h.pos + h.length
        if stop > s.base then
            local part = cut(h.bytes, s.base - h.pos, h.length)
            local missing = (stop - s.base) - #part
            advance(s, stop)
            piece(c, flow, at, by, part, missing, false)
        end
    end
end

local function skip_acknowledged(c, flow, at, by)
    local s = flow.streams[by]
    while s.held[1] and s.acked >= s.held[1].pos do
        skip_to(c, flow, at, by, s.held[1].pos, true)
        drain_held(c, flow, at, by)
    end
end

local function hold_segment(s, pos, bytes, length)
    local at, kept = pos, false
    local stop = pos + length
    while at < stop do
        local inside, until_, place = nil, stop, #s.held + 1
        for n, h in ipairs(s.held) do
            if h.pos <= at and h.pos + h.length > at then
                inside = h.pos + h.length
            elseif h.pos > at then
                until_, place = math.min(stop, h.pos), n
                break
            end
        end
        if inside then
            at = inside
        else
            local part = cut(bytes, at - pos, until_ - at)
            table.insert(s.held, place, { pos = at, bytes = part, length = until_ - at })
            s.held_bytes = s.held_bytes + #part
            at, kept = until_, true
        end
    end
    return kept
end

local function tcp_data(c, flow, at, by, seq, bytes, length)
    local s = flow.streams[by]
    if not s.started then
        start(s, seq)
    end
    local pos = position(s, seq)
    local stop = pos + length
    if pos == s.base and #s.held == 0 and s.highest == s.base then
        advance(s, stop)
        s.highest = stop
        return piece(c, flow, at, by, bytes, length - #bytes, true)
    end
    if length == 1 and stop == s.base then
        return
    end
    local had_gap = #s.held > 0
    if pos > s.base and s.acked >= pos and (not s.held[1] or pos <= s.held[1].pos) then
        skip_to(c, flow, at, by, pos, true)
    end
    local behind = pos < s.highest
    s.highest = math.max(s.highest, stop)
    local new = false
    if pos <= s.base then
        local from = s.base
        while s.base < stop do
            local until_ = s.held[1] and math.min(stop, s.held[1].pos) or stop
            local part = cut(bytes, s.base - pos, until_ - s.base)
            local missing = (until_ - s.base) - #part
            advance(s, until_)
            if #part > 0 or missing > 0 then
                piece(c, flow, at, by, part, missing, true)
            end
            drain_held(c, flow, at, by)
        end
        new = s.base > from
    else
        new = hold_segment(s, pos, bytes, length)
    end
    if behind and not (new and had_gap and at.time - s.gap_since < REORDERED) then
        R.retransmitted(c)
    end
    if not had_gap then
        s.gap_since = at.time
    end
    skip_acknowledged(c, flow, at, by)
    while s.held_bytes > HELD_BYTES_MAX do
        skip_to(c, flow, at, by, s.held[1].pos, false)
        drain_held(c, flow, at, by)
    end
end

-- Whether a SYN begins another connection on the same ports.
function R.tcp_reopens(flow, by, flags, seq)
    local s = flow.streams[by]
    return has(flags, 2) and not has(flags, 4) and s.started and (seq + 1) % SEQ ~= s.first
end

-- One segment that `by` sent.
function R.tcp_segment(c, at, by, g)
    local flow, flags = c.flow, g.flags
    local syn, reset, acks = flags % 4 >= 2, flags % 8 >= 4, flags % 32 >= 16
    if reset then
        if not flow.reset then
            flow.reset = true
            c.closed = c.closed or at
            if c.transport == "iwarp" then
                R.judge(c, "TCP-RESET", by, at, "reset the connection")
            end
        end
        return
    end
    local other = flow.streams[R.peer(by)]
    local mine = flow.streams[by]
    if syn then
        if not mine.started then
            start(mine, (g.seq + 1) % SEQ)
        end
    elseif g.window == 0 and not mine.closed and acks and not has(flags, 1) then
        mine.closed = at
    elseif g.window > 0 and mine.closed then
        R.judge(c, "TCP-ZERO-WINDOW", by, at, "kept its receive window closed for " .. R.milliseconds(at.time - mine.closed.time))
        mine.closed = nil
    end
    if acks and other.started then
        local acked = position(other, g.ack)
        if acked > other.acked then
            other.acked = acked
        end
        if other.held[1] then
            skip_acknowledged(c, flow, at, R.peer(by))
        end
    end
    if g.length > 0 then
        if not mine.started then
            flow.framers[by].late = true
        end
        tcp_data(c, flow, at, by, syn and (g.seq + 1) % SEQ or g.seq, g.bytes, g.length)
    end
end

-- ── MPA ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local REQUEST_KEY, REPLY_KEY, SEARCH_MAX = "MPA ID Req Frame", "MPA ID Rep Frame", 196608

-- "other", "short", or the length of an MPA Request or Reply and which of the two it is.
local function opening(s)
    local n = math.min(#s, 16)
    local head = cut(s, 0, n)
    local reply = head == cut(REPLY_KEY, 0, n)
    if not reply and head ~= cut(REQUEST_KEY, 0, n) then
        return "other"
    end
    local length = be16(s, 18)
    if not length then
        return "short"
    end
    return "startup", 20 + length, reply
end
R.mpa_opening = opening

-- An FPDU's length with padding and CRC.
local function fpdu_length(s, at)
    local n = be16(s, at)
    return n and n + 9 - (n + 1) % 4
end

-- Whether what is at `at` may be an FPDU: DDP version 1, RDMAP version 0 or 1, an opcode that is defined.
local function plausible(s, at)
    local ddp, rdmap = byte(s, at + 3, at + 4)
    if ddp and ddp % 64 ~= 1 then
        return false
    end
    return not rdmap or (rdmap < 0x80 and rdmap % 64 <= 11)
end

local QUEUE = { [1] = 1, [3] = 0, [4] = 0, [5] = 0, [6] = 0, [7] = 2, [8] = 0, [9] = 0, [10] = 1, [11] = 3 }
local LEAST = { [1] = 46, [7] = 22, [8] = 26, [9] = 26, [10] = 70, [11] = 30 }

-- Whether an FPDU stands at `at`, and how telling that is: 2 or 1.
local function shape(s, at)
    local ddp, rdmap = u8(s, at + 2), u8(s, at + 3)
    if not u8(s, at + 19) or ddp % 64 ~= 1 or math.floor(rdmap / 16) ~= 4 then
        return nil
    end
    local opcode, tagged, length = rdmap % 16, has(ddp, 0x80), be16(s, at)
    if tagged ~= (opcode == 0 or opcode == 2) or opcode > 11 then
        return nil
    end
    if tagged then
        return length >= 14 and { strong = false, stag = be32(s, at + 4), offset = be32(s, at + 12), length = length } or nil
    end
    if length >= (LEAST[opcode] or 18) and be32(s, at + 8) == QUEUE[opcode] then
        return { strong = opcode == 4 or opcode == 6 or be32(s, at + 4) == 0 }
    end
    return nil
end

-- Where framing begins in a stream that was joined late: candidates earn points, as many as make chance unlikely.
local function search(s, fresh, known, anchored)
    local enough, budget = known and 3 or 5, 4 * #s + 65536
    for from = 0, math.min(#s - 20, 4096) do
        if anchored and from > 0 then
            return nil
        end
        local at, score, fpdus, last = from, from == fresh and 1 or 0, 0, nil
        while true do
            if at == #s then
                score = score + 1
                break
            end
            if #s - at < 20 then
                if not plausible(s, at) then
                    score = -1
                end
                break
            end
            local sh = shape(s, at)
            if not sh then
                score = -1
                break
            end
            local goes_on = last and sh.stag == last.stag and sh.offset == (last.offset + last.length - 14) % 4294967296
            score = score + ((sh.strong or goes_on) and 2 or 1)
            last = sh.stag and sh or nil
            local total = fpdu_length(s, at)
            if at + total > #s then
                break
            end
            budget = budget - total
            if budget >= 0 and R.crc32c(cut(s, at, total - 4)) == le32(s, at + total - 4) then
                score = score + 3
            elseif be32(s, at + total - 4) == 0 then
                score = score + 1
            end
            at, fpdus = at + total, fpdus + 1
        end
        if fpdus > 0 and score >= enough then
            return from
        end
    end
    return nil
end

local function something_else(s)
    if R.u8(s, 0) == 0 and (u8(s, 4) or 0) >= 0xfc and cut(s, 5, 3) == "SMB" then
        return true
    end
    local mark, kind, word = u8(s, 0), be32(s, 8), be32(s, 12)
    return word and mark >= 0x80 and ((kind == 0 and word == 2) or (kind == 1 and word <= 1))
end

local function agree(flow)
    for by = 1, 2 do
        local peer = flow.startup[R.peer(by)]
        flow.framers[by].known = true
        if peer then
            flow.framers[by].markers = peer.markers
        end
    end
end

-- Read depths of an MPA Request or Reply: RFC 6581's, then those that [MS-SMBD] 6.1 puts into the private data.
local function depths(t)
    local s, at = t.private, 0
    if t.revision >= 2 and has(t.flags, 0x10) and #s >= 4 then
        t.control = { first = be16(s, 0), second = be16(s, 2) }
        t.ird, t.ord, at = t.control.first % 16384, t.control.second % 16384, 4
    end
    local ird, ord = be32(s, at), be32(s, at + 4)
    if not ord or (ird == 0 and ord == 0 and #s > at + 8) then
        return
    end
    if ird <= 0xffff and ord <= 0xffff then
        t.legacy, t.ird, t.ord = at, ird, ord
    elseif le32(s, at) <= 0xffff and le32(s, at + 4) <= 0xffff then
        t.legacy, t.little, t.ird, t.ord = at, true, le32(s, at), le32(s, at + 4)
    end
end

local function startup(c, flow, at, by, s, reply)
    local flags = u8(s, 16)
    local t = {
        what = "mpa", reply = reply, flags = flags, markers = has(flags, 0x80), crc = has(flags, 0x40), reject = has(flags, 0x20),
        revision = u8(s, 17), private = cut(s, 20, #s),
    }
    depths(t)
    R.tell(t)
    R.begun_of_frame = "mpa"
    flow.startup[by] = t
    agree(flow)
    flow.halves[by].queues = { [0] = { msn = 0, offset = 0 }, { msn = 0, offset = 0 }, { msn = 0, offset = 0 }, { msn = 0, offset = 0 } }
    c.transport, c.handshake, c.missed = "iwarp", true, false
    if not reply then
        c.client = by
    end
    local function no(rule, text, severity)
        R.judge(c, rule, by, at, text, severity)
    end
    if reply and t.reject then
        no("MPA-REJECT", "rejected the iWARP connection")
    end
    if t.little then
        -- peers that read either form lose nothing by it
        no("MPA-IRDORD", "sent its read depths in little-endian", "note")
    end
    if t.ird == 0 and t.ord == 0 then
        no("MPA-IRDORD", "offered read depths (IRD, ORD) of 0")
    end
    local asked = flow.startup[R.peer(by)]
    if reply and t.ord and asked and asked.ird and t.ord > asked.ird then
        no("MPA-IRDORD", string.format("will have %d Reads outstanding; its peer answers %d", t.ord, asked.ird))
    end
end

-- Takes markers out (RFC 5044, 4.3): four bytes at every 512th byte behind the startup frame.
local function strip(f, s)
    local out, at = {}, 0
    while at < #s do
        local phase = f.position % 512
        local n
        if phase < 4 then
            n = math.min(4 - phase, #s - at)
        else
            n = math.min(512 - phase, #s - at)
            out[#out + 1] = cut(s, at, n)
        end
        at, f.position = at + n, f.position + n
    end
    return table.concat(out)
end

local function give_up(c, flow, at, by, f, bytes, missing, in_frame)
    f.phase, f.buffer = "other", ""
    R.stream_bytes(c, by, at, bytes, missing, in_frame)
end

local function frames(c, flow, at, by, f, in_frame)
    local s, from = f.buffer, 0
    while from < #s do
        local total = fpdu_length(s, from)
        if not plausible(s, from) and not (not f.begun and be16(s, from) == 0) and #s - from >= 3 then
            f.phase, f.buffer = "search", cut(s, from, #s)
            return R.mpa_push(c, flow, at, by, "", 0, false)
        end
        if not total or #s - from < total then
            break
        end
        f.begun = true
        R.ddp_segment(c, flow, at, by, s, from + 2, be16(s, from), in_frame and not f.markers)
        from = from + total
    end
    f.buffer = from > 0 and cut(s, from, #s) or s
end

-- A piece of the stream, in order.
function R.mpa_push(c, flow, at, by, bytes, missing, in_frame)
    local f = flow.framers[by]
    if f.phase == "other" then
        return R.stream_bytes(c, by, at, bytes, missing, in_frame)
    end
    if f.phase == "opening" then
        local s = f.buffer .. bytes
        local what, length, reply = opening(s)
        if what == "startup" and #s >= length then
            f.phase, f.known, f.buffer = "framing", true, ""
            startup(c, flow, at, by, cut(s, 0, length), reply)
            flow.mpa = true
            bytes, in_frame = cut(s, length, #s), in_frame and #s == #bytes
        elseif (what == "startup" or what == "short") and missing == 0 then
            f.buffer = s
            return
        else
            f.anchored = not f.known and not f.late and #bytes > 0
            f.phase, f.buffer, bytes = "search", "", s
        end
    end
    if f.markers and f.phase == "framing" then
        bytes = strip(f, bytes)
    end
    if f.phase == "framing" then
        in_frame = in_frame and #f.buffer == 0
        f.buffer = f.buffer .. bytes
        frames(c, flow, at, by, f, in_frame)
        if missing > 0 and f.phase == "framing" then
            -- what was not captured: over whole FPDUs or out of step
            local total = fpdu_length(f.buffer, 0)
            if total and #f.buffer + missing >= total then
                local n = be16(f.buffer, 0)
                local have, rest = cut(f.buffer, 2, n), #f.buffer + missing - total
                f.buffer = ""
                R.ddp_segment(c, flow, at, by, have, 0, #have, in_frame, n)
                if rest > 0 then
                    f.phase, f.skipped = "search", rest
                end
            else
                f.phase, f.skipped, f.buffer = "search", #f.buffer + missing, ""
            end
            f.position = f.position + missing
        end
        return
    end
    -- search
    local fresh = #f.buffer
    local s = f.buffer .. bytes
    local from = search(s, fresh, f.known or flow.mpa, f.anchored and not flow.mpa)
    if from then
        f.phase, f.known, flow.mpa = "framing", true, true
        R.begun_of_frame = "mpa"
        f.buffer = cut(s, from, #s)
        if c.transport ~= "iwarp" then
            c.transport, c.handshake = "iwarp", false
        end
        c.missed = true
        R.ddp_lost(flow, by)
        R.report("MPA-RESYNC", "capture", at, string.format("MPA framing was found again after %d bytes", f.skipped + from))
        f.skipped = 0
        return frames(c, flow, at, by, f, in_frame and fresh == 0)
    end
    if not f.known and not flow.mpa and (f.anchored or #s > SEARCH_MAX or something_else(bytes)) then
        -- an anchored search fails as soon as the first bytes are no FPDU
        if not f.anchored or #s >= 20 and not shape(s, 0) or something_else(bytes) then
            give_up(c, flow, at, by, f, s, missing, in_frame and fresh == 0)
            local peer = flow.framers[R.peer(by)]
            if peer.phase ~= "other" then
                local kept = peer.buffer
                peer.phase, peer.buffer = "other", ""
                if #kept > 0 then
                    R.stream_bytes(c, R.peer(by), at, kept, 0, false)
                end
            end
            return
        end
    end
    if missing > 0 or #s > SEARCH_MAX then
        f.skipped, f.buffer = f.skipped + #s + missing, ""
    else
        f.buffer = s
    end
end

-- ── DDP and RDMAP ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Bytes of `by` were lost: nothing open goes on.
function R.ddp_lost(flow, by)
    flow.halves[by].queues, flow.halves[by].write = {}, nil
    for _, r in ipairs(flow.halves[R.peer(by)].reads) do
        r.stale = true
    end
end

local function step(c, at, by, expected, got)
    R.judge(c, "DDP-OVERLAP", by, at, string.format("sent a segment at %s where %s comes next", R.hex(got, 1), R.hex(expected, 1)))
end

-- Where an untagged segment stands; whether it begins a message.
local function untagged(c, flow, at, by, queue, msn, offset, length, last)
    local queues = flow.halves[by].queues
    local q = queues[queue]
    if not q then
        queues[queue] = { msn = msn, offset = offset + length, open = not last }
        return offset == 0
    end
    local was_open, was_msn, was_offset = q.open, q.msn, q.offset
    q.msn, q.offset, q.open = msn, offset + length, not last
    if was_open and was_msn == msn then
        if offset ~= was_offset then
            step(c, at, by, was_offset, offset)
        end
        return offset == 0
    end
    local expected = (was_msn + 1) % SEQ
    if was_open then
        step(c, at, by, was_offset, offset)
    end
    if msn ~= expected then
        R.judge(c, "DDP-MSN", by, at, string.format("sent message %d on queue %d where %d comes next", msn, queue, expected))
        if R.ahead(msn, expected, SEQ) < 0 then
            q.msn = was_msn
        end
    end
    if offset ~= 0 then
        step(c, at, by, 0, offset)
    end
    return offset == 0
end

-- A DDP segment: the ULPDU is at `from` in `s`, `had` bytes long; `length` is its length on the wire where that is more. The operation
-- that comes of it is the same table every time: nobody keeps it.
local SEGMENT = {}

function R.ddp_segment(c, flow, at, by, s, from, had, in_frame, length)
    length = length or had
    if length == 0 then
        return
    end
    local ddp, rdmap
    if had >= 2 then
        ddp, rdmap = byte(s, from + 1, from + 2)
    end
    local tagged, last = ddp and ddp >= 0x80, ddp and ddp % 128 >= 64
    local head = tagged and 14 or 18
    if had < head then
        if length == had then
            R.judge(c, "BUG-CVE-2026-64102", by, at, string.format("sent an FPDU of %d bytes, less than its headers have", length))
        else
            -- which message it was, nobody knows
            R.ddp_lost(flow, by)
            R.lost(c, by, at, 0)
            c.cut[by] = true
        end
        return
    end
    local opcode = rdmap % 16
    local op = SEGMENT
    op.at, op.by, op.verb, op.begins, op.ends, op.length, op.shown, op.in_frame = at, by, "send", true, last, length - head, true, in_frame
    op.bytes, op.key, op.address, op.whole, op.invalidate = nil, nil, nil, nil, nil
    op.piece, op.from = s, from + head
    local half = flow.halves[by]
    local wrong = ddp % 4 ~= 1 or rdmap >= 128
    if tagged then
        local k1, k2, k3, k4, h1, h2, h3, h4, l1, l2, l3, l4 = byte(s, from + 3, from + 14)
        local stag = k1 * 16777216 + k2 * 65536 + k3 * 256 + k4
        local to = { high = h1 * 16777216 + h2 * 65536 + h3 * 256 + h4, low = l1 * 16777216 + l2 * 65536 + l3 * 256 + l4 }
        if wrong or (opcode ~= 0 and opcode ~= 2) then
            R.judge(c, "DDP-MSN", by, at, string.format("sent control bytes %s %s, which are not defined", R.hex(ddp, 2), R.hex(rdmap, 2)))
        end
        if opcode == 0 then
            op.verb, op.key, op.address = "write", stag, to
            local open = half.write
            if open then
                op.begins = open.stag ~= stag
                if open.stag ~= stag or R.apart(open.to, to) ~= 0 then
                    step(c, at, by, open.to.low, to.low)
                end
            end
            half.write = nil
            if not last then
                half.write = open or { to = {} }
                open = half.write
                open.stag, open.to.high, open.to.low = stag, to.high, to.low
                R.advance(open.to, op.length)
            end
        elseif opcode == 2 then
            op.verb = "read_response"
            local reads, found = flow.halves[R.peer(by)].reads, nil
            for n, r in ipairs(reads) do
                local into = R.apart(to, r.sink)
                if r.sink_stag == stag and into >= 0 and into <= r.size then
                    found = n
                    break
                end
            end
            if not found then
                op.begins = false
                if not c.missed then
                    R.judge(c, "BUG-CVE-2026-64268", by, at, "sent a Read Response that no request asked for")
                end
            else
                while found > 1 and reads[1].stale do
                    table.remove(reads, 1)
                    found = found - 1
                end
                local r = reads[found]
                if R.apart(r.next, to) ~= 0 and not r.stale then
                    step(c, at, by, r.next.low, to.low)
                end
                r.next, r.stale = R.further(to, op.length), false
                local into = R.apart(to, r.sink)
                op.begins, op.key, op.address, op.whole = into == 0, r.stag, R.further(r.source, into), r.size
                if last then
                    table.remove(reads, found)
                end
            end
        else
            return
        end
        return R.op(c, op)
    end
    local extra, queue, msn, offset = be32(s, from + 2), be32(s, from + 6), be32(s, from + 10), be32(s, from + 14)
    -- a piece of a larger buffer ends where the ULPDU ends
    op.bytes = cut(s, from + head, had - head)
    if wrong or QUEUE[opcode] ~= queue then
        R.judge(c, "DDP-MSN", by, at, string.format("sent control bytes %s %s for queue %d, which are not defined", R.hex(ddp, 2), R.hex(rdmap, 2), queue))
    end
    if opcode > 11 or opcode == 0 or opcode == 2 then
        return
    end
    op.begins = queue > 3 and offset == 0 or queue <= 3 and untagged(c, flow, at, by, queue, msn, offset, length - head, last)
    if opcode == 1 then
        op.verb = "read_request"
        local b = op.bytes
        if #b >= 28 then
            local r = {
                sink_stag = be32(b, 0), sink = { high = be32(b, 4), low = be32(b, 8) }, size = be32(b, 12), stag = be32(b, 16),
                source = { high = be32(b, 20), low = be32(b, 24) },
            }
            r.next = r.sink
            op.key, op.address, op.whole, op.length, op.bytes = r.stag, r.source, r.size, 0, ""
            local reads = half.reads
            for n, x in ipairs(reads) do
                if x.stale and x.sink_stag == r.sink_stag and R.apart(x.sink, r.sink) == 0 then
                    for _ = 1, n do
                        table.remove(reads, 1)
                    end
                    break
                end
            end
            if #reads >= READS_MAX then
                table.remove(reads, 1)
            end
            reads[#reads + 1] = r
        end
    elseif opcode == 7 then
        op.verb = "terminate"
        R.judge(c, "RDMAP-TERMINATE", by, at, "ended the connection with a Terminate")
    elseif opcode >= 10 then
        op.verb = "atomic"
    elseif (opcode == 4 or opcode == 6) and last then
        op.invalidate = extra
    end
    R.op(c, op)
end
