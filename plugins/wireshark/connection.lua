-- Connections: which packets belong together, what they carry, and what is to be said of a frame. A packet of InfiniBand names only
-- the receiver's queue pair; two flows of opposite direction are tied together by the CM handshake, by acknowledged PSNs, by remote
-- keys, or where there is no other choice.

local u8, be16, be24, be32, cut, has = R.u8, R.be16, R.be24, R.be32, R.cut, R.has

local PROBES_MAX, TRIES_MAX, REQUESTS_MAX = 64, 512, 4096

local function new_connection(transport)
    local id = R.connections + 1
    R.connections = id
    return {
        id = id, transport = transport, probes = 0, tries = 0, memory = { {}, {} }, regions = 0, guess = { { run = 0, last = 0 }, { run = 0, last = 0 } },
        pending = {}, by_exchange = {}, outstanding = 0, inline = {}, ports = {}, receive = { {}, {} }, streams = { {}, {} }, cut = {},
    }
end

-- ── Above the waist ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Packets of `by` are missing.
function R.lost(c, by, at, count, had_them)
    c.missed = true
    c.receive[by], c.streams[by] = {}, { lost = true }
    if c.smbd then
        R.smbd_missed(c.smbd, by)
    end
    if c.smb2 then
        c.smb2.missed, c.smb2.credits = true, nil
    end
    if c.rpc then
        for end_ = 1, 2 do
            c.rpc.credits[end_].granted, c.rpc.credits[end_].replied = nil, true
        end
    end
    R.misled(c, by)
    if count > 0 then
        if had_them then
            R.report("CAPTURE-LOSS", "capture", at, string.format("%d that the receiver acknowledged are missing", count))
        else
            R.report("RC-GAP", "unknown", at, string.format("%d never came: lost by the capture, or on the wire and not repaired", count))
        end
    end
end

-- A packet went out again. Why is known with what comes after it: the report tells.
function R.retransmitted(c)
    R.misled(c, 1)
    R.misled(c, 2)
end

-- Whoever counts every copy, and joins what a gap parted, puts the next message together wrongly.
function R.misled(c, by)
    if c.smbd and c.smbd.fragments[by].open then
        c.suspect = true
    end
end

local function hint(c)
    for _, port in pairs(c.ports) do
        if port == 445 or port == 5445 then
            return "smb_direct"
        elseif port == 20049 then
            return "rpcrdma"
        end
    end
    return nil
end

local function new_rpc()
    return { credits = { { outstanding = 0 }, { outstanding = 0 } } }
end

local function probe(c, send)
    if c.probes >= PROBES_MAX then
        return
    end
    c.probes = c.probes + 1
    local smbd, found = R.smbd_looks_like(send.bytes, send.wire), nil
    if smbd == "certain" then
        found = "smb_direct"
    elseif R.rpcrdma_looks_like(send.bytes) then
        found = "rpcrdma"
    elseif smbd and hint(c) ~= "rpcrdma" then
        found = "smb_direct"
    elseif not smbd and c.handshake and c.probes == 1 then
        found = hint(c)
    end
    c.protocol = found
    if found == "smb_direct" then
        local late = c.probes > 1 or c.missed or not R.smbd_begins(send.bytes, send.wire)
        local known = c.handshake and c.probes == 1
        c.smbd, c.smb2 = R.smbd_new(late and not known), {}
        c.missed = c.missed or (late and not known)
    elseif found == "rpcrdma" then
        c.rpc = new_rpc()
        c.missed = c.missed or not c.handshake
    end
end

local function smb_direct(c, by, send, op)
    local l = c.smbd
    if not c.client and not l.initiator and R.smbd_begins(send.bytes, send.wire) and send.wire < 32 then
        c.client = by
    end
    local upper, kind, stalled = R.smbd_send(c, by, send)
    if upper then
        R.smb2_message(c, by, upper)
    end
    if l.initiator then
        c.client = l.initiator
    end
    c.read_write = l.read_write
    if op.shown then
        local client = c.client or 1
        c.messages = (c.messages or 0) + 1
        R.connection_of_frame = c.id
        R.tell({
            -- some Wiresharks know the first messages in the first pass only
            keep = c.messages <= 4,
            what = "smbd", kind = kind, client = l.sides[client].credits, server = l.sides[3 - client].credits, stall = stalled, bytes = send.bytes,
            from = op.in_frame and op.from and R.base and R.base + op.from or nil, upper = upper, suspect = upper and c.suspect,
        })
    end
    if upper then
        c.suspect = nil
    elseif send.invalidate then
        R.invalidated(c, send.last, R.peer(by), send.invalidate)
    end
end

