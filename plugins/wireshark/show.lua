-- Wireshark's side: takes frames apart as far as Wireshark did, feeds them to the analysis once, and shows what it says, every time
-- a frame is shown. What Wireshark leaves undecoded is decoded here.

local p = Proto("rdmascope", "rdmascope: storage over RDMA")
local claim = Proto("rdmascope_mpa", "MPA on a port of SMB or NFS")

-- ── Fields ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local MAKE = {
    FT_NONE = function(f) return ProtoField.none(f.name, f.label) end,
    FT_PROTOCOL = function(f) return ProtoField.protocol(f.name, f.label) end,
    FT_STRING = function(f) return ProtoField.string(f.name, f.label) end,
    FT_BYTES = function(f) return ProtoField.bytes(f.name, f.label) end,
    FT_RELATIVE_TIME = function(f) return ProtoField.relative_time(f.name, f.label) end,
    FT_FRAMENUM = function(f) return ProtoField.framenum(f.name, f.label, base.NONE, f.answer and frametype.RESPONSE or frametype.REQUEST) end,
    FT_BOOLEAN = function(f) return ProtoField.bool(f.name, f.label, f.width, nil, f.mask) end,
}
for _, bits in ipairs({ 8, 16, 24, 32, 64 }) do
    MAKE["FT_UINT" .. bits] = function(f)
        return ProtoField["uint" .. bits](f.name, f.label, f.base == "BASE_HEX" and base.HEX or base.DEC, f.values, f.mask)
    end
    MAKE["FT_INT" .. bits] = function(f)
        return ProtoField["int" .. bits](f.name, f.label, base.DEC)
    end
end

