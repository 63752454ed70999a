-- Wireshark's side: takes frames apart as far as Wireshark did, feeds them to the analysis once, and shows what it says, every time
-- a frame is shown. What Wireshark leaves undecoded is decoded here.

local p = Proto("rdmascope", "rdmascope: storage over RDMA")
local claim = Proto("rdmascope_mpa", "MPA on a port of SMB or NFS")
-- has the fields of other protocols that are added here: whoever asks for those does not ask for ours
local lent = Proto("rdmascope_decoding", "What rdmascope decodes where Wireshark does not")

-- ── Fields ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local MAKE = {
    FT_NONE = function(f) return ProtoField.none(f.name, f.label) end,
    FT_PROTOCOL = function(f) return ProtoField.protocol(f.name, f.label) end,
    FT_STRING = function(f) return ProtoField.string(f.name, f.label) end,
    FT_BYTES = function(f) return ProtoField.bytes(f.name, f.label) end,
    FT_RELATIVE_TIME = function(f) return ProtoField.relative_time(f.name, f.label) end,
    FT_FRAMENUM = function(f) return ProtoField.framenum(f.name, f.label, base.NONE, f.answer and frametype.RESPONSE or frametype.REQUEST) end,
    FT_BOOLEAN = function(f) return ProtoField.bool(f.name, f.label, f.mask and f.width or base.NONE, nil, f.mask) end,
}
for _, bits in ipairs({ 8, 16, 24, 32, 64 }) do
    MAKE["FT_UINT" .. bits] = function(f)
        return ProtoField["uint" .. bits](f.name, f.label, f.base == "BASE_HEX" and base.HEX or base.DEC, f.values, f.mask)
    end
    MAKE["FT_INT" .. bits] = function(f)
        return ProtoField["int" .. bits](f.name, f.label, base.DEC)
    end
end

