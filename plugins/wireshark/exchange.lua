-- Requests and their replies: SMB2 ([MS-SMB2]), RPC-over-RDMA (RFC 8166) and RPC; the remote memory that requests advertise,
-- and the RDMA that uses it.

local u8, le16, le32, be16, be32, cut, has = R.u8, R.le16, R.le32, R.be16, R.be32, R.cut, R.has
local byte, NONE = string.byte, {}

local REGIONS_MAX, PENDING_MAX, LATE = 4096, 16384, 1000000000

-- ── Remote memory: a key is live from its advertisement until it is invalidated, or the exchange ends ──────────────────────

local function region_of(c, owner, key)
    return c.memory[owner][key]
end

local function advertise(c, owner, key, region)
    local memory = c.memory[owner]
    local before = memory[key]
    if not before then
        c.regions = c.regions + 1
        if c.regions > REGIONS_MAX then
            for k, r in pairs(memory) do
                if r.state ~= "live" then
                    memory[k] = nil
                    c.regions = c.regions - 1
                end
            end
        end
    end
    memory[key] = region
    local guess = c.guess[owner]
    local step = (key - guess.last) % 4294967296
    guess.run = (step == guess.step and step ~= 0) and guess.run + 1 or 0
    guess.step, guess.last = step, key
    return before and before.state == "live" and before.exchange ~= region.exchange
end

local function touch(c, owner, key, address, length, wanted)
    local r = region_of(c, owner, key)
    if not r then
        return "unknown", nil
    end
    if r.state ~= "live" then
        return "stale", r
    elseif r.right ~= wanted then
        return "direction", r
    end
    local start = r.address
    local from = (address.high - start.high) * 4294967296 + (address.low - start.low)
    if from < 0 or from + length > r.length then
        return "outside", r
    end
    return "inside", r
end

local WORDS = {
    inside = "inside what was advertised",
    unknown = "never advertised",
    outside = "outside of what was advertised",
    stale = "no longer valid",
    direction = "advertised for the other direction",
}

local function end_key(c, owner, key, exchange, at)
    local r = region_of(c, owner, key)
    if r and r.exchange == exchange and r.state == "live" then
        r.state, r.ended = "ended", at
    end
end

-- A peer's Send invalidated a key of `owner`.
function R.invalidated(c, at, owner, key)
    local r = region_of(c, owner, key)
    if r and r.state == "live" then
        r.state = "invalidated"
    elseif r then
        R.judge(c, "RDMA-INVALIDATE", R.peer(owner), at, "invalidated key " .. R.hex(key) .. " a second time, or after its exchange")
    elseif not c.cut[owner] then
        R.judge(c, "RDMA-INVALIDATE", R.peer(owner), at, "invalidated key " .. R.hex(key) .. ", which its peer never advertised")
    end
end

local function verdict(c, op, what, key, address, length)
    if what == "inside" or (what == "unknown" and (not c.protocol or c.missed or c.cut[R.peer(op.by)])) then
        return
    end
    local write = op.verb == "write"
    local did, r = write and "wrote" or "read", region_of(c, R.peer(op.by), key)
    local function no(rule, text)
        R.judge(c, rule, op.by, op.at, string.format("%s %d bytes with key %s%s", did, length, R.hex(key), text))
    end
    if what == "unknown" then
        no("RDMA-KEY-UNKNOWN", ", which its peer never advertised")
    elseif what == "outside" then
        no("RDMA-KEY-BOUNDS", string.format(", which covers %d bytes elsewhere", r and r.length or 0))
    elseif what == "stale" then
        if write and r and r.state == "ended" and op.at.time - r.ended.time < LATE then
            no("RDMA-ORDER", " after the reply that says they are there")
        else
            no("RDMA-KEY-STALE", " after it was invalidated or its exchange had ended")
        end
    else
        no("RDMA-KEY-DIRECTION", write and ", advertised for writing only" or ", advertised for reading only")
    end
end

local function open_row(c, exchange)
    return c.by_exchange[exchange]
end

local function moved(c, op, r, what, address)
    if what == "outside" or what == "unknown" then
        return
    end
    local row = open_row(c, r.exchange)
    if not row then
        R.belongs(r.exchange, 0)
    else
        local kind = op.verb == "write" and "writes" or "reads"
        row[kind], row[kind .. "_frames"] = row[kind] + op.length, row[kind .. "_frames"] + 1
        R.belongs(r.exchange, row.reads + row.writes)
        if r.long and R.apart(address, r.address) + r.payload == 0 and #R.payload_of(op) > 0 then
            row.long = op.bytes
        end
    end
end

