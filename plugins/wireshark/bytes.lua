-- Bytes, numbers and rules. Everything hangs on R, the table that `rdmascope export wireshark` generates with the rules and
-- fields in it. Works in Lua 5.2 to 5.4: plain arithmetic, no integer division, no bit operators, no string.unpack.
--
-- Offsets into strings count from 0, as in the specifications. Numbers of 64 bits are pairs (high, low) of 32 bits, because a
-- number of Lua 5.2 has 53: a message id is kept as its eight bytes.

local byte, sub, floor = string.byte, string.sub, math.floor

function R.u8(s, at)
    return byte(s, at + 1)
end

function R.be16(s, at)
    local a, b = byte(s, at + 1, at + 2)
    return b and a * 256 + b
end

function R.le16(s, at)
    local a, b = byte(s, at + 1, at + 2)
    return b and b * 256 + a
end

function R.be24(s, at)
    local a, b, c = byte(s, at + 1, at + 3)
    return c and a * 65536 + b * 256 + c
end

function R.be32(s, at)
    local a, b, c, d = byte(s, at + 1, at + 4)
    return d and a * 16777216 + b * 65536 + c * 256 + d
end

function R.le32(s, at)
    local a, b, c, d = byte(s, at + 1, at + 4)
    return d and d * 16777216 + c * 65536 + b * 256 + a
end

-- What is at `at`, `n` bytes of it at most.
function R.cut(s, at, n)
    return sub(s, at + 1, at + n)
end

-- Whether the bit of this value is set in `flags`.
function R.has(flags, bit)
    return flags % (bit + bit) >= bit
end

-- Signed distance from b to a, of numbers that wrap at `size`.
function R.ahead(a, b, size)
    local d = (a - b) % size
    if d >= size / 2 then
        return d - size
    end
    return d
end

-- a - b of two addresses; exact as long as they are less than 2^53 apart.
function R.apart(a, b)
    return (a.high - b.high) * 4294967296 + (a.low - b.low)
end

function R.further(a, n)
    local low = a.low + n
    return { high = (a.high + floor(low / 4294967296)) % 4294967296, low = low % 4294967296 }
end

-- The same in place.
function R.advance(a, n)
    local low = a.low + n
    if low >= 4294967296 then
        a.high, low = (a.high + floor(low / 4294967296)) % 4294967296, low % 4294967296
    end
    a.low = low
end

function R.hex(n, digits)
    return string.format("0x%0" .. (digits or 8) .. "x", n)
end

-- A duration of nanoseconds in the unit that suits it.
function R.milliseconds(ns)
    local n = ns < 0 and -ns or ns
    if n < 1000000 then
        return string.format("%.1f µs", ns / 1e3)
    elseif n < 1000000000 then
        return string.format("%.1f ms", ns / 1e6)
    end
    return string.format("%.1f s", ns / 1e9)
end

function R.grouped(n)
    local text, count = string.format("%d", n), nil
    repeat
        text, count = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
    until count == 0
    return text
end

function R.status_name(status)
    return R.statuses[status] or R.hex(status)
end

-- CRC32C (RFC 3720 12.1), where this Lua has Wireshark's bit library; nil where not.
local TABLE
local function crc_table()
    TABLE = {}
    for n = 0, 255 do
        local c = n
        for _ = 1, 8 do
            c = bit.band(c, 1) == 1 and bit.bxor(bit.rshift(c, 1), 0x82f63b78) or bit.rshift(c, 1)
        end
        TABLE[n] = c
    end
end

function R.crc32c(s)
    if not bit then
        return nil
    end
    if not TABLE then
        crc_table()
    end
    local c, bxor, band, rshift = -1, bit.bxor, bit.band, bit.rshift
    for n = 1, #s do
        c = bxor(TABLE[band(bxor(c, byte(s, n)), 255)], rshift(c, 8))
    end
    return bxor(c, -1) % 4294967296
end

-- Forgets everything: a new capture, or the same one once more.
function R.reset()
    R.now = { frame = 0, time = 0 }
    -- by frame: what takes more than a number; and numbers, column by column, because a collector of garbage passes those by
    R.facts = {}
    R.connection_at, R.exchange_at, R.moved_at, R.request_at, R.time_at, R.reply_at, R.key_at = {}, {}, {}, {}, {}, {}, {}
    R.client_at, R.server_at, R.mirror_at, R.more_at = {}, {}, {}, {}
    R.frame, R.base = {}, nil
    R.connections = 0
    R.next_exchange = 1
    R.routes, R.tcps, R.halves, R.requests, R.claimed = {}, {}, {}, {}, {}
end

-- Two addresses of the network, one way, with the queue pairs and TCP ports of that way.
function R.route(src, dst)
    local name = src .. "|" .. dst
    local route = R.routes[name]
    if not route then
        route = { src = src, dst = dst, name = name, qps = {}, ports = {} }
        R.routes[name] = route
    end
    return route
end

-- The other end of a connection. Ends are 1 and 2.
function R.peer(by)
    return 3 - by
end

-- What is said of the frame at hand.
function R.tell(fact)
    local frame = R.frame
    frame[#frame + 1] = fact
end

-- Whether RDMA used a key as it was advertised; seldom more than once in a frame.
function R.tell_key(state)
    if R.key_of_frame then
        return R.tell({ what = "key", state = state })
    end
    R.key_of_frame = state
end

function R.blame(c, by)
    if not c.client then
        return "unknown"
    end
    return c.client == by and "client" or "server"
end

-- `who` (client, server, network, capture, unknown) broke a rule at `at`; told only of the frame at hand.
function R.report(rule, who, at, text, severity)
    local row = R.rules[rule]
    if not row then
        error("no rule " .. rule)
    end
    if at.frame ~= R.now.frame or #R.frame > 512 then
        return
    end
    R.tell({ what = "finding", rule = rule, severity = severity or row.severity, by = who, text = text })
end

-- The same, of an end of a connection.
function R.judge(c, rule, by, at, text, severity)
    R.report(rule, R.blame(c, by), at, text, severity)
end

local MORE_MAX = 255

-- The frame at hand belongs to an exchange, for which RDMA moved so many bytes up to now; it answers that frame, where there is a `request`. The
-- first exchange of a frame is four numbers, the others of a compound are a list.
function R.belongs(id, moved, request, time)
    local first = R.exchange_of_frame
    if first == 0 or first == id then
        R.exchange_of_frame, R.moved_of_frame = id, moved
        if request then
            R.request_of_frame, R.time_of_frame = request, time
        end
        return
    end
    local more = R.more_of_frame
    if not more then
        more = {}
        R.more_of_frame = more
    end
    for _, e in ipairs(more) do
        if e.id == id then
            e.moved, e.request, e.time = moved, request or e.request, time or e.time
            return
        end
    end
    if #more < MORE_MAX then
        more[#more + 1] = { id = id, moved = moved, request = request, time = time }
    end
end