local field, of_proto = {}, {}
for _, f in ipairs(R.fields) do
    if f.name ~= "rdmascope" then
        field[f.name] = MAKE[f.kind](f)
        of_proto[#of_proto + 1] = field[f.name]
    end
end
p.fields = of_proto

local severity = {
    error = ProtoExpert.new("rdmascope.expert.error", "A rule is broken", expert.group.PROTOCOL, expert.severity.ERROR),
    warn = ProtoExpert.new("rdmascope.expert.warn", "Trouble", expert.group.PROTOCOL, expert.severity.WARN),
    note = ProtoExpert.new("rdmascope.expert.note", "Worth knowing", expert.group.PROTOCOL, expert.severity.NOTE),
}
p.experts = { severity.error, severity.warn, severity.note }

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

-- The bytes of a frame from `from` up to `to`, as far as they were captured.
local function bytes_of(tvb, from, to)
    local n = math.min(to, tvb:len()) - from
    return n > 0 and tvb:raw(from, n) or ""
end

local function ip_from(tvb, at, src)
    local version = math.floor(tvb:range(at, 1):uint() / 16)
    if version == 4 and at + 20 <= tvb:len() then
        local s = tvb:raw(at, 20)
        local a, b, c, d = string.byte(s, 13, 16)
        if string.format("%d.%d.%d.%d", a, b, c, d) ~= src or R.be16(s, 6) % 16384 ~= 0 then
            return nil
        end
        local stop = R.be16(s, 2)
        return { protocol = R.u8(s, 9), at = at + R.u8(s, 0) % 16 * 4, stop = stop > 0 and at + stop or tvb:reported_len(), ecn = R.u8(s, 1) % 4 }
    elseif version == 6 and at + 40 <= tvb:len() and src:find(":", 1, true) then
        local s = tvb:raw(at, 8)
        return { protocol = R.u8(s, 6), at = at + 40, stop = at + 40 + R.be16(s, 4), ecn = math.floor(R.u8(s, 1) / 16) % 4 }
    end
    return nil
end

-- Where TCP or UDP begins in the plain case, IP in Ethernet or in a cooked capture: without Wireshark's fields, because in the first of
-- two passes there are none. What is peeled has to begin with the address that Wireshark found.
local function peel(tvb, src)
    if tvb:len() < 34 then
        return nil
    end
    local head = tvb:raw(0, math.min(tvb:len(), 40))
    local at = 12
    local kind = R.be16(head, at)
    while (kind == 0x8100 or kind == 0x88a8 or kind == 0x9100) and at < 30 do
        at = at + 4
        kind = R.be16(head, at)
    end
    for _, try in ipairs({ { kind, at + 2 }, { R.be16(head, 14), 16 }, { R.be16(head, 0), 20 }, { 0x0800, 0 }, { 0x86dd, 0 } }) do
        if try[1] == 0x0800 or try[1] == 0x86dd then
            local ip = ip_from(tvb, try[2], src)
            if ip then
                return ip
            end
        end
    end
    return nil
end

-- Addresses of the network: those that Wireshark shows are sometimes InfiniBand's own.
local function addresses(pinfo)
    local src, dst = tostring(pinfo.net_src), tostring(pinfo.net_dst)
    if src ~= "" and dst ~= "" then
        return src, dst
    end
    return tostring(pinfo.src), tostring(pinfo.dst)
end

local function ib(tvb, src, dst, from, to, ecn)
    local s = bytes_of(tvb, from, to)
    if #s >= 16 then
        R.on_ib(R.now, src, dst, s, "ib", ecn)
        R.frame.base = from
    end
end

local function tcp(tvb, src, dst, from, to)
    local s = bytes_of(tvb, from, from + 20)
    if #s < 20 then
        return
    end
    local head = math.floor(R.u8(s, 12) / 16) * 4
    R.on_tcp(R.now, src, dst, {
        src_port = R.be16(s, 0), dst_port = R.be16(s, 2), seq = R.be32(s, 4), ack = R.be32(s, 8), flags = R.u8(s, 13), window = R.be16(s, 14),
        length = math.max(to - from - head, 0), bytes = bytes_of(tvb, from + head, to),
    })
end

-- The same for everything else (tunnels, native InfiniBand, fragments), from what Wireshark found.
local function by_fields(tvb, src, dst)
    local bth = last(of.bth)
    if bth then
        local from, to = bth.offset, tvb:len()
        local udp, lrh, grh, ecn = last(of.udp), last(of.lrh_length), last(of.grh_length), last(of.ecn)
        if udp and udp.offset < from then
            to = udp.offset + last(of.udp_length).value
        elseif lrh then
            to = last(of.lrh).offset + (lrh.value % 2048) * 4
        elseif grh then
            to = last(of.grh).offset + 40 + grh.value
        end
        return ib(tvb, src, dst, from, to, ecn and ecn.value)
    end
    local segment, length, head = last(of.tcp), last(of.length), last(of.tcp_head)
    if segment and length and head then
        tcp(tvb, src, dst, segment.offset, segment.offset + head.value + length.value)
    end
end

local function analyze(tvb, pinfo)
    R.now = { frame = pinfo.number, time = math.floor(pinfo.rel_ts * 1e9 + 0.5) }
    R.frame, R.exchange_of_frame, R.moved_of_frame, R.answered_in_frame, R.retransmission = {}, 0, 0, nil, false
    local src, dst = addresses(pinfo)
    local ip = peel(tvb, src)
    if ip and ip.protocol == 6 then
        tcp(tvb, src, dst, ip.at, ip.stop)
    elseif ip and ip.protocol == 17 and ip.at + 8 <= tvb:len() and tvb:range(ip.at + 2, 2):uint() == 4791 then
        ib(tvb, src, dst, ip.at + 8, ip.at + tvb:range(ip.at + 4, 2):uint(), ip.ecn)
    elseif not ip or (ip.protocol ~= 1 and ip.protocol ~= 58) then
        by_fields(tvb, src, dst)
    end
    local facts = R.frame
    facts.exchange, facts.moved, facts.answered = R.exchange_of_frame, R.moved_of_frame, R.answered_in_frame
    if #facts > 0 or facts.exchange > 0 then
        R.facts[pinfo.number] = facts
        return facts
    end
    return nil
end

-- Messages that Wireshark decoded itself need not be kept.
local function forget(facts, stock, stock2)
    for _, fact in ipairs(facts) do
        if stock and (fact.what == "smbd" or fact.what == "copy") and not fact.keep then
            fact.bytes = nil
        end
        if stock2 and fact.what == "smbd" and not fact.suspect and not fact.keep then
            fact.upper = nil
        end
    end
end

-- ── What is shown ──────────────────────────────────────────────────────────────────────────────────────────────────────────

local function duration(ns)
    return NSTime.new(math.floor(ns / 1000000000), ns % 1000000000)
end

local function add(tree, name, value)
    local item = value == nil and tree:add(field[name]) or tree:add(field[name], value)
    item:set_generated()
    return item
end

-- A message's bytes where they stand in the frame, else as a data source of their own.
local function source(tvb, s, at, name)
    if at and at + #s <= tvb:len() and tvb:raw(at, #s) == s then
        return tvb:range(at, #s):tvb()
    end
    return ByteArray.new(s, true):tvb(name)
end

local REQUEST = {
    { "smb_direct.version.min", 0, 2 }, { "smb_direct.version.max", 2, 2 }, { "smb_direct.reserved", 4, 2 }, { "smb_direct.credits.requested", 6, 2 },
    { "smb_direct.preferred_send_size", 8, 4 }, { "smb_direct.max_receive_size", 12, 4 }, { "smb_direct.max_fragmented_size", 16, 4 },
}
local RESPONSE = {
    { "smb_direct.version.min", 0, 2 }, { "smb_direct.version.max", 2, 2 }, { "smb_direct.version.negotiated", 4, 2 }, { "smb_direct.reserved", 6, 2 },
    { "smb_direct.credits.requested", 8, 2 }, { "smb_direct.credits.granted", 10, 2 }, { "smb_direct.status", 12, 4 },
    { "smb_direct.max_read_write_size", 16, 4 }, { "smb_direct.preferred_send_size", 20, 4 }, { "smb_direct.max_receive_size", 24, 4 },
    { "smb_direct.max_fragmented_size", 28, 4 },
}
local DATA = {
    { "smb_direct.credits.requested", 0, 2 }, { "smb_direct.credits.granted", 2, 2 }, { "smb_direct.flags", 4, 2 },
    { "smb_direct.flags.response_requested", 4, 2 }, { "smb_direct.reserved", 6, 2 }, { "smb_direct.remaining_length", 8, 4 },
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
local function show_smb_direct(fact, base, tvb, pinfo, root)
    local b = source(tvb, fact.bytes, fact.from and base and base + fact.from, "SMB Direct message")
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
            t:add(field["smb_direct.data_message.data"], b:range(from, math.min(length, b:len() - from)))
        end
    end
    pinfo.cols.protocol:set("SMBDirect")
    pinfo.cols.info:set(layout[3])
end

local function show_smb2(s, tvb, pinfo, root, name)
    local b = ByteArray.new(s, true):tvb(name)
    DissectorTable.try_heuristics("smb_direct", b, pinfo, root)
end

-- SMB2_RDMA_TRANSFORM, [MS-SMB2] 2.2.43, with what is in it.
local function show_transform(fact, root)
    local t = R.transform_of(fact.blob)
    if not t then
        return
    end
    local b = ByteArray.new(fact.blob, true):tvb("RDMA transform")
    local top = root:add(field["smb2.rdma_transform"], b:range())
    local names = {
        { "smb2.rdma_transform.descriptor_offset", 0, 2 }, { "smb2.rdma_transform.descriptor_length", 2, 2 }, { "smb2.rdma_transform.channel", 4, 4 },
        { "smb2.rdma_transform.transform_count", 8, 2 }, { "smb2.rdma_transform.reserved1", 10, 2 }, { "smb2.rdma_transform.reserved2", 12, 4 },
    }
    show_layout(top, b, names)
    for _, x in ipairs(t.cryptos) do
        local c = top:add(field["smb2.rdma_crypto_transform"], b:range(x.at, x.length))
        c:add_le(field["smb2.rdma_crypto_transform.type"], b:range(x.at, 2))
        c:add_le(field["smb2.rdma_crypto_transform.signature_length"], b:range(x.at + 2, 2))
        c:add_le(field["smb2.rdma_crypto_transform.nonce_length"], b:range(x.at + 4, 2))
        c:add_le(field["smb2.rdma_crypto_transform.reserved"], b:range(x.at + 6, 2))
        if x.signature > 0 then
            c:add(field["smb2.rdma_crypto_transform.signature"], b:range(x.at + 8, x.signature))
        end
        if x.nonce > 0 then
            c:add(field["smb2.rdma_crypto_transform.nonce"], b:range(x.at + 8 + x.signature, x.nonce))
        end
    end
    for n = 0, math.floor(#t.list / 16) - 1 do
        local at = t.offset + 16 * n
        local d = top:add(field["smb2.rdma_v1_descriptor"], b:range(at, 16))
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
        add(m, "iwarp_mpa.enhanced.d", c.second)
        add(m, "iwarp_mpa.enhanced.ord", c.second)
    end
    if fact.legacy then
        local m = t:add(field["iwarp_mpa.legacy"])
        m:set_generated()
        add(m, "iwarp_mpa.legacy.ird", fact.ird)
        add(m, "iwarp_mpa.legacy.ord", fact.ord)
        add(m, "iwarp_mpa.legacy.little_endian", fact.little or false)
    end
end

local function show_finding(fact, t)
    local row = R.rules[fact.rule]
    local f = t:add(field["rdmascope.finding"])
    f:set_text("[" .. fact.rule .. ": " .. row.title .. "]")
    f:set_generated()
    add(f, "rdmascope.finding.id", fact.rule)
    add(f, "rdmascope.finding.severity", fact.severity)
    add(f, "rdmascope.finding.section", row.spec)
    add(f, "rdmascope.finding.by", fact.by)
    add(f, "rdmascope.finding.text", fact.text)
    local text = string.format("%s: the %s %s. %s", fact.rule, fact.by, fact.text, row.spec)
    f:add_proto_expert_info(severity[fact.severity], text)
end

local function show(facts, tvb, pinfo, root)
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
        forget(facts, stock, stock2)
    end
    for _, fact in ipairs(facts) do
        if looked_at and not stock and fact.bytes and (fact.what == "smbd" or fact.what == "copy") then
            show_smb_direct(fact, facts.base, tvb, pinfo, root)
        elseif fact.what == "transform" then
            show_transform(fact, root)
        end
        if looked_at and fact.what == "smbd" and fact.upper and (fact.suspect or not stock2) then
            show_smb2(fact.upper.bytes, tvb, pinfo, root, fact.suspect and "SMB2 message without copies and gaps" or "SMB2 message")
        end
    end
    local t = root:add(p)
    t:set_generated()
    local said
    for _, fact in ipairs(facts) do
        if fact.connection and fact.connection ~= said then
            said = fact.connection
            add(t, "rdmascope.connection", said)
        end
        if fact.what == "smbd" then
            if fact.client then
                add(t, "rdmascope.credits.client", Int64.new(fact.client))
            end
            if fact.server then
                add(t, "rdmascope.credits.server", Int64.new(fact.server))
            end
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
            pinfo.cols.info:set("CNP: slow down QP=" .. R.hex(fact.qp, 6))
        end
    end
    if facts.exchange > 0 then
        add(t, "rdmascope.exchange", UInt64.new(facts.exchange))
        if facts.moved > 0 then
            add(t, "rdmascope.exchange.rdma_bytes", UInt64.new(facts.moved % 4294967296, math.floor(facts.moved / 4294967296)))
        end
        if facts.answered then
            add(t, "rdmascope.exchange.request", facts.answered.request)
            add(t, "rdmascope.exchange.time", duration(facts.answered.time))
        end
    end
    if facts.reply then
        add(t, "rdmascope.exchange.reply", facts.reply)
    end
    for _, fact in ipairs(facts) do
        if fact.what == "finding" then
            show_finding(fact, t)
        end
    end
end

function p.init()
    R.reset()
end
R.reset()

-- The two ends of a TCP connection.
local function pair(pinfo)
    local from, to = tostring(pinfo.src) .. ":" .. pinfo.src_port, tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    return from < to and from .. "|" .. to or to .. "|" .. from
end

function p.dissector(tvb, pinfo, root)
    local facts
    if pinfo.visited or pinfo.number <= R.now.frame then
        facts = R.facts[pinfo.number]
    else
        facts = analyze(tvb, pinfo)
        if facts and (pinfo.src_port == 445 or pinfo.dst_port == 445) then
            for _, fact in ipairs(facts) do
                if fact.what == "mpa" and not R.claimed[pair(pinfo)] then
                    R.claimed[pair(pinfo)] = pinfo.number
                    pinfo.conversation = claim
                end
            end
        end
    end
    if facts then
        show(facts, tvb, pinfo, root)
    end
end

register_postdissector(p)

-- ── Ports of SMB and NFS that carry MPA ────────────────────────────────────────────────────────────────────────────────────

-- Port 445 is left to its owner, which cannot be called from here: its plain TCP has to stay as it is. There the conversation is claimed when MPA is seen
-- in it, so that in one pass the first frame of the two that begin MPA is still the owner's.
local ports, owners = DissectorTable.get("tcp.port"), {}
for _, port in ipairs({ 5445, 20049 }) do
    owners[port] = ports:get_dissector(port)
end

function claim.dissector(tvb, pinfo, root)
    local key = pair(pinfo)
    if not R.claimed[key] and tvb:len() >= 16 and R.mpa_opening(tvb:raw(0, math.min(tvb:len(), 20))) ~= "other" then
        R.claimed[key] = pinfo.number
    end
    local since = R.claimed[key]
    if since and pinfo.number >= since then
        if DissectorTable.try_heuristics("tcp", tvb, pinfo, root) then
            return tvb:len()
        end
        return 0
    end
    local owner = owners[pinfo.dst_port] or owners[pinfo.src_port]
    return owner and owner:call(tvb, pinfo, root) or 0
end

for _, port in ipairs({ 5445, 20049 }) do
    ports:add(port, claim)
end

-- ── Explanations ───────────────────────────────────────────────────────────────────────────────────────────────────────────

local function explain(id)
    local window = TextWindow.new("rdmascope explain " .. id)
    local row = R.rules[id:upper()]
    window:set(row and row.explain or ("There is no rule " .. id .. "."))
end

if gui_enabled() then
    register_menu("rdmascope/Explain a finding...", function()
        new_dialog("Explain a finding", function(id)
            explain(id)
        end, "Rule, as in rdmascope.finding.id")
    end, MENU_TOOLS_UNSORTED)
    register_menu("rdmascope/All rules", function()
        local ids = {}
        for id, row in pairs(R.rules) do
            ids[#ids + 1] = string.format("%-32s %-6s %s", id, row.severity, row.title)
        end
        table.sort(ids)
        TextWindow.new("rdmascope rules"):set(table.concat(ids, "\n"))
    end, MENU_TOOLS_UNSORTED)
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