local field, of_proto, of_others = {}, {}, {}
for _, f in ipairs(R.fields) do
    if f.name ~= "rdmascope" then
        field[f.name] = MAKE[f.kind](f)
        local list = f.name:find("^rdmascope%.") and of_proto or of_others
        list[#list + 1] = field[f.name]
    end
end
p.fields, lent.fields = of_proto, of_others

-- An item of the expert information for each rule: Wireshark counts them.
local level = { error = expert.severity.ERROR, warn = expert.severity.WARN, note = expert.severity.NOTE }
local expert_of, experts = {}, {}
for id, row in pairs(R.rules) do
    local name = "rdmascope.rule." .. id:lower():gsub("-", "_")
    expert_of[id] = ProtoExpert.new(name, id .. ": " .. row.title, expert.group.PROTOCOL, level[row.severity])
    experts[#experts + 1] = expert_of[id]
end
p.experts = experts

-- What Wireshark found in a frame.
local function known(name)
    local ok, f = pcall(Field.new, name)
    return ok and f or function() end
end
local of = {
    number = known("frame.number"), bth = known("infiniband.bth"), udp = known("udp"), udp_length = known("udp.length"), ecn = known("ip.dsfield.ecn"),
    lrh = known("infiniband.lrh"), lrh_length = known("infiniband.lrh.pktlen"), grh = known("infiniband.grh"), grh_length = known("infiniband.grh.paylen"),
    length = known("tcp.len"), tcp = known("tcp"), tcp_head = known("tcp.hdr_len"), smb_direct = known("smb_direct"), smb2 = known("smb2"),
}

local function last(f)
    local all = { f() }
    return all[#all]
end

-- ── From a frame to the analysis ───────────────────────────────────────────────────────────────────────────────────────────

local byte, floor, sub = string.byte, math.floor, string.sub

-- The frame at hand: its bytes are read where they are wanted, as far as they were captured.
local FRAME, CAPTURED

-- What stands at `at` behind the BTH of the packet at hand.
function R.read(at, n)
    at = R.base + at
    n = math.min(n, CAPTURED - at)
    return n > 0 and FRAME:raw(at, n) or ""
end

local function cut_short(to, stop)
    if to > stop then
        R.report("CAPTURE-CUT", "capture", R.now, string.format("%d bytes of a packet were not captured", to - stop))
    end
end

local function ib(route, from, to, ecn)
    local size = math.min(to, CAPTURED) - from
    if size >= 16 then
        R.base = from
        cut_short(to, CAPTURED)
        R.on_ib(R.now, route, FRAME:raw(from, math.min(size, 64)), to - from, "ib", ecn, to <= CAPTURED)
    end
end

-- The table is the same one every time: nobody keeps it.
local SEGMENT = {}

local function tcp(route, from, to)
    local stop = math.min(to, CAPTURED)
    if stop - from < 20 then
        return
    end
    local p1, p2, p3, p4, s1, s2, s3, s4, a1, a2, a3, a4, offset, flags, w1, w2 = byte(FRAME:raw(from, 16), 1, 16)
    local start, g = from + floor(offset / 16) * 4, SEGMENT
    g.src_port, g.dst_port, g.seq = p1 * 256 + p2, p3 * 256 + p4, s1 * 16777216 + s2 * 65536 + s3 * 256 + s4
    g.ack, g.flags, g.window = a1 * 16777216 + a2 * 65536 + a3 * 256 + a4, flags, w1 * 256 + w2
    g.length = to > start and to - start or 0
    g.bytes = stop > start and FRAME:raw(start, stop - start) or ""
    R.base = nil
    cut_short(to, CAPTURED)
    R.on_tcp(R.now, route, g)
end

-- Ways whose addresses are known to be those that Wireshark found, by the bytes of the IP header and where it begins.
local routes

-- Addresses of the network: those that Wireshark shows are sometimes InfiniBand's own.
local function addresses(pinfo)
    local src, dst = tostring(pinfo.net_src), tostring(pinfo.net_dst)
    if src ~= "" and dst ~= "" then
        return src, dst
    end
    return tostring(pinfo.src), tostring(pinfo.dst)
end

-- UDP ports of tunnels.
local VXLAN, GENEVE = { [4789] = true, [8472] = true }, 6081

-- Whether a protocol of IP carries frames or datagrams of others: GRE, IP in IP, or UDP to these ports.
local function is_tunnel(protocol, s, at)
    if protocol == 17 then
        local port = R.be16(s, at + 2)
        return VXLAN[port] or port == GENEVE
    end
    return protocol == 47 or protocol == 4 or protocol == 41
end

-- What is in a tunnel that begins at `at` of the frame: kind, session, whether the mirror says that it cut the frame; where the inside
-- begins, and what it is. The kinds are those of `rdmascope.mirror`.
local function tunnel(protocol, at)
    if protocol == 4 or protocol == 41 then
        return "IP in IP", 0, false, at, "ip"
    end
    local s = at < CAPTURED and FRAME:raw(at, math.min(48, CAPTURED - at)) or ""
    local kinds = { [0x6558] = "ethernet", [0x0800] = "ip", [0x86dd] = "ip" }
    if protocol == 17 then
        if #s < 16 then
            return nil
        elseif R.be16(s, 2) == GENEVE then
            return "GENEVE", R.be24(s, 12), false, at + 16 + R.u8(s, 8) % 64 * 4, kinds[R.be16(s, 10)]
        end
        return "VXLAN", R.be24(s, 12), false, at + 16, "ethernet"
    end
    local flags, kind, n, key, numbered = R.be16(s, 0), R.be16(s, 2), 4, 0, false
    if not kind or flags % 8 ~= 0 or R.has(flags, 0x4000) then
        return nil
    end
    if R.has(flags, 0x8000) then
        n = n + 4
    end
    if R.has(flags, 0x2000) then
        key, n = R.be32(s, n) or 0, n + 4
    end
    if R.has(flags, 0x1000) then
        numbered, n = true, n + 4
    end
    local session = R.be16(s, n + 2)
    if kind == 0x88be and not numbered then
        return "ERSPAN I", 0, false, at + n, "ethernet"
    elseif kind == 0x88be and session then
        return "ERSPAN II", session % 1024, R.has(session, 0x400), at + n + 8, "ethernet"
    elseif kind == 0x22eb and R.be16(s, n + 10) then
        local last_word = R.be16(s, n + 10)
        local frame_type = floor(last_word / 1024) % 32
        local inside = frame_type == 0 and "ethernet" or frame_type == 2 and "ip" or nil
        return "ERSPAN III", session % 1024, R.has(session, 0x400), at + n + 12 + last_word % 2 * 8, inside
    end
    return "GRE", key, false, at + n, kinds[kind]
end

-- The IP header at `at`: protocol, where what it carries begins and ends, congestion bits, route. Nothing where it is not the one that
-- Wireshark found: what is peeled has to begin with the same address. What a tunnel is in has no route: Wireshark's addresses are those inside.
local function ip_at(s, at, pinfo)
    local version = byte(s, at + 1)
    if not version or #s < at + 20 then
        return nil
    end
    if version >= 0x40 and version < 0x50 then
        local tos, l1, l2, _, _, f1, f2, _, protocol = byte(s, at + 2, at + 10)
        if f1 % 64 ~= 0 or f2 ~= 0 then
            return nil
        end
        local pair, start, stop = sub(s, at + 13, at + 20), at + version % 16 * 4, l1 * 256 + l2
        local route = routes[at][pair]
        if is_tunnel(protocol, s, start) then
            return protocol, start, at + stop, tos % 4, nil
        end
        if not route then
            local src, dst = addresses(pinfo)
            if string.format("%d.%d.%d.%d", byte(pair, 1, 4)) ~= src then
                return nil
            end
            route = R.route(src, dst)
            routes[at][pair] = route
        end
        return protocol, start, stop > 0 and at + stop or FRAME:reported_len(), tos % 4, route
    elseif version >= 0x60 and version < 0x70 and #s >= at + 40 then
        local pair = sub(s, at + 9, at + 40)
        local route = routes[at][pair]
        if is_tunnel(byte(s, at + 7), s, at + 40) then
            return byte(s, at + 7), at + 40, at + 40 + R.be16(s, at + 4), floor(byte(s, at + 2) / 16) % 4, nil
        end
        if not route then
            local src, dst = addresses(pinfo)
            if not src:find(":", 1, true) then
                return nil
            end
            route = R.route(src, dst)
            routes[at][pair] = route
        end
        return byte(s, at + 7), at + 40, at + 40 + R.be16(s, at + 4), floor(byte(s, at + 2) / 16) % 4, route
    end
    return nil
end

-- Where TCP or UDP begins in the plain case, IP in Ethernet or in a cooked capture: without Wireshark's fields, because in the first of
-- two passes there are none. Returns what `ip_at` does.
local function peel(s, pinfo)
    local at = 12
    local kind = R.be16(s, at)
    while (kind == 0x8100 or kind == 0x88a8 or kind == 0x9100) and at < 30 do
        at = at + 4
        kind = R.be16(s, at)
    end
    if kind == 0x0800 or kind == 0x86dd then
        local protocol, start, stop, ecn, route = ip_at(s, at + 2, pinfo)
        if protocol then
            return protocol, start, stop, ecn, route
        end
    end
    for _, try in ipairs({ { R.be16(s, 14), 16 }, { R.be16(s, 0), 20 }, { 0x0800, 0 }, { 0x86dd, 0 } }) do
        if try[1] == 0x0800 or try[1] == 0x86dd then
            local protocol, start, stop, ecn, route = ip_at(s, try[2], pinfo)
            if protocol then
                return protocol, start, stop, ecn, route
            end
        end
    end
    return nil
end

-- What is in tunnels inside of tunnels, to a depth; the outermost is the mirror's, which is noted. Returns what `ip_at` does.
local TUNNELS_MAX = 4

local function unwrap(number, protocol, start, stop, ecn, pinfo)
    local mirror, route
    for _ = 1, TUNNELS_MAX do
        local kind, session, is_cut, at, inside = tunnel(protocol, start)
        if not kind then
            break
        end
        mirror = mirror or { kind = kind, session = session, truncated = false }
        mirror.truncated = mirror.truncated or is_cut
        R.mirror_at[number] = mirror
        if not inside or at >= CAPTURED then
            break
        end
        local s = FRAME:raw(at, math.min(84, CAPTURED - at))
        if inside == "ip" then
            protocol, start, stop, ecn, route = ip_at(s, 0, pinfo)
        else
            protocol, start, stop, ecn, route = peel(s, pinfo)
        end
        if not protocol then
            break
        end
        start, stop = start + at, stop + at
        if route then
            mirror.truncated = mirror.truncated or (stop > CAPTURED and FRAME:reported_len() == CAPTURED)
            return protocol, start, stop, ecn, route
        end
    end
    return nil
end

-- The same for everything else (native InfiniBand, fragments), from what Wireshark found.
local function by_fields(pinfo)
    local bth = last(of.bth)
    if bth then
        local from, to = bth.offset, CAPTURED
        local udp, lrh, grh, ecn = last(of.udp), last(of.lrh_length), last(of.grh_length), last(of.ecn)
        if udp and udp.offset < from then
            to = udp.offset + last(of.udp_length).value
        elseif lrh then
            to = last(of.lrh).offset + (lrh.value % 2048) * 4
        elseif grh then
            to = last(of.grh).offset + 40 + grh.value
        end
        return ib(R.route(addresses(pinfo)), from, to, ecn and ecn.value)
    end
    local segment, length, head = last(of.tcp), last(of.length), last(of.tcp_head)
    if segment and length and head then
        tcp(R.route(addresses(pinfo)), segment.offset, segment.offset + head.value + length.value)
    end
end

-- Pause frames, of all priorities (IEEE 802.3 annex 31B) or of some (IEEE 802.1Qbb).
local function pause(s)
    local opcode, priorities, quanta = R.be16(s, 14), 0xff, 0
    if opcode == 0x0001 then
        quanta = R.be16(s, 16) or 0
    elseif opcode == 0x0101 and #s >= 34 then
        local vector = R.u8(s, 17)
        priorities = vector
        for n = 0, 7 do
            if R.has(vector, 2 ^ n) then
                quanta = math.max(quanta, R.be16(s, 18 + 2 * n))
            end
        end
    end
    if quanta > 0 then
        R.report("RC-PFC", "network", R.now, string.format("asked to pause priorities %s for %d quanta", R.hex(priorities, 2), quanta))
    end
end

-- Analyzes a frame that is seen for the first time. Returns what is said of it besides numbers.
local function analyze(tvb, pinfo, number)
    local facts = R.frame
    if #facts > 0 then
        facts = {}
        R.frame = facts
    end
    FRAME, CAPTURED = tvb, tvb:len()
    R.now = { frame = number, time = floor(pinfo.rel_ts * 1e9 + 0.5) }
    R.connection_of_frame, R.exchange_of_frame, R.moved_of_frame, R.request_of_frame, R.key_of_frame, R.begun_of_frame = nil, 0, 0, nil, nil, nil
    R.more_of_frame = nil
    local s = CAPTURED > 0 and tvb:raw(0, CAPTURED < 64 and CAPTURED or 64) or ""
    local protocol, start, stop, ecn, route
    if CAPTURED >= 34 then
        protocol, start, stop, ecn, route = peel(s, pinfo)
    end
    if protocol and not route then
        protocol, start, stop, ecn, route = unwrap(number, protocol, start, stop, ecn, pinfo)
    end
    if protocol == 17 and start + 8 <= CAPTURED then
        local p1, p2, l1, l2
        if start + 6 <= 64 then
            p1, p2, l1, l2 = byte(s, start + 3, start + 6)
        else
            p1, p2, l1, l2 = byte(tvb:raw(start + 2, 4), 1, 4)
        end
        if p1 == 0x12 and p2 == 0xb7 then
            ib(route, start + 8, start + l1 * 256 + l2, ecn)
        else
            by_fields(pinfo)
        end
    elseif protocol == 6 then
        tcp(route, start, stop)
    elseif not protocol and R.be16(s, 12) == 0x8808 then
        pause(s)
    elseif protocol ~= 1 and protocol ~= 58 then
        by_fields(pinfo)
    end
    FRAME = nil
    local exchange = R.exchange_of_frame
    R.connection_at[number], R.key_at[number] = R.connection_of_frame, R.key_of_frame
    if exchange > 0 then
        R.exchange_at[number] = exchange
        if R.moved_of_frame > 0 then
            R.moved_at[number] = R.moved_of_frame
        end
        if R.request_of_frame then
            R.request_at[number], R.time_at[number] = R.request_of_frame, R.time_of_frame
        end
        R.more_at[number] = R.more_of_frame
    end
    if #facts > 0 then
        R.facts[number] = facts
        return facts
    end
    return nil
end

-- Messages that Wireshark decoded itself need not be kept. Returns what is left.
local function forget(facts, number, stock, stock2)
    for _, fact in ipairs(facts) do
        if stock and (fact.what == "smbd" or fact.what == "copy") and not fact.keep then
            fact.bytes = nil
        end
        if stock2 and fact.what == "smbd" and not fact.suspect and not fact.keep then
            fact.upper = nil
        end
    end
    local fact = facts[1]
    if #facts == 1 and fact.what == "smbd" and not fact.bytes and not fact.upper and fact.stall == 0 then
        -- two numbers
        R.facts[number], R.client_at[number], R.server_at[number] = nil, fact.client, fact.server
        return nil
    end
    return facts
end

-- ── What is shown ──────────────────────────────────────────────────────────────────────────────────────────────────────────

local function duration(ns)
    return NSTime.new(math.floor(ns / 1000000000), ns % 1000000000)
end

local NONE = {}

local function add(tree, name, value)
    local item = value == nil and tree:add(field[name]) or tree:add(field[name], value)
    item:set_generated()
    return item
end

local function show_exchange(t, id, moved, request, time)
    add(t, "rdmascope.exchange", UInt64.new(id % 4294967296, floor(id / 4294967296)))
    if moved then
        add(t, "rdmascope.exchange.rdma_bytes", UInt64.new(moved % 4294967296, floor(moved / 4294967296)))
    end
    if request then
        add(t, "rdmascope.exchange.request", request)
        add(t, "rdmascope.exchange.time", duration(time))
    end
end

-- A message's bytes where they stand in the frame, else as a data source of their own.
local function source(tvb, s, at, name)
    if at and at + #s <= tvb:len() and tvb:raw(at, #s) == s then
        return tvb:range(at, #s):tvb()
    end
    return ByteArray.new(s, true):tvb(name)
end

local REQUEST = {
    { "smb_direct.version.min", 0, 2 }, { "smb_direct.version.max", 2, 2 }, { "rdmascope.smb_direct.reserved", 4, 2 }, { "smb_direct.credits.requested", 6, 2 },
    { "smb_direct.preferred_send_size", 8, 4 }, { "smb_direct.max_receive_size", 12, 4 }, { "smb_direct.max_fragmented_size", 16, 4 },
}
local RESPONSE = {
    { "smb_direct.version.min", 0, 2 }, { "smb_direct.version.max", 2, 2 }, { "smb_direct.version.negotiated", 4, 2 }, { "rdmascope.smb_direct.reserved", 6, 2 },
    { "smb_direct.credits.requested", 8, 2 }, { "smb_direct.credits.granted", 10, 2 }, { "smb_direct.status", 12, 4 },
    { "smb_direct.max_read_write_size", 16, 4 }, { "smb_direct.preferred_send_size", 20, 4 }, { "smb_direct.max_receive_size", 24, 4 },
    { "smb_direct.max_fragmented_size", 28, 4 },
}
local DATA = {
    { "smb_direct.credits.requested", 0, 2 }, { "smb_direct.credits.granted", 2, 2 }, { "smb_direct.flags", 4, 2 },
    { "smb_direct.flags.response_requested", 4, 2 }, { "rdmascope.smb_direct.reserved", 6, 2 }, { "smb_direct.remaining_length", 8, 4 },
    { "smb_direct.data_offset", 12, 4 }, { "smb_direct.data_length", 16, 4 },
}
local LAYOUT = { request = { "smb_direct.negotiate_request", REQUEST, "NegotiateRequest" }, response = { "smb_direct.negotiate_response", RESPONSE, "NegotiateResponse" },
    data = { "smb_direct.data_message", DATA, "DataMessage" } }

local function show_layout(t, b, layout)
    for _, row in ipairs(layout) do
        if row[2] + row[3] <= b:len() then
            t:add_le(field[row[1]], b:range(row[2], row[3]))
        end
    end
end

-- An SMB Direct message that Wireshark did not take for one.
local function show_smb_direct(fact, tvb, pinfo, root)
    local b = source(tvb, fact.bytes, fact.from, "SMB Direct message")
    if b:len() == 0 then
        return
    end
    local layout = LAYOUT[fact.kind or "data"]
    local t = root:add(field["smb_direct"], b:range())
    local m = t:add(field[layout[1]], b:range(0, math.min(b:len(), 32)))
    show_layout(m, b, layout[2])
    if b:len() >= 20 and layout[2] == DATA then
        local from, length = R.le32(fact.bytes, 12), R.le32(fact.bytes, 16)
        if length > 0 and from >= 20 and from < b:len() then
            t:add(field["rdmascope.smb_direct.data_message.data"], b:range(from, math.min(length, b:len() - from)))
        end
    end
    pinfo.cols.protocol:set("SMBDirect")
    pinfo.cols.info:set(layout[3])
end

-- A malformed message is an exception that leaves through Lua, which does not learn of that and, up to 5.3, bears it two hundred times.
local escaped, ESCAPED_MAX = 0, 30

local function show_smb2(s, pinfo, root, name)
    if escaped >= ESCAPED_MAX then
        return
    end
    local b = ByteArray.new(s, true):tvb(name)
    escaped = escaped + 1
    DissectorTable.try_heuristics("smb_direct", b, pinfo, root)
    escaped = escaped - 1
end

-- SMB2_RDMA_TRANSFORM, [MS-SMB2] 2.2.43, with what is in it.
local function show_transform(fact, root)
    local t = R.transform_of(fact.blob)
    if not t then
        return
    end
    local b = ByteArray.new(fact.blob, true):tvb("RDMA transform")
    local top = root:add(field["rdmascope.smb2.rdma_transform"], b:range())
    local names = {
        { "rdmascope.smb2.rdma_transform.descriptor_offset", 0, 2 }, { "rdmascope.smb2.rdma_transform.descriptor_length", 2, 2 }, { "rdmascope.smb2.rdma_transform.channel", 4, 4 },
        { "rdmascope.smb2.rdma_transform.transform_count", 8, 2 }, { "rdmascope.smb2.rdma_transform.reserved1", 10, 2 }, { "rdmascope.smb2.rdma_transform.reserved2", 12, 4 },
    }
    show_layout(top, b, names)
    for _, x in ipairs(t.cryptos) do
        local c = top:add(field["rdmascope.smb2.rdma_crypto_transform"], b:range(x.at, x.length))
        c:add_le(field["rdmascope.smb2.rdma_crypto_transform.type"], b:range(x.at, 2))
        c:add_le(field["rdmascope.smb2.rdma_crypto_transform.signature_length"], b:range(x.at + 2, 2))
        c:add_le(field["rdmascope.smb2.rdma_crypto_transform.nonce_length"], b:range(x.at + 4, 2))
        c:add_le(field["rdmascope.smb2.rdma_crypto_transform.reserved"], b:range(x.at + 6, 2))
        if x.signature > 0 then
            c:add(field["rdmascope.smb2.rdma_crypto_transform.signature"], b:range(x.at + 8, x.signature))
        end
        if x.nonce > 0 then
            c:add(field["rdmascope.smb2.rdma_crypto_transform.nonce"], b:range(x.at + 8 + x.signature, x.nonce))
        end
    end
    for n = 0, math.floor(#t.list / 16) - 1 do
        local at = t.offset + 16 * n
        local d = top:add(field["rdmascope.smb2.rdma_v1_descriptor"], b:range(at, 16))
        d:add_le(field["smb2.buffer_descriptor.offset"], b:range(at, 8))
        d:add_le(field["smb2.buffer_descriptor.token"], b:range(at + 8, 4))
        d:add_le(field["smb2.buffer_descriptor.length"], b:range(at + 12, 4))
    end
end

local function show_mpa(fact, t)
    local c = fact.control
    if c then
        local m = t:add(field["iwarp_mpa.enhanced"])
        m:append_text(string.format(", revision %d", fact.revision))
        m:set_generated()
        add(m, "iwarp_mpa.enhanced.a", c.first)
        add(m, "iwarp_mpa.enhanced.b", c.first)
        add(m, "iwarp_mpa.enhanced.ird", c.first)
        add(m, "iwarp_mpa.enhanced.c", c.second)
        add(m, "rdmascope.iwarp_mpa.enhanced.d", c.second)
        add(m, "iwarp_mpa.enhanced.ord", c.second)
    end
    if fact.legacy then
        local m = t:add(field["iwarp_mpa.legacy"])
        m:set_generated()
        add(m, "iwarp_mpa.legacy.ird", fact.ird)
        add(m, "iwarp_mpa.legacy.ord", fact.ord)
        add(m, "rdmascope.iwarp_mpa.legacy.little_endian", fact.little or false)
    end
end

local function show_finding(fact, t)
    local row = R.rules[fact.rule]
    local f = t:add(field["rdmascope.finding"])
    f:set_text(fact.rule .. ": " .. row.title)
    f:set_generated()
    add(f, "rdmascope.finding.id", fact.rule)
    add(f, "rdmascope.finding.severity", fact.severity)
    add(f, "rdmascope.finding.section", row.spec)
    add(f, "rdmascope.finding.by", fact.by)
    add(f, "rdmascope.finding.text", fact.text)
    f:add_proto_expert_info(expert_of[fact.rule], string.format("%s: the %s %s. %s", fact.rule, fact.by, fact.text, row.spec))
end

-- Whether somebody looks at our fields in this frame, in a filter, a column or a tree: "all", "protocol" where it may be that alone, or nil.
local ours, is_field_wanted

local function wanted(root)
    ours = ours or Dissector.get("rdmascope")
    if not root:referenced(ours) then
        return nil
    elseif root.visible then
        return "all"
    end
    -- in Wireshark's window that changes with filters and columns; elsewhere it stays as it is
    if is_field_wanted == nil or gui_enabled() then
        is_field_wanted = false
        for _, f in ipairs(of_proto) do
            is_field_wanted = is_field_wanted or root:referenced(f)
        end
    end
    return is_field_wanted and "all" or "protocol"
end

local function credits(t, client, server)
    if client then
        add(t, "rdmascope.credits.client", Int64.new(client))
    end
    if server then
        add(t, "rdmascope.credits.server", Int64.new(server))
    end
end

local function show(number, facts, tvb, pinfo, root)
    local messages
    if facts then
        -- in the first of two passes there are no fields, and nobody looks; in the second they may be too few, but there is a column
        local primed = of.number() ~= nil
        local looked_at = primed or pinfo.visited
        local stock, stock2 = of.smb_direct() ~= nil, of.smb2() ~= nil
        if looked_at and not primed then
            local column = tostring(pinfo.cols.protocol)
            stock2 = stock2 or column == "SMB2"
            stock = stock or stock2 or column == "SMBDirect"
        end
        if primed then
            facts = forget(facts, number, stock, stock2) or {}
        end
        for _, fact in ipairs(facts) do
            if looked_at and not stock and fact.bytes and (fact.what == "smbd" or fact.what == "copy") then
                show_smb_direct(fact, tvb, pinfo, root)
            elseif fact.what == "transform" then
                show_transform(fact, root)
            elseif fact.what == "cnp" then
                pinfo.cols.info:set("CNP: slow down QP=" .. R.hex(fact.qp, 6))
            end
            local upper = looked_at and fact.what == "smbd" and (fact.suspect or not stock2) and fact.upper
            -- of what was not captured whole, Wireshark shows what it can by itself
            if upper and #upper.bytes >= upper.wire then
                messages = messages or {}
                messages[#messages + 1] = fact
            end
        end
    end
    local has_facts = facts and #facts > 0
    local who = wanted(root)
    if not has_facts and not who then
        return
    end
    local t = root:add(p)
    t:set_generated()
    if not has_facts and who ~= "all" then
        return
    end
    local connection, exchange, key = R.connection_at[number], R.exchange_at[number], R.key_at[number]
    if connection then
        add(t, "rdmascope.connection", connection)
    end
    credits(t, R.client_at[number], R.server_at[number])
    if key then
        add(t, "rdmascope.key.state", key)
    end
    local mirror = R.mirror_at[number]
    if mirror then
        add(t, "rdmascope.mirror", mirror.kind)
        add(t, "rdmascope.mirror.session", mirror.session)
        add(t, "rdmascope.mirror.truncated", mirror.truncated)
    end
    for _, fact in ipairs(facts or NONE) do
        if fact.what == "smbd" then
            credits(t, fact.client, fact.server)
            if fact.stall > 0 then
                add(t, "rdmascope.stall", duration(fact.stall))
            end
        elseif fact.what == "key" then
            add(t, "rdmascope.key.state", fact.state)
        elseif fact.what == "retransmission" then
            add(t, "rdmascope.retransmission")
        elseif fact.what == "early" then
            add(t, "rdmascope.early")
        elseif fact.what == "mpa" then
            show_mpa(fact, t)
        elseif fact.what == "cnp" then
            add(t, "rdmascope.cnp", fact.qp)
        end
    end
    if exchange then
        show_exchange(t, exchange, R.moved_at[number], R.request_at[number], R.time_at[number])
        for _, e in ipairs(R.more_at[number] or NONE) do
            show_exchange(t, e.id, e.moved > 0 and e.moved, e.request, e.time)
        end
    end
    if R.reply_at[number] then
        add(t, "rdmascope.exchange.reply", R.reply_at[number])
    end
    for _, fact in ipairs(facts or NONE) do
        if fact.what == "finding" then
            show_finding(fact, t)
        end
    end
    -- a malformed message is an exception that ends the frame: it comes last
    for _, fact in ipairs(messages or NONE) do
        show_smb2(fact.upper.bytes, pinfo, root, fact.suspect and "SMB2 message without copies and gaps" or "SMB2 message")
    end
end

local function reset()
    R.reset()
    routes = setmetatable({}, {
        __index = function(t, at)
            t[at] = {}
            return t[at]
        end,
    })
end
p.init = reset
reset()

-- TCP connections that carry MPA, by their two ports, since a frame. Two connections of the same ports may be taken for one: then whoever
-- owns the port is asked second in place of first.
local function claimed(pinfo)
    return R.claimed[pinfo.src_port * 65536 + pinfo.dst_port]
end

local function claim_it(pinfo)
    local src, dst, number = pinfo.src_port, pinfo.dst_port, pinfo.number
    R.claimed[src * 65536 + dst], R.claimed[dst * 65536 + src] = number, number
end

local come_back

function p.dissector(tvb, pinfo, root)
    local facts
    come_back()
    local number = pinfo.number
    if number <= R.now.frame or pinfo.visited then
        facts = R.facts[number]
    else
        facts = analyze(tvb, pinfo, number)
        if R.begun_of_frame and (pinfo.src_port == 445 or pinfo.dst_port == 445) then
            pinfo.conversation = claim
            if R.begun_of_frame == "mpa" and not claimed(pinfo) then
                claim_it(pinfo)
            end
        end
    end
    if facts or R.connection_at[number] or R.exchange_at[number] or R.mirror_at[number] then
        show(number, facts, tvb, pinfo, root)
    end
end

register_postdissector(p)

-- ── Ports of SMB and NFS that carry MPA ────────────────────────────────────────────────────────────────────────────────────

-- Wireshark's own MPA is found by TCP's heuristics, which come last, and cannot be called from here: it wants to know more of TCP than a plugin
-- can tell it. So whoever owns the port has to step aside, and cannot be called from here either: NetBIOS wants the same, and an exception of
-- Artemis's would leave through Lua, which bears that only so often. TCP asks the conversation's dissector, then the owner of the lower port, then
-- that of the higher one. 445 is NetBIOS's: there a conversation is ours from its SYN on, and for a frame with MPA the owner leaves the table until
-- the frame is done. 5445 is Artemis's: there we are the owner, and a frame that is not MPA finds Artemis at the other port.
local ports, changes = DissectorTable.get("tcp.port"), {}
local owners = {}
for _, port in ipairs({ 445, 5445, 20049 }) do
    owners[port] = ports:get_dissector(port)
end

-- Until the frame is done, `port` is `to`'s in place of `from`'s; either may be nil.
local function change(port, from, to)
    for _, done in ipairs(changes) do
        if done.port == port then
            return
        end
    end
    if from then
        ports:remove(port, from)
    end
    if to then
        ports:add(port, to)
    end
    changes[#changes + 1] = { port = port, from = from, to = to }
end

function come_back()
    for n = #changes, 1, -1 do
        local done = changes[n]
        changes[n] = nil
        if done.to then
            ports:remove(done.port, done.to)
        end
        if done.from then
            ports:add(done.port, done.from)
        end
    end
end

function claim.dissector(tvb, pinfo)
    local since, src, dst, number = claimed(pinfo), pinfo.src_port, pinfo.dst_port, pinfo.number
    if not since and tvb:len() >= 16 and R.mpa_opening(tvb:raw(0, math.min(tvb:len(), 20))) ~= "other" then
        claim_it(pinfo)
        since = number
    end
    local is_mpa, port = since and number >= since, owners[dst] and dst or src
    local owner, other = owners[port], src + dst - port
    if port == 445 and is_mpa then
        change(port, owner, nil)
    elseif port ~= 445 and owner and not is_mpa and other > port then
        change(other, ports:get_dissector(other), owner)
    end
    return 0
end

for _, port in ipairs({ 5445, 20049 }) do
    ports:add(port, claim)
end

-- ── Explanations ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Text without the ends of lines inside of paragraphs: a window breaks lines where it wants.
local function flowing(text)
    local out = {}
    for line in (text .. "\n"):gmatch("(.-)\n") do
        local before = out[#out]
        if before and before:find("^  ") and line:find("^  +[^%s%-]") then
            out[#out] = before .. line:gsub("^%s+", " ")
        else
            out[#out + 1] = line
        end
    end
    return table.concat(out, "\n")
end

local function explain(id)
    id = id:upper():gsub("%s", "")
    local row = R.rules[id]
    TextWindow.new("rdmascope explain " .. id):set(row and flowing(row.explain) or ("There is no rule " .. id .. ": Tools, rdmascope, All rules lists them."))
end

-- Every finding of the capture, then what each of their rules says.
local function all_findings()
    local frames, lines, rules, told = {}, {}, {}, {}
    for number in pairs(R.facts) do
        frames[#frames + 1] = number
    end
    table.sort(frames)
    for _, number in ipairs(frames) do
        for _, fact in ipairs(R.facts[number]) do
            if fact.what == "finding" then
                lines[#lines + 1] = string.format("frame %-8d %-6s %s\n    the %s %s", number, fact.severity, fact.rule, fact.by, fact.text)
                if not told[fact.rule] then
                    told[fact.rule] = true
                    rules[#rules + 1] = flowing(R.rules[fact.rule].explain)
                end
            end
        end
    end
    if #lines == 0 then
        return "Nothing was found. Rules over whole connections are in the report: rdmascope analyze."
    end
    return table.concat(lines, "\n") .. "\n\n" .. table.concat(rules, "\n\n")
end

if gui_enabled() then
    register_menu("rdmascope/Explain a finding...", function()
        new_dialog("Explain a finding", function(id)
            explain(id)
        end, "Rule, as in rdmascope.finding.id")
    end, MENU_TOOLS_UNSORTED)
    register_menu("rdmascope/Findings of this capture", function()
        TextWindow.new("rdmascope findings"):set(all_findings())
    end, MENU_TOOLS_UNSORTED)
    register_menu("rdmascope/All rules", function()
        local ids = {}
        for id, row in pairs(R.rules) do
            ids[#ids + 1] = string.format("%-32s %-6s %s", id, row.severity, row.title)
        end
        table.sort(ids)
        TextWindow.new("rdmascope rules"):set(table.concat(ids, "\n"))
    end, MENU_TOOLS_UNSORTED)
    -- from Wireshark 4.2 on
    if register_packet_menu then
        register_packet_menu("rdmascope/Explain this finding", function(...)
            for _, f in ipairs({ ... }) do
                if f.name == "rdmascope.finding.id" then
                    explain(tostring(f.value))
                end
            end
        end, "rdmascope.finding.id")
    end
end