function R.write_op(c, op)
    if not op.key then
        return
    end
    local what, r = touch(c, R.peer(op.by), op.key, op.address, op.length, "write")
    if r then
        moved(c, op, r, what, op.address)
    end
    if op.shown then
        R.tell_key(WORDS[what])
    end
    if op.begins then
        local length = op.whole or op.length
        if what == "inside" and R.apart(op.address, r.address) + length > r.length then
            what = "outside"
        end
        verdict(c, op, what, op.key, op.address, length)
    elseif what ~= "inside" and op.ends then
        verdict(c, op, what, op.key, op.address, op.length)
    end
end

function R.read_request_op(c, op)
    if not op.key then
        return
    end
    local length = op.whole or 0
    local what, r = touch(c, R.peer(op.by), op.key, op.address, length, "read")
    if op.shown then
        R.tell_key(WORDS[what])
    end
    if r then
        local row = open_row(c, r.exchange)
        R.belongs(r.exchange, row and row.reads + row.writes or 0)
        if what == "inside" and row then
            row.reads_frames = row.reads_frames + 1
        end
    end
    verdict(c, op, what, op.key, op.address, length)
end

function R.read_response_op(c, op)
    if not op.key then
        return
    end
    local what, r = touch(c, op.by, op.key, op.address, op.length, "read")
    if r then
        moved(c, op, r, what, op.address)
    end
end

-- ── Rows ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local function new_row(c, key, first, by)
    local id = R.next_exchange
    R.next_exchange = id + 1
    R.belongs(id, 0)
    local row = {
        id = id, key = key, by = by, request = first, reads = 0, writes = 0, reads_frames = 0, writes_frames = 0, command = nil, name = nil, keys = NONE,
    }
    c.outstanding = c.outstanding + 1
    if c.outstanding > PENDING_MAX then
        c.pending, c.by_exchange, c.outstanding = {}, {}, 1
    end
    local old = c.pending[key]
    if old then
        c.by_exchange[old.id] = nil
        c.outstanding = c.outstanding - 1
    end
    c.pending[key], c.by_exchange[id] = row, row
    return row
end

local function take_row(c, key)
    local row = c.pending[key]
    if row then
        c.pending[key], c.by_exchange[row.id] = nil, nil
        c.outstanding = c.outstanding - 1
    end
    return row
end

local function answered(row, at)
    R.belongs(row.id, row.reads + row.writes, row.request.frame, at.time - row.request.time)
    R.reply_at[row.request.frame] = R.now.frame
end

-- ── SMB2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local NEGOTIATE, SESSION_SETUP, READ, WRITE, IOCTL, CANCEL, QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, OPLOCK_BREAK =
    0, 1, 8, 9, 11, 12, 14, 15, 16, 18
local NAMES = {
    [0] = "NEGOTIATE", "SESSION_SETUP", "LOGOFF", "TREE_CONNECT", "TREE_DISCONNECT", "CREATE", "CLOSE", "FLUSH", "READ", "WRITE", "LOCK",
    "IOCTL", "CANCEL", "ECHO", "QUERY_DIRECTORY", "CHANGE_NOTIFY", "QUERY_INFO", "SET_INFO", "OPLOCK_BREAK", "SERVER_TO_CLIENT_NOTIFICATION",
}
-- StructureSize of replies
local OWN = {
    [0] = 65, 9, 4, 16, 4, 89, 60, 4, 17, 17, 4, 49, 4, 4, 9, 9, 9, 2, 24, 4,
}
local PENDING, MORE_PROCESSING, BUFFER_OVERFLOW, NOTIFY_CLEANUP, NOTIFY_ENUM_DIR, INVALID_PARAMETER =
    0x00000103, 0xc0000016, 0x80000005, 0x0000010b, 0x0000010c, 0xc000000d

-- Whether a reply that could be either is the command's own body. An ERROR body says 9, and as many bytes of data as it has.
local function own_body(command, size, body, length)
    if OWN[command] ~= 9 then
        return size == OWN[command]
    end
    if size ~= 9 then
        return false
    end
    local offset, count = le16(body, 2) or 0, le32(body, 4) or 0
    return offset == 72 and 72 + count <= math.max(length, 72)
end