-- A whole Send.
local function message(c, by, send, op)
    if #send.bytes < send.wire then
        -- what it advertised may be among what is not there
        c.cut[by] = true
    end
    if not c.protocol then
        probe(c, send)
    end
    if c.protocol == "smb_direct" then
        smb_direct(c, by, send, op)
    elseif c.protocol == "rpcrdma" then
        R.rpcrdma_send(c, by, send)
    end
end

-- The next operation of a connection, in the receiver's order.
function R.op(c, op)
    local by = op.by
    if op.verb == "write" then
        return R.write_op(c, op)
    elseif op.verb == "read_request" then
        return R.read_request_op(c, op)
    elseif op.verb == "read_response" then
        return R.read_response_op(c, op)
    elseif op.verb ~= "send" then
        return
    end
    local r = c.receive[by]
    if op.begins and op.ends then
        r.open = false
        return message(c, by, { first = op.at, last = op.at, bytes = op.bytes, wire = op.length, invalidate = op.invalidate }, op)
    end
    if op.begins then
        r = { open = true, first = op.at, wire = 0, parts = {}, length = 0 }
        c.receive[by] = r
    end
    if not r.open then
        if op.ends then
            R.lost(c, by, op.at, 0)
        end
        return
    end
    r.wire = r.wire + op.length
    if not r.cut then
        local bytes = op.bytes
        r.parts[#r.parts + 1] = bytes
        r.length = r.length + #bytes
        r.cut = #bytes < op.length or r.length > 16777216
    end
    if not op.ends then
        return
    end
    c.receive[by] = {}
    local shown = { shown = op.shown }
    message(c, by, { first = r.first, last = op.at, bytes = table.concat(r.parts), wire = r.wire, invalidate = op.invalidate, whole = true }, shown)
end

-- A packet that is not told as an operation now, because it was told before or is held: only shown.
function R.show_only(c, by, p, what)
    R.connection_of_frame = c.id
    R.tell({ what = what })
    if p.verb == "send" and p.part == "only" and c.protocol == "smb_direct" then
        R.tell({ what = "copy", bytes = p.payload, from = R.base + p.at })
    end
end

-- ── Plain TCP: SMB2 behind its length, RPC behind its record mark ──────────────────────────────────────────────────────────

local MESSAGE_MAX = 16777216

local function stream_kind(s)
    local a = u8(s, 4)
    if u8(s, 0) == 0 and a and a >= 0xfc and cut(s, 5, 3) == "SMB" then
        return "smb2"
    end
    local mark, kind = be32(s, 0), be32(s, 8)
    if not kind then
        return nil
    end
    local length = mark % 2147483648
    local plausible = mark >= 2147483648 and length >= 24 and length < MESSAGE_MAX
    local word, more = be32(s, 12), be32(s, 16)
    if plausible and word and more and ((kind == 0 and word == 2 and more >= 100000 and more < 0x60000000) or (kind == 1 and word <= 1 and more <= 7)) then
        return "rpc"
    end
    return #s >= 20 and "other" or nil
end

local function stream_message(c, by, first, at, body)
    if c.protocol == "smb2" then
        R.smb2_message(c, by, { first = first, last = at, bytes = body, wire = #body, fragments = 1 })
    else
        R.rpc_record(c, by, { first = first, last = at, bytes = body })
    end
end

-- Bytes in order of a connection that is not iWARP.
function R.stream_bytes(c, by, at, bytes, missing)
    if c.stream == "other" then
        return
    end
    if not c.stream then
        c.stream = stream_kind(bytes)
        if c.stream == "smb2" then
            c.protocol, c.smb2 = "smb2", {}
        elseif c.stream == "rpc" then
            c.protocol, c.rpc = "rpc", new_rpc()
        else
            return
        end
    end
    local d = c.streams[by]
    if d.lost then
        if stream_kind(bytes) ~= c.stream then
            return
        end
        d.lost = nil
    end
    if not d.buffer or d.buffer == "" then
        d.buffer, d.first = "", at
    end
    local s, from = d.buffer .. bytes, 0
    while true do
        local word = be32(s, from)
        if not word then
            break
        end
        local length, whole = word % 2147483648, word >= 2147483648
        if c.stream == "smb2" then
            whole = word < 16777216
            length = word % (whole and 16777216 or 131072)
        end
        if length > MESSAGE_MAX then
            d.lost, s, from = true, "", 0
            break
        end
        if #s < from + 4 + length then
            break
        end
        local body = cut(s, from + 4, length)
        from = from + 4 + length
        if c.stream == "smb2" then
            if whole and length > 0 then
                stream_message(c, by, d.first, at, body)
            end
        else
            d.record = (d.record or "") .. body
            if whole then
                stream_message(c, by, d.first, at, d.record)
                d.record = nil
            end
        end
        d.first = at
    end
    d.buffer = cut(s, from, #s)
    if missing > 0 then
        c.streams[by], c.cut[by] = { lost = true }, true
        if c.smb2 then
            c.smb2.missed, c.smb2.credits = true, nil
        end
    end
end

-- ── InfiniBand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

local function halves(src, dst)
    return R.halves[src .. "|" .. dst] or {}
end

local function no_half(half)
    local list = R.halves[half.src .. "|" .. half.dst]
    for n, x in ipairs(list or {}) do
        if x == half then
            table.remove(list, n)
            break
        end
    end
end

-- The half connection of the opposite direction that a flow belongs to, where that can be told.
local function partner(src, dst, p, alone_will_do)
    local found = {}
    local candidates = halves(dst, src)
    local function only(list)
        return #list == 1 and list[1] or nil
    end
    if not p.request then
        for _, x in ipairs(candidates) do
            if R.may_acknowledge(x.connection.flow, p.psn) then
                found[#found + 1] = x
            end
        end
        return only(found)
    end
    if p.key then
        for _, x in ipairs(candidates) do
            if x.connection.memory[1][p.key] then
                found[#found + 1] = x
            end
        end
        if #found == 1 then
            return found[1]
        end
    end
    return alone_will_do and only(candidates) or nil
end

local function join(half, route, qp)
    no_half(half)
    half.connection.half = nil
    local place = { connection = half.connection, by = 2 }
    route.qps[qp] = place
    return place
end

local function new_flow(route, p)
    local src, dst = route.src, route.dst
    local half = partner(src, dst, p, true)
    if half then
        return join(half, route, p.qp)
    end
    local c = new_connection(p.transport)
    c.flow = R.ib_flow()
    local place = { connection = c, by = 1 }
    c.half = { connection = c, src = src, dst = dst }
    local name = route.name
    R.halves[name] = R.halves[name] or {}
    if #R.halves[name] < 64 then
        table.insert(R.halves[name], c.half)
    end
    route.qps[p.qp] = place
    return place
end

-- Looks again whether an unpaired flow belongs to another one.
local function try_pair(place, route, p)
    local c = place.connection
    c.tries = c.tries + 1
    local half = partner(route.src, route.dst, p, false)
    if not half or half == c.half then
        return place
    end
    no_half(c.half)
    local into = half.connection
    place = join(half, route, p.qp)
    into.flow.senders[2] = c.flow.senders[1]
    into.flow.mtu = into.flow.mtu or c.flow.mtu
    into.receive[2], into.cut[2] = c.receive[1], into.cut[2] or c.cut[1]
    for k, r in pairs(c.memory[1]) do
        into.memory[2][k] = r
    end
    if not into.protocol then
        into.protocol, into.smbd, into.smb2, into.rpc = c.protocol, c.smbd, c.smb2, c.rpc
        into.pending, into.by_exchange, into.outstanding = c.pending, c.by_exchange, c.outstanding
    elseif into.protocol == c.protocol and into.smbd and c.smbd then
        R.smbd_adopt(into.smbd, 2, c.smbd, 1)
    end
    into.missed = true
    return place
end

local CM_REQ, CM_REJ, CM_REP, CM_DREQ = 0x0010, 0x0012, 0x0013, 0x0015

local function private_of_rpc(s, at)
    if be32(s, at) == 0xf6ab0e18 and u8(s, at + 4) == 1 then
        return (u8(s, at + 7) + 1) * 1024
    end
    return nil
end

local function find_request(f)
    for n = #R.requests, 1, -1 do
        if f(R.requests[n]) then
            return R.requests[n]
        end
    end
    return nil
end

-- A management datagram of the communication manager (IBA volume 1, 12.6).
local function cm(at, src, dst, s, transport)
    if u8(s, 1) ~= 0x07 or #s < 24 + 8 then
        return
    end
    local kind, m = be16(s, 16), 24
    local local_id, remote_id = be32(s, m), be32(s, m + 4)
    if kind == CM_REQ and #s >= m + 140 then
        local qp = be24(s, m + 32)
        if find_request(function(r) return r.client == src and r.id == local_id and r.qp == qp end) then
            return
        end
        if #R.requests >= REQUESTS_MAX then
            table.remove(R.requests, 1)
        end
        local mtu = math.floor(u8(s, m + 50) / 16)
        local has_port = be32(s, m + 8) == 0 and u8(s, m + 12) == 1
        R.requests[#R.requests + 1] = {
            client = src, server = dst, id = local_id, qp = qp, psn = be24(s, m + 44), resources = u8(s, m + 35), mtu = mtu >= 1 and mtu <= 5 and 128 * 2 ^ mtu or nil,
            port = has_port and be16(s, m + 14) or 0, inline = private_of_rpc(s, m + 140 + 36), at = at,
        }
    elseif kind == CM_REP then
        local r = find_request(function(x) return x.client == dst and x.id == remote_id end)
        if not r or (r.answered and r.server_id == local_id) then
            return
        end
        r.answered, r.server_id = true, local_id
        local qp = be24(s, m + 12)
        local c = new_connection(transport)
        c.flow, c.client, c.handshake, c.ports = R.ib_flow(), 1, true, { r.port }
        c.flow.senders[1].next, c.flow.senders[2].next, c.flow.mtu = r.psn, be24(s, m + 20), r.mtu
        local resources = u8(s, m + 24)
        c.read_depth = { resources > 0 and resources or nil, r.resources > 0 and r.resources or nil }
        local inline = private_of_rpc(s, m + 36)
        c.inline = (r.inline and inline) and { r.inline, inline } or { 1024, 1024 }
        R.route(dst, src).qps[qp] = { connection = c, by = 1 }
        R.route(src, dst).qps[r.qp] = { connection = c, by = 2 }
        r.connection = c
    elseif kind == CM_REJ then
        local r = find_request(function(x) return (x.client == dst and x.id == remote_id) or (x.client == src and x.id == local_id) end)
        if r then
            r.answered = true
            R.report("CM-REJECT", r.client == dst and "server" or "client", at, string.format("RDMA-CM REQ to port %d was rejected", r.port))
        end
    elseif kind == CM_DREQ then
        local r = find_request(function(x)
            return (x.client == src and x.id == local_id and x.server_id == remote_id) or (x.client == dst and x.id == remote_id and x.server_id == local_id)
        end)
        if r and r.connection then
            r.connection.closed = r.connection.closed or at
        end
    end
end

-- An InfiniBand packet: its headers from its BTH on, its length on the wire up to its invariant CRC, and whether it is there to its end.
function R.on_ib(at, route, s, size, transport, ecn, whole)
    local p = R.ib_packet(s, size)
    p.transport = transport
    if p.opcode == 0x81 then
        R.tell({ what = "cnp", qp = p.qp })
        return R.report("RC-CNP", "network", at, "queue pair " .. R.hex(p.qp, 1) .. " was told to slow down")
    end
    if p.unknown then
        return R.report("BUG-RXE-4C6F86D", "unknown", at, "sent an opcode that does not exist: " .. R.hex(p.opcode, 2))
    end
    if p.short and whole then
        R.report("BUG-CVE-2026-46043", "unknown", at, "sent a packet shorter than its padding and ICRC")
    end
    if p.service == 3 or p.qp <= 1 then
        if p.payload_length > 4096 then
            R.report("BUG-CVE-2024-40992", "unknown", at, string.format("sent a datagram of %d bytes; no path MTU is larger than 4096", p.payload_length))
        end
        if p.qp <= 1 then
            cm(at, route.src, route.dst, p.payload, transport)
        end
        return
    end
    local place = route.qps[p.qp] or new_flow(route, p)
    local c = place.connection
    if c.half and c.tries < TRIES_MAX then
        place = try_pair(place, route, p)
        c = place.connection
    end
    R.connection_of_frame = c.id
    if ecn == 3 then
        R.report("RC-ECN", "network", at, "a packet was marked congestion experienced")
    end
    R.ib_flow_packet(c, at, place.by, p)
end

-- ── TCP ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local SERVICE = { [445] = true, [5445] = true, [2049] = true, [20049] = true, [111] = true, [139] = true }

-- A segment: addresses, ports, seq, ack, flags, window, bytes as far as captured, length on the wire.
function R.on_tcp(at, route, g)
    local ports = g.src_port * 65536 + g.dst_port
    local way = route.ports[ports]
    if not way then
        local from, to = route.src .. ":" .. g.src_port, route.dst .. ":" .. g.dst_port
        local key = from < to and from .. "|" .. to or to .. "|" .. from
        -- both ways lead to the same place, where the connection is
        R.tcps[key] = R.tcps[key] or {}
        way = { from = from, place = R.tcps[key] }
        route.ports[ports] = way
    end
    local from, c = way.from, way.place.connection
    if c and R.tcp_reopens(c.flow, c.from == from and 1 or 2, g.flags, g.seq) then
        c = nil
    end
    if not c then
        c = new_connection("tcp")
        c.flow, c.from, c.ports = R.tcp_flow(), from, { g.src_port, g.dst_port }
        c.handshake = has(g.flags, 2)
        R.begun_of_frame = c.handshake and "tcp"
        c.missed = not c.handshake
        if has(g.flags, 2) then
            c.client = has(g.flags, 16) and 2 or 1
        elseif SERVICE[g.dst_port] and not SERVICE[g.src_port] then
            c.client = 1
        elseif SERVICE[g.src_port] and not SERVICE[g.dst_port] then
            c.client = 2
        end
        way.place.connection = c
    end
    R.tcp_segment(c, at, c.from == from and 1 or 2, g)
end