-- "own": the command's own body where an ERROR body belongs; "error": the reverse; "neither".
local function form_of(h, pdu, row)
    local size, status, command = le16(pdu, 64) or 0, h.status, h.command
    if status == 0 then
        if size == 9 and OWN[command] ~= 9 then
            return "error", true
        end
        if size == OWN[command] or command == OPLOCK_BREAK or #pdu < 66 then
            return nil, false
        end
        return "neither", false
    end
    local own
    local body, length = cut(pdu, 64, #pdu), #pdu
    if command == SESSION_SETUP then
        local offset, count = le16(body, 4) or 0, le16(body, 6) or 0
        own = size == 9 and (status == MORE_PROCESSING or (offset == 72 and count > 0 and 72 + count <= length))
    elseif command == OPLOCK_BREAK then
        own = size == 24 or size == 36 or size == 44
    else
        own = own_body(command, size, body, length)
    end
    local may
    if command == SESSION_SETUP and status == MORE_PROCESSING then
        may = true
    elseif status == BUFFER_OVERFLOW and (command == QUERY_INFO or command == QUERY_DIRECTORY or command == IOCTL or command == READ) then
        may = true
    elseif command == CHANGE_NOTIFY and status == NOTIFY_ENUM_DIR then
        may = true
    elseif command == IOCTL and status == INVALID_PARAMETER then
        local code = row and row.control or le32(body, 4)
        may = code == 0x001440f2 or code == 0x001480f2
    elseif status == PENDING or status == NOTIFY_CLEANUP then
        may = false
    else
        may = status < 0x80000000
    end
    if own and not may then
        return "own", false
    elseif not own and size ~= 9 and #body >= 2 then
        return "neither", true
    end
    return nil, not own
end

-- The channel information of a READ or WRITE: descriptors, and what is wrong with it.
local function channel(c, m, h, pdu, by, upper, row, length, right)
    local at, is_cut = upper.last, #upper.bytes < upper.wire
    local kind, offset, size = le32(pdu, 64 + (h.command == READ and 36 or 32)), le16(pdu, 64 + (h.command == READ and 44 or 40)),
        le16(pdu, 64 + (h.command == READ and 46 or 42))
    local name = NAMES[h.command]
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    if not size then
        return
    end
    if kind == 0 then
        if size > 0 then
            no("SMB2-CHANNEL", string.format("sent %d bytes of channel information in a %s without a channel", size, name))
        end
        return
    end
    row.rdma = true
    local inside = size == 0 or (offset >= 64 + 48 and offset + size <= #pdu)
    local blob = cut(pdu, offset, size)
    local list, listed, asks, bad = blob, size, kind == 2, true
    if kind == 3 then
        local t = R.transform_of(blob)
        list, listed, asks = t and t.list or "", t and t.list_length or size, t and t.channel == 2
        R.tell({ what = "transform", blob = blob, shown = at.frame == R.now.frame })
    end
    local described = 0
    for n = 0, math.floor(#list / 16) - 1 do
        described = described + le32(list, 16 * n + 12)
    end
    if c.transport == "tcp" then
        no("BUG-KSMBD-CHANNEL-INFO", "asked for the RDMA channel in a " .. name .. " on a TCP connection")
    elseif is_cut and (not inside or listed % 16 ~= 0) then
        bad = false
    elseif not inside then
        no("SMB2-CHANNEL", string.format("points to %d bytes of channel information at %d, outside of the %s", size, offset, name))
    elseif listed % 16 ~= 0 or size == 0 then
        no("SMB2-CHANNEL", string.format("sent %d bytes of buffer descriptors in a %s; each has 16", size, name))
    elseif described < length and kind ~= 3 then
        no("SMB2-CHANNEL", string.format("described %d bytes of memory for a %s of %d", described, name, length))
    else
        bad = false
    end
    if bad and c.transport ~= "tcp" then
        no("BUG-KSMBD-CHANNEL-INFO", "sent a " .. name .. " with channel information that does not fit")
    end
    if kind == 3 then
        R.judge_transform(c, m, by, at, blob, is_cut)
    end
    if asks and m.dialect and m.dialect < 0x0302 then
        no("RDMA-INVALIDATE", "asked for remote invalidation in dialect " .. R.hex(m.dialect, 4) .. "; it came with 0x0302")
    end
    if c.read_write and length > c.read_write then
        no("RDMA-LENGTH", string.format("asked for %d bytes in a %s; MaxReadWriteSize is %d", length, name, c.read_write))
    end
    local payload = 0
    for n = 0, math.floor(#list / 16) - 1 do
        local at_ = 16 * n
        local region = {
            address = { high = le32(list, at_ + 4), low = le32(list, at_) }, length = le32(list, at_ + 12), right = right,
            exchange = row.id, payload = payload, state = "live",
        }
        local key = le32(list, at_ + 8)
        payload = payload + region.length
        if n == 0 and asks then
            row.invalidate = key
        end
        if advertise(c, by, key, region) then
            no("RDMA-KEY-REUSE", "advertised key " .. R.hex(key) .. " again while it was live")
        end
        if row.keys == NONE then
            row.keys = {}
        end
        row.keys[#row.keys + 1] = key
    end
    local guess = c.guess[by]
    if guess.run == 16 then
        no("RDMA-KEY-PREDICTABLE", string.format("advertised 16 keys in a row each %s after the last", R.hex(guess.step, 1)))
    end
end

-- SMB2_RDMA_TRANSFORM, [MS-SMB2] 2.2.43.
function R.transform_of(s)
    if #s < 16 then
        return nil
    end
    local t = {
        offset = le16(s, 0), list_length = le16(s, 2), channel = le32(s, 4), count = le16(s, 8), reserved1 = le16(s, 10), reserved2 = le32(s, 12),
        cryptos = {},
    }
    t.inside = t.offset >= 16 and t.offset + t.list_length <= #s
    t.inside = t.inside or t.list_length == 0
    t.list = cut(s, t.offset, t.list_length)
    local at, stop = 16, (t.list_length > 0 and t.offset >= 16) and math.min(t.offset, #s) or #s
    while #t.cryptos < t.count and at + 8 <= stop do
        local x = { at = at, kind = le16(s, at), signature = le16(s, at + 2), nonce = le16(s, at + 4), reserved = le16(s, at + 6) }
        x.length = 8 + x.signature + x.nonce
        if at + x.length > stop then
            break
        end
        t.cryptos[#t.cryptos + 1] = x
        at = at + x.length
    end
    return t
end

function R.judge_transform(c, m, by, at, blob, is_cut)
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    if m.dialect and m.dialect ~= 0x0311 then
        no("SMB2-TRANSFORM-DIALECT", "sent an RDMA transform in dialect " .. R.hex(m.dialect, 4))
    end
    if is_cut then
        return
    end
    local t = R.transform_of(blob)
    if not t then
        return no("SMB2-TRANSFORM-BOUNDS", "sent an RDMA transform that is too short")
    end
    local encrypts, signs = false, false
    for _, x in ipairs(t.cryptos) do
        encrypts, signs = encrypts or x.kind == 1, signs or x.kind == 2
        if x.signature > 16 or (x.kind == 1 and x.nonce ~= 11 and x.nonce ~= 12) then
            no("SMB2-TRANSFORM-LENGTHS", string.format("sent an RDMA transform with SignatureLength %d and NonceLength %d", x.signature, x.nonce))
        end
        if x.reserved ~= 0 then
            no("SMB2-TRANSFORM-RESERVED", "set Reserved of a crypto transform to " .. R.hex(x.reserved, 4))
        end
    end
    if encrypts and signs then
        no("SMB2-TRANSFORM-LENGTHS", "asked for encryption and signing at once")
    end
    if t.count == 0 or #t.cryptos ~= t.count then
        no("SMB2-TRANSFORM-COUNT", string.format("announced %d transforms; %d follow", t.count, #t.cryptos))
    end
    if t.reserved1 ~= 0 or t.reserved2 ~= 0 then
        no("SMB2-TRANSFORM-RESERVED", "set a reserved field of an RDMA transform")
    end
    if not t.inside or t.list_length == 0 then
        no("SMB2-TRANSFORM-BOUNDS", string.format("points to %d bytes of descriptors at %d, outside of the RDMA transform", t.list_length, t.offset))
    end
end

local function smb2_request(c, m, h, pdu, by, upper)
    local at = upper.last
    c.client = c.client or by
    if h.command == NEGOTIATE and not m.negotiated and not m.missed then
        m.credits = 1
    end
    if h.command == CANCEL then
        return
    end
    local name = NAMES[h.command] or "UNKNOWN"
    local charge = math.max(h.charge, 1)
    if m.credits then
        m.credits = m.credits - charge
        if m.credits < 0 then
            m.credits = 0
            R.judge(c, "SMB2-CREDIT", by, at, string.format("sent %s (charge %d) without the SMB2 credits for it", name, charge))
        end
    end
    local whole = #pdu >= 112
    local size
    if whole and h.command == READ then
        size = le32(pdu, 68)
    elseif whole and h.command == WRITE then
        size = le32(pdu, 68)
        if le32(pdu, 96) ~= 0 then
            size = math.min(size + le32(pdu, 100), 4294967295)
        end
    end
    if size then
        local needed = math.floor(math.max(size - 1, 0) / 65536) + 1
        if h.charge > 0 and charge < needed then
            R.judge(c, "SMB2-CREDIT", by, at, string.format("sent a %s of %d bytes with CreditCharge %d; it needs %d", name, size, charge, needed))
        end
    end
    local row = new_row(c, h.id, upper.first, by)
    row.command, row.name = h.command, name
    if h.command == READ and size then
        channel(c, m, h, pdu, by, upper, row, size, "write")
    elseif h.command == WRITE and size then
        if le32(pdu, 96) == 0 and upper.fragments > 1 and c.transport ~= "tcp" then
            R.judge(c, "SMBD-FRAG-COST", by, at,
                string.format("sent %d bytes of a WRITE in %d fragments that RDMA could have carried", size, upper.fragments))
        end
        channel(c, m, h, pdu, by, upper, row, size, "read")
    elseif h.command == IOCTL then
        row.control = le32(pdu, 68)
    end
end

local function invalidation(c, m, row, by, at, failed, carried)
    local asked, done = row.invalidate, carried.key
    if asked and done then
        carried.key = nil
        if asked ~= done then
            R.judge(c, "RDMA-INVALIDATE", by, at, "invalidated key " .. R.hex(done) .. " where " .. R.hex(asked) .. " was asked for")
        end
        R.invalidated(c, at, row.by, done)
    elseif asked and failed then
        R.judge(c, "BUG-KSMBD-2FD5DCB1C8EF", by, at, "did not invalidate key " .. R.hex(asked) .. " with its error reply")
    elseif asked then
        R.judge(c, "RDMA-INVALIDATE", by, at, "did not invalidate key " .. R.hex(asked) .. ", as it was asked to")
    end
end

local function smb2_reply(c, m, h, pdu, by, upper, carried)
    local at = upper.last
    carried.replied = true
    c.client = c.client or R.peer(by)
    if m.credits then
        m.credits = m.credits + h.credits
    end
    local name, row = NAMES[h.command] or "UNKNOWN", c.pending[h.id]
    local size = #pdu - 64
    local form, is_error = form_of(h, pdu, row)
    if form then
        local what = form == "own" and "the command's own body, where an ERROR body belongs"
            or form == "error" and "an ERROR body, where the command's own belongs" or "a body that is neither its own nor an ERROR"
        R.judge(c, "SMB2-ERROR-BODY", by, at, "answered " .. name .. " with " .. R.status_name(h.status) .. " and " .. what)
    end
    if h.command == NEGOTIATE and not is_error and size >= 8 then
        m.dialect, m.negotiated = le16(pdu, 68), true
    end
    if has(h.flags, 2) and h.status == PENDING then
        if row then
            R.belongs(row.id, row.reads + row.writes)
        end
        return
    end
    row = take_row(c, h.id)
    if not row then
        return
    end
    answered(row, at)
    local failed = h.status >= 0xc0000000 and h.status ~= MORE_PROCESSING
    if not is_error and h.command == READ and size >= 16 then
        local length, remaining, flags = le32(pdu, 68), le32(pdu, 72), le32(pdu, 76)
        if not row.rdma and upper.fragments > 1 and c.transport ~= "tcp" then
            R.judge(c, "SMBD-FRAG-COST", R.peer(by), at,
                string.format("asked for %d bytes in a READ without RDMA: they came in %d fragments", length, upper.fragments))
        end
        local bytes = math.max(remaining, has(flags, 1) and 0 or length)
        if row.rdma and not failed and bytes ~= row.writes and row.writes_frames > 0 and not c.missed then
            R.judge(c, "RDMA-LENGTH", by, at, string.format("says it wrote %d bytes for a READ; %d were seen", bytes, row.writes))
        end
    elseif not is_error and h.command == WRITE and size >= 16 then
        local bytes = le32(pdu, 68)
        if row.rdma and not failed and bytes ~= row.reads and row.reads_frames > 0 and not c.missed then
            R.judge(c, "RDMA-LENGTH", by, at, string.format("says it wrote %d bytes of a WRITE; %d were fetched by RDMA Read", bytes, row.reads))
        end
    end
    invalidation(c, m, row, by, at, failed, carried)
    if row.keys ~= NONE then
        for _, key in ipairs(row.keys) do
            end_key(c, row.by, key, row.id, at)
        end
    end
    if failed then
        R.judge(c, "SMB2-ERROR", by, at, name .. " failed: " .. R.status_name(h.status))
    end
end

-- A whole SMB2 message, compounds and all. Encrypted and compressed ones stay closed.
function R.smb2_message(c, by, upper)
    local m = c.smb2
    local s, carried = upper.bytes, { key = upper.invalidate }
    local at = 0
    while at + 64 <= #s and string.find(s, "^\254SMB", at + 1) do
        local next_ = le32(s, at + 20)
        local pdu = (at > 0 or next_ >= 64) and cut(s, at, next_ >= 64 and next_ or #s) or s
        local g1, g2, s0, s1, s2, s3, c1, c2, r1, r2, f0, f1, f2, f3 = byte(pdu, 7, 20)
        local h = {
            charge = g2 * 256 + g1, status = s3 * 16777216 + s2 * 65536 + s1 * 256 + s0, command = c2 * 256 + c1, credits = r2 * 256 + r1,
            flags = f3 * 16777216 + f2 * 65536 + f1 * 256 + f0, id = cut(pdu, 24, 8),
        }
        if has(h.flags, 1) then
            smb2_reply(c, m, h, pdu, by, upper, carried)
        else
            smb2_request(c, m, h, pdu, by, upper)
        end
        if next_ < 64 then
            break
        end
        at = at + next_
    end
    if carried.key then
        if carried.replied and not c.cut[R.peer(by)] then
            R.judge(c, "RDMA-INVALIDATE", by, upper.last, "invalidated key " .. R.hex(carried.key) .. " though no request asked for it")
        end
        R.invalidated(c, upper.last, R.peer(by), carried.key)
    end
end

-- ── RPC-over-RDMA ──────────────────────────────────────────────────────────────────────────────────────────────────────────

local MSG, NOMSG, MSGP, DONE, ERROR = 0, 1, 2, 3, 4
local SEGMENTS_MAX = 4096

-- The header with its chunk lists; nil where they end before their end.
local function rpcrdma_of(s)
    local h = { xid = be32(s, 0), version = be32(s, 4), credits = be32(s, 8), proc = be32(s, 12), reads = {}, writes = {} }
    if not h.proc then
        return nil
    end
    if h.version ~= 1 then
        return h
    end
    if h.proc == ERROR then
        h.error, h.low, h.high = be32(s, 16), be32(s, 20), be32(s, 24)
        h.payload = cut(s, h.error == 1 and 28 or 20, #s)
        return h.error and h or nil
    end
    local at = 16
    if h.proc == MSGP then
        at = 24
    elseif h.proc > DONE then
        return h
    elseif h.proc == DONE then
        h.payload = cut(s, 16, #s)
        return h
    end
    local function segment(to)
        local x = { handle = be32(s, at), length = be32(s, at + 4), offset = { high = be32(s, at + 8), low = be32(s, at + 12) } }
        at = at + 16
        to[#to + 1] = x
        return x.offset.low and #to <= SEGMENTS_MAX and x
    end
    local function word()
        at = at + 4
        return be32(s, at - 4)
    end
    local more = word()
    while more == 1 do
        local position = word()
        local x = segment(h.reads)
        if not x then
            return nil
        end
        x.position = position
        more = word()
    end
    if not more then
        return nil
    end
    local function chunk()
        local count, out = word(), {}
        if not count or count > SEGMENTS_MAX then
            return nil
        end
        for _ = 1, count do
            if not segment(out) then
                return nil
            end
        end
        return out
    end
    more = word()
    while more == 1 do
        local x = chunk()
        if not x or #h.writes > SEGMENTS_MAX then
            return nil
        end
        h.writes[#h.writes + 1] = x
        more = word()
    end
    if not more then
        return nil
    end
    more = word()
    if more == 1 then
        h.reply = chunk()
        if not h.reply then
            return nil
        end
    elseif not more then
        return nil
    end
    h.payload = cut(s, at, #s)
    return h
end

function R.rpcrdma_looks_like(s)
    local version, credits, proc = be32(s, 4), be32(s, 8), be32(s, 12)
    if version ~= 1 or not proc or proc > ERROR or credits == 0 or credits > R.credits_plausible then
        return false
    end
    local h = rpcrdma_of(s)
    if not h then
        return false
    end
    if proc == MSG or proc == MSGP then
        local kind = be32(h.payload, 4)
        return be32(h.payload, 0) == h.xid and (kind == 0 or (kind == 1 and #h.reads == 0))
    end
    if #h.payload > 0 then
        return false
    end
    if proc == NOMSG then
        return (#h.reads > 0 and h.reads[1].position == 0) or (h.reply ~= nil and #h.reply > 0)
    end
    return proc == DONE or h.error == 1 or h.error == 2
end

-- Program, version and procedure of a call.
local function call_of(s)
    return { program = be32(s, 12), version = be32(s, 16), procedure = be32(s, 20) }
end

-- The status of a reply, where the program is one whose results begin with it, and it is a failure.
local function failure_of(call, s)
    if not call or not call.procedure or be32(s, 8) ~= 0 then
        return nil
    end
    local verifier = be32(s, 16)
    if not verifier or be32(s, 20 + math.ceil(verifier / 4) * 4) ~= 0 then
        return nil
    end
    local status = be32(s, 24 + math.ceil(verifier / 4) * 4)
    local nfs = call.program == 100003 and (call.version == 3 or call.procedure == 1)
    local other = (call.program == 100005 and call.procedure == 1) or call.program == 100227
    if call.procedure > 0 and (nfs or other) and status and status ~= 0 then
        return status
    end
    return nil
end

local function rpc_complete(c, row, caller, at, failure, failed)
    for _, key in ipairs(row.keys) do
        end_key(c, caller, key, row.id, at)
    end
    if failure or failed then
        R.judge(c, "RPC-ERROR", R.peer(caller), at, string.format("answered with status %d", failure or 0))
    end
end

local function rpc_key(by, xid)
    return by * 4294967296 + xid
end

local function chunk_rules(c, by, at, h, is_cut)
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    local inline, last, removed, whole = (h.long or is_cut) and 1e15 or #h.payload, 0, 0, 0
    for _, x in ipairs(h.reads) do
        local position = x.position
        whole = whole + x.length
        if position % 4 ~= 0 then
            no("RPCRDMA-POSITION", string.format("has a read chunk at position %d, not a multiple of 4", position))
        elseif position < last then
            no("RPCRDMA-POSITION", string.format("has a read chunk at position %d behind one at %d", position, last))
        elseif position > inline + removed then
            no("RPCRDMA-POSITION", string.format("has a read chunk at position %d, past the end of the message", position))
            no("BUG-CVE-2026-89526", string.format("has a read chunk at position %d, past the inline body", position))
        end
        last = math.max(last, position)
        if position > 0 then
            removed = removed + x.length
        end
        if x.offset.high == 0xffffffff and x.offset.low + x.length > 4294967295 then
            no("BUG-CVE-2026-89533", "has a segment that wraps")
        end
    end
    if whole > R.read_budget then
        no("BUG-CVE-2026-89528", string.format("offers %d bytes in read chunks", whole))
    end
    for _, x in ipairs(h.writes) do
        if #x == 0 then
            no("BUG-CVE-2026-89532", "has a write chunk without segments")
        end
    end
    if h.reply and #h.reply == 0 then
        no("BUG-CVE-2026-93228", "has a reply chunk without segments")
    end
end

local function rpc_call(c, by, send, h)
    local at, m = send.last, c.rpc
    c.client = c.client or by
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    if c.client == R.peer(by) and (h.long or #h.reads > 0 or #h.writes > 0 or h.reply) then
        no("RPCRDMA-BACKWARD", "sent a backward call with chunks or without an inline message")
    end
    if h.long and not (h.reads[1] and h.reads[1].position == 0) and not h.reply then
        no("RPCRDMA-NOMSG", "sent RDMA_NOMSG with neither a Position-Zero Read chunk nor a reply chunk")
    end
    chunk_rules(c, by, at, h, #send.bytes < send.wire)
    local credits = m.credits[by]
    credits.outstanding = credits.outstanding + 1
    if credits.granted then
        if credits.outstanding > credits.granted then
            no("RPCRDMA-CREDIT-OVERRUN", string.format("has %d calls outstanding; %d were granted", credits.outstanding, credits.granted))
        end
    elseif not credits.replied and credits.outstanding == 2 then
        no("RPCRDMA-CREDIT-FIRST", "sent a second call before the first reply had granted credits")
    end
    local key = rpc_key(by, h.xid)
    if c.pending[key] then
        no("RPCRDMA-XID", "used XID " .. R.hex(h.xid) .. " again while its call was outstanding")
        credits.outstanding = credits.outstanding - 1
    end
    local row = new_row(c, key, send.first, by)
    row.chunks, row.offered, row.keys, row.reply_segments = {}, {}, {}, h.reply and #h.reply or 0
    local function add(x, right, long, payload)
        local region = { address = x.offset, length = x.length, right = right, exchange = row.id, payload = payload, state = "live", long = long }
        if advertise(c, by, x.handle, region) then
            no("RDMA-KEY-REUSE", "advertised key " .. R.hex(x.handle) .. " again while it was live")
        end
        row.keys[#row.keys + 1] = x.handle
    end
    local long, data = 0, 0
    for _, x in ipairs(h.reads) do
        if x.position == 0 then
            add(x, "read", true, long)
            long = long + x.length
        else
            add(x, "read", false, data)
            data = data + x.length
        end
    end
    data, long = 0, 0
    for _, chunk in ipairs(h.writes) do
        row.chunks[#row.chunks + 1] = #chunk
        for _, x in ipairs(chunk) do
            row.offered[#row.offered + 1] = x.length
            add(x, "write", false, data)
            data = data + x.length
        end
    end
    for _, x in ipairs(h.reply or {}) do
        add(x, "write", true, long)
        long = long + x.length
    end
    if not h.long then
        row.call = call_of(h.payload)
        local inner = be32(h.payload, 0)
        if inner and row.call.procedure and inner ~= h.xid then
            no("RPCRDMA-XID", "has XID " .. R.hex(h.xid) .. " in the header and " .. R.hex(inner) .. " in the RPC message")
        end
    end
end

local function write_shape(c, by, at, h, row)
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    local n, said = 0, 0
    for index, chunk in ipairs(h.writes) do
        if row.chunks[index] ~= #chunk then
            return no("RPCRDMA-WRITE-SHAPE", string.format("changed the number of segments of write chunk %d", index - 1))
        end
        for _, x in ipairs(chunk) do
            n, said = n + 1, said + x.length
            if not row.offered[n] then
                return
            end
            if x.length > row.offered[n] then
                no("RPCRDMA-WRITE-SHAPE", string.format("says it wrote %d bytes into a segment of %d", x.length, row.offered[n]))
            end
        end
    end
    if h.reply and #h.reply > 0 and #h.reply ~= row.reply_segments then
        no("RPCRDMA-WRITE-SHAPE", string.format("returned a reply chunk of %d segments; %d were offered", #h.reply, row.reply_segments))
    end
    if said > row.writes and #h.writes > 0 and not c.missed then
        no("RPCRDMA-CHUNK-LENGTH", string.format("says %d bytes were written into the write list; %d were seen", said, row.writes))
    end
end

local function rpc_reply(c, by, send, h)
    local at, caller = send.last, R.peer(by)
    c.client = c.client or caller
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    local credits = c.rpc.credits[caller]
    credits.outstanding = math.max(credits.outstanding - 1, 0)
    credits.granted, credits.replied = h.credits, true
    if h.credits == 0 then
        no("RPCRDMA-CREDIT-ZERO", "granted 0 credits")
    end
    local row = take_row(c, rpc_key(caller, h.xid))
    if not row then
        return no("RPCRDMA-XID", "answered XID " .. R.hex(h.xid) .. ", of which there is no call")
    end
    answered(row, at)
    if c.client == by and (h.long or #h.writes > 0) then
        no("RPCRDMA-BACKWARD", "answered a backward call with chunks or without an inline message")
    end
    write_shape(c, by, at, h, row)
    rpc_complete(c, row, caller, at, #send.bytes >= send.wire and failure_of(row.call, h.long and (row.long or "") or h.payload) or nil)
end

-- A whole Send that carries RPC-over-RDMA.
function R.rpcrdma_send(c, by, send)
    local at = send.last
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    local limit = c.inline[R.peer(by)]
    if limit and send.wire > limit then
        no("RPCRDMA-INLINE", string.format("sent %d bytes inline; its peer takes %d", send.wire, limit))
    end
    local h = rpcrdma_of(send.bytes)
    if not h then
        if #send.bytes >= send.wire then
            no("RPCRDMA-MALFORMED", "sent chunk lists that end before their end")
        end
        return
    end
    if h.version ~= 1 then
        return no("RPCRDMA-VERSION", string.format("sent RPC-over-RDMA version %d", h.version))
    end
    if h.proc == ERROR then
        local caller = R.peer(by)
        local row, credits = take_row(c, rpc_key(caller, h.xid)), c.rpc.credits[caller]
        no("RPCRDMA-ERROR", "refused XID " .. R.hex(h.xid) .. (h.error == 1 and ": ERR_VERS" or h.error == 2 and ": ERR_CHUNK" or " with an unknown error"))
        credits.outstanding, credits.replied = math.max(credits.outstanding - 1, 0), true
        if row then
            rpc_complete(c, row, caller, at, nil, true)
        end
        return
    elseif h.proc == MSGP or h.proc == DONE then
        no("RPCRDMA-PROC", "sent a message type which is not to be sent any more")
        if h.proc == DONE then
            return
        end
    elseif h.proc > ERROR then
        return no("RPCRDMA-PROC", string.format("sent the unknown message type %d", h.proc))
    end
    h.long = h.proc == NOMSG
    local kind, reply = be32(h.payload, 4), nil
    if kind and not h.long then
        reply = kind == 1
    else
        reply = not (h.reads[1] and h.reads[1].position == 0) and c.pending[rpc_key(R.peer(by), h.xid)] ~= nil
    end
    if reply then
        rpc_reply(c, by, send, h)
    else
        rpc_call(c, by, send, h)
    end
end

-- A whole RPC message on TCP.
function R.rpc_record(c, by, message)
    local s = message.bytes
    local xid, kind = be32(s, 0), be32(s, 4)
    if not kind then
        return
    end
    if kind == 0 then
        c.client = c.client or by
        local row = new_row(c, rpc_key(by, xid), message.first, by)
        row.call = call_of(s)
        return
    end
    local row = take_row(c, rpc_key(R.peer(by), xid))
    if row then
        answered(row, message.last)
        rpc_complete(c, row, R.peer(by), message.last, failure_of(row.call, s))
    end
end
