-- SMB Direct, [MS-SMBD]: the three messages, the rules of a connection and its credit ledger, fragments put together.

local u8, le16, le32, cut, has = R.u8, R.le16, R.le32, R.cut, R.has
local byte, max, min = string.byte, math.max, math.min

local STALL_LEAST, STALL_RELEASE, KEEPALIVE_PROMPT = 50000, 20000000, 5000000000
local STARVED_MESSAGES, REASSEMBLED_MAX, HEADER = 64, 16777216, 20

local function begins_smb2(s)
    return string.find(s, "^[\252-\254]SMB") ~= nil
end
R.begins_smb2 = begins_smb2

local function data_of(s, wire)
    if #s < HEADER then
        return nil
    end
    local q1, q2, g1, g2, f1, f2, r1, r2, m0, m1, m2, m3, o0, o1, o2, o3, l0, l1, l2, l3 = byte(s, 1, HEADER)
    local offset, length = o3 * 16777216 + o2 * 65536 + o1 * 256 + o0, l3 * 16777216 + l2 * 65536 + l1 * 256 + l0
    return {
        requested = q2 * 256 + q1, granted = g2 * 256 + g1, flags = f2 * 256 + f1, reserved = r2 * 256 + r1,
        remaining = m3 * 16777216 + m2 * 65536 + m1 * 256 + m0, offset = offset, length = length,
        inside = offset + length <= wire and (length == 0 or offset >= HEADER),
        data = length > 0 and cut(s, max(HEADER, min(offset, #s)), length) or "",
    }
end

local function request_of(s)
    return #s >= 20 and {
        min = le16(s, 0), max = le16(s, 2), reserved = le16(s, 4), requested = le16(s, 6),
        preferred = le32(s, 8), receive = le32(s, 12), fragmented = le32(s, 16),
    }
end

local function response_of(s)
    return #s >= 32 and {
        min = le16(s, 0), max = le16(s, 2), version = le16(s, 4), reserved = le16(s, 6), requested = le16(s, 8), granted = le16(s, 10),
        status = le32(s, 12), read_write = le32(s, 16), preferred = le32(s, 20), receive = le32(s, 24), fragmented = le32(s, 28),
    }
end

local function is_request(s, wire)
    local r = wire < 1024 and le16(s, 0) == 0x0100 and request_of(s)
    return r and r.min == 0x0100 and r.max >= 0x0100 and r.max < 0x1000 and r.reserved == 0 and r.receive + r.fragmented > wire and wire < 1024
end

local function is_response(s, wire)
    local r = wire < 1024 and le16(s, 0) == 0x0100 and response_of(s)
    return r and r.min == 0x0100 and r.max == 0x0100 and r.reserved == 0 and wire < 1024
        and (r.status >= 0xc0000000 or (r.version == 0x0100 and r.receive > 0))
end

-- A data transfer message without data, in which nothing is out of order.
local function credits_alone(d, wire)
    return wire == HEADER and d.length == 0 and d.offset == 0 and d.remaining == 0 and d.reserved == 0 and d.flags <= 1 and d.requested > 0
end

-- Whether a message that should be a negotiation is data: it has an SMB2 message, or credits alone.
local function looks_like_data(s, wire)
    local d = data_of(s, wire)
    return d and (d.inside and begins_smb2(d.data) or credits_alone(d, wire))
end

-- The same of data that fills the message to the last byte, or that there is none of.
local function reads_as_data(s, wire)
    local d = data_of(s, wire)
    if not d then
        return false
    end
    local fills = d.length > 0 and d.offset >= HEADER and d.offset % 8 == 0 and d.offset + d.length == wire
    local empty = wire == HEADER and d.length == 0 and d.offset == 0 and d.remaining == 0
    -- the versions 1.0 to 1.0 of a Negotiate Request would be credits that nobody asks for and grants at once
    if empty and d.requested == 0x0100 and d.granted == 0x0100 then
        return false
    end
    return looks_like_data(s, wire) or (d.reserved == 0 and d.flags <= 1 and d.requested > 0 and (fills or empty))
end

-- Whether a Send can only be SMB Direct: "certain" by content, "guess" for a message of credits alone.
function R.smbd_looks_like(s, wire)
    if is_request(s, wire) or is_response(s, wire) then
        return "certain"
    end
    local d = data_of(s, wire)
    if not d then
        return nil
    end
    if d.inside and begins_smb2(d.data) then
        return "certain"
    end
    if credits_alone(d, wire) and (d.granted > 0 or d.flags == 1) then
        return "guess"
    end
    return nil
end

function R.smbd_begins(s, wire)
    return is_request(s, wire) or (wire < HEADER and not looks_like_data(s, wire))
end

local function side(known)
    return {
        credits = known and 0 or nil, remaining = known and 0 or nil,
        requested = 0, requested_max = 0, granted_total = 0, overruns = 0, messages = 0, stalled = 0, held_max_recent = 0,
    }
end

function R.smbd_new(late)
    return { phase = late and "established" or "idle", sides = { side(not late), side(not late) }, fragments = { {}, {} }, late = late }
end

-- Messages of `by` were missed.
function R.smbd_missed(l, by)
    for end_ = 1, 2 do
        local s = l.sides[end_]
        s.credits, s.dry, s.wet = nil, nil, nil
    end
    l.sides[by].remaining = nil
    if l.phase ~= "refused" then
        l.phase = "established"
    end
    l.fragments[by] = {}
end

-- Takes over the other half of a connection.
function R.smbd_adopt(l, by, from, from_end)
    l.sides[by] = from.sides[from_end]
    R.smbd_missed(l, by)
    l.fragments[by] = from.fragments[from_end]
end

-- Which message comes first is known of a connection only of which nothing is missing.
local function first(c, rule, by, at, text)
    if not c.missed then
        R.judge(c, rule, by, at, text)
    end
end

local function negotiate_request(c, l, at, by, r)
    if l.early then
        -- data came first, and was judged; from here on all is known
        l.early, l.phase, l.sides = nil, "idle", { side(true), side(true) }
        l.initiator, l.request, l.asked, l.read_write = nil, nil, nil, nil
    end
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    if l.phase ~= "idle" then
        return first(c, "SMBD-NEG-FIRST", by, at, "sent a Negotiate Request after the negotiation")
    end
    if l.opened and at.time - l.opened > 5000000000 then
        no("SMBD-NEG-TIMEOUT", "sent its Negotiate Request late")
    end
    l.initiator, l.phase, l.request, l.asked = by, "negotiating", r, at
    if r.reserved ~= 0 then
        no("SMBD-RESERVED", "set Reserved of the Negotiate Request")
    end
    if r.max < r.min or r.min > 0x0100 or r.max < 0x0100 then
        no("SMBD-NEG-REQ-VERSION", "offered versions that leave out 0x0100")
    end
    if r.requested == 0 then
        no("SMBD-NEG-REQ-CREDITS", "requested 0 credits in the Negotiate Request")
    end
    if r.receive < 128 then
        no("SMBD-NEG-REQ-RECVSIZE", "offered MaxReceiveSize " .. R.grouped(r.receive) .. "; at least 128 is required")
    end
    if r.fragmented < 131072 then
        no("SMBD-NEG-REQ-FRAGSIZE", "offered MaxFragmentedSize " .. R.grouped(r.fragmented) .. "; at least 131,072 is required")
    end
    if r.preferred >= 0x80000000 then
        no("BUG-CVE-2026-43185", "asked for a PreferredSendSize of " .. R.hex(r.preferred))
    elseif r.preferred > 8136 then
        no("SMBD-NEG-REQ-PREFERRED", "asked for a PreferredSendSize of " .. R.grouped(r.preferred) .. "; Windows servers refuse more than 8,136")
    end
    local s = l.sides[by]
    s.requested, s.requested_max = r.requested, r.requested
    s.receive, s.send, s.fragmented = r.receive, r.preferred, r.fragmented
end

local function reach(c, l, at)
    if not l.request then
        return
    end
    for receiver = 1, 2 do
        local to, from = l.sides[receiver], l.sides[R.peer(receiver)]
        -- nobody may offer less: the least is not the receiver's choice
        if to.fragmented and from.send and to.fragmented > 131072 then
            local payload = math.max(from.send - 24, 1)
            local needs, most = math.ceil(to.fragmented / payload), from.requested_max
            if to.fragmented >= 1048576 and l.initiator == receiver and most * from.send < to.fragmented then
                R.judge(c, "BUG-CIFS-MAX-FRAGMENTED-SIZE", receiver, at,
                    string.format("offers to reassemble %s bytes, more than %d credits of %d bytes carry", R.grouped(to.fragmented), most, from.send))
            end
            if needs > most then
                R.judge(c, "SMBD-NEG-REACH", receiver, at,
                    string.format("offers to reassemble %s bytes, which take %s sends of %d bytes; its peer asks for %d credits",
                        R.grouped(to.fragmented), R.grouped(needs), from.send, most))
            end
        end
    end
end

local function negotiate_response(c, l, at, by, r)
    local function no(rule, text)
        R.judge(c, rule, by, at, text)
    end
    if l.phase ~= "negotiating" or l.initiator == by then
        first(c, "SMBD-NEG-FIRST", by, at, "sent a Negotiate Response that answers no request")
        if l.phase ~= "idle" then
            return
        end
        l.initiator = R.peer(by)
    end
    if l.asked and at.time - l.asked.time > 120000000000 then
        first(c, "SMBD-NEG-TIMEOUT", by, at, "answered the Negotiate Request after " .. R.milliseconds(at.time - l.asked.time))
    end
    if r.reserved ~= 0 then
        no("SMBD-RESERVED", "set Reserved of the Negotiate Response")
    end
    if r.status ~= 0 then
        no("SMBD-NEG-RSP-STATUS", "refused the connection with " .. R.status_name(r.status))
        if r.version + r.requested + r.granted + r.read_write + r.preferred + r.receive + r.fragmented > 0 then
            no("SMBD-NEG-RSP-FAILURE-FIELDS", "filled in a Negotiate Response that refuses")
        end
        l.phase = "refused"
        return
    end
    local refused = false
    local function refuse(rule, text)
        refused = true
        no(rule, text)
    end
    if r.version ~= 0x0100 then
        refuse("SMBD-NEG-RSP-VERSION", "chose version " .. R.hex(r.version, 4) .. "; only 0x0100 exists")
    end
    if r.receive < 128 then
        refuse("SMBD-NEG-RSP-RECVSIZE", "offered MaxReceiveSize " .. R.grouped(r.receive) .. "; at least 128 is required")
    end
    if r.fragmented < 131072 then
        refuse("SMBD-NEG-RSP-FRAGSIZE", "offered MaxFragmentedSize " .. R.grouped(r.fragmented) .. "; at least 131,072 is required")
    end
    if r.granted == 0 then
        refuse("SMBD-NEG-RSP-GRANTED", "granted no credits in the Negotiate Response")
    end
    if r.requested == 0 then
        refuse("SMBD-NEG-RSP-REQUESTED", "requested no credits in the Negotiate Response")
    end
    local asked = l.request
    if asked and r.preferred > asked.receive then
        refuse("SMBD-NEG-RSP-PREFERRED", "prefers to send " .. R.grouped(r.preferred) .. " bytes; its peer receives " .. R.grouped(asked.receive))
    end
    local initiator, acceptor = l.sides[R.peer(by)], l.sides[by]
    initiator.receive = asked and math.max(math.min(asked.receive, r.preferred), 128) or nil
    initiator.send = math.min(asked and asked.preferred or 4294967295, r.receive)
    if initiator.credits then
        initiator.credits = initiator.credits + r.granted
    end
    initiator.granted_total = initiator.granted_total + r.granted
    initiator.held_max_recent = r.granted
    acceptor.requested, acceptor.requested_max = r.requested, r.requested
    acceptor.receive = r.receive
    acceptor.send = math.min(asked and asked.receive or 4294967295, r.preferred)
    acceptor.fragmented = r.fragmented
    l.read_write = r.read_write
    l.phase = refused and "refused" or "established"
    if not refused then
        reach(c, l, at)
    end
end

-- Rules over one message alone, and over the sizes agreed.
local function shape(c, l, at, by, d, wire)
    if d.requested == 0 then
        R.judge(c, "SMBD-DATA-CREDITS-REQUESTED", by, at, "requested 0 credits in a data transfer message")
    end
    if d.flags > 1 then
        R.judge(c, "SMBD-FLAGS", by, at, "set undefined flags: " .. R.hex(d.flags, 4))
    end
    if d.reserved ~= 0 then
        R.judge(c, "SMBD-RESERVED", by, at, "set Reserved of a data transfer message to " .. R.hex(d.reserved, 4))
    end
    if not d.inside and (d.length == 0 or d.offset >= HEADER) then
        R.judge(c, "SMBD-DATA-LENGTH", by, at, string.format("DataOffset %d + DataLength %d is past the end of a message of %d bytes", d.offset, d.length, wire))
    end
    if d.offset % 8 ~= 0 then
        R.judge(c, "SMBD-DATA-ALIGN", by, at, string.format("DataOffset %d is not a multiple of 8", d.offset))
    elseif d.length > 0 and d.offset < HEADER then
        R.judge(c, "SMBD-DATA-ALIGN", by, at, string.format("DataOffset %d lies inside the header", d.offset))
    elseif d.length == 0 and d.offset ~= 0 then
        R.judge(c, "SMBD-DATA-ALIGN", by, at, string.format("DataOffset is %d though there is no data", d.offset))
    end
    if (not d.inside or d.offset % 8 ~= 0) and d.length > 0 then
        R.judge(c, "BUG-CVE-2025-39943", by, at, string.format("DataOffset %d, DataLength %d in a message of %d bytes", d.offset, d.length, wire))
    end
    local to = l.sides[R.peer(by)]
    if to.receive and wire > to.receive then
        R.judge(c, "SMBD-DATA-TOO-BIG", by, at, string.format("sent %d bytes in one message; its peer receives %d", wire, to.receive))
    elseif l.sides[by].send and wire > l.sides[by].send then
        R.judge(c, "SMBD-DATA-TOO-BIG", by, at, string.format("sent %d bytes in one message; it agreed to send %d", wire, l.sides[by].send))
    end
    local whole = d.length + d.remaining
    if to.fragmented and whole > to.fragmented then
        R.judge(c, "SMBD-FRAG-TOO-BIG", by, at, string.format("announced a message of %s bytes; its peer reassembles %s", R.grouped(whole), R.grouped(to.fragmented)))
        R.judge(c, "BUG-CVE-2025-39942", by, at, string.format("DataLength + RemainingDataLength is %s, over the %s agreed", R.grouped(whole), R.grouped(to.fragmented)))
    end
end

local function fragment(c, l, at, by, d)
    local s = l.sides[by]
    local expected, whole = s.remaining, d.length + d.remaining
    if expected and expected > 0 and d.length == 0 then
        return
    elseif expected and expected > 0 and whole == expected then
        s.remaining = d.remaining
        return
    elseif expected and d.length > 0 and s.interrupted == whole then
        -- the message that was interrupted goes on where it was left
        s.interrupted = expected > 0 and expected or nil
        R.judge(c, "BUG-SMBDIRECT-BATCH-INTERLEAVE", by, at, "sent another message between the fragments of one")
    elseif expected and expected > 0 then
        s.interrupted = expected
        if d.remaining == 0 then
            R.judge(c, "SMBD-FRAG-REMAINING", by, at, string.format("sent %d bytes as the last of a message of which %d were left", d.length, expected))
        else
            R.judge(c, "SMBD-FRAG-REMAINING", by, at, string.format("sent %d bytes and announced %d more where %d were left", d.length, d.remaining, expected))
        end
    elseif d.remaining > 0 and d.length == 0 then
        R.judge(c, "SMBD-FRAG-REMAINING", by, at, string.format("announced %d bytes in a message without data", d.remaining))
    end
    if d.length > 0 then
        s.remaining = d.remaining
    end
end

-- The credit ledger. Returns how long the sender had waited for credits, in ns.
local function spend(c, l, at, by, d)
    local me, peer = l.sides[by], l.sides[R.peer(by)]
    me.messages = me.messages + 1
    me.requested = d.requested
    me.requested_max = max(me.requested_max, d.requested)
    if has(d.flags, 1) then
        me.keepalive = me.keepalive or at
    end
    if peer.keepalive then
        local waited = at.time - peer.keepalive.time
        peer.keepalive = nil
        if waited > KEEPALIVE_PROMPT then
            R.judge(c, "SMBD-KEEPALIVE", by, at, "answered a request for a response after " .. R.milliseconds(waited))
        end
    end
    local stalled = 0
    if me.dry and me.wet then
        local waited = me.wet.time - me.dry.time
        if d.length > 0 and waited >= STALL_LEAST and at.time - me.wet.time <= STALL_RELEASE then
            stalled = waited
            R.judge(c, "SMBD-CREDIT-STALL", R.peer(by), at, "kept its peer waiting " .. R.milliseconds(waited) .. " for credits")
        end
    end
    me.dry, me.wet = nil, nil
    local held = me.credits
    if held then
        if held <= 0 then
            me.overruns = me.overruns + 1
            R.judge(c, "SMBD-CREDIT-OVERRUN", by, at, "sent a message with no credit left")
        else
            if held == 1 and d.granted == 0 then
                R.judge(c, "SMBD-CREDIT-LAST", by, at, "spent its last credit on a message that grants none")
                R.judge(c, "BUG-SMBDIRECT-LAST-CREDIT", by, at, "spent the last credit with CreditsGranted 0")
            end
            me.credits = held - 1
            me.held_max_recent = max(me.held_max_recent, held)
            if held - 1 <= 1 then
                me.dry = at
            end
        end
        if me.messages % STARVED_MESSAGES == 0 then
            if not me.starved and me.held_max_recent * 4 < me.requested then
                me.starved = true
                R.judge(c, "SMBD-CREDIT-STARVED", R.peer(by), at, string.format("let its peer hold %d credits at most over %d messages; %d were asked for",
                    me.held_max_recent, STARVED_MESSAGES, me.requested))
            end
            me.held_max_recent = 0
        end
    end
    peer.granted_total = peer.granted_total + d.granted
    if peer.credits then
        peer.credits = peer.credits + d.granted
        if peer.credits > 65535 then
            R.judge(c, "SMBD-CREDIT-OVERFLOW", by, at, string.format("granted credits until its peer held %d; 65,535 is the most that can be meant", peer.credits))
        end
    end
    if d.granted > 0 and peer.dry and not peer.wet then
        peer.wet = at
    end
    return stalled
end

-- A fragment or a whole message. Returns the SMB2 message that it completes, where it does.
local function take(f, send, d, waited)
    if d.length == 0 then
        return nil
    end
    local continues = f.open and d.length + d.remaining == f.remaining
    if not continues and d.remaining == 0 then
        f.open = false
        return begins_smb2(d.data) and {
            first = send.first, last = send.last, bytes = d.data, wire = d.length, invalidate = send.invalidate, fragments = 1,
        } or nil
    end
    if not continues then
        f.parts, f.length, f.first, f.wire, f.count, f.invalidate, f.cut = {}, 0, send.first, 0, 0, nil, false
        f.open = begins_smb2(d.data)
        if not f.open then
            return nil
        end
    end
    f.count = f.count + 1
    f.invalidate = send.invalidate or f.invalidate
    f.wire = f.wire + d.length
    if not f.cut then
        f.parts[#f.parts + 1] = d.data
        f.length = f.length + #d.data
        f.cut = #d.data < d.length or f.length > REASSEMBLED_MAX
    end
    f.remaining = d.remaining
    if f.remaining > 0 then
        return nil
    end
    f.open = false
    local bytes = table.concat(f.parts)
    f.parts = nil
    return { first = f.first, last = send.last, bytes = bytes, wire = f.wire, invalidate = f.invalidate, fragments = f.count, reassembled = true }
end

local function response(c, l, at, by, s, wire)
    local r = response_of(s)
    if r then
        negotiate_response(c, l, at, by, r)
    elseif wire < 32 then
        R.judge(c, "SMBD-NEG-RSP-LENGTH", by, at, string.format("sent a Negotiate Response of %d bytes; it has 32", wire))
    else
        R.smbd_missed(l, by)
    end
    return nil, "response", 0
end

-- A whole Send of `by`. Returns the SMB2 message that it completes, the kind of SMB Direct message, and the time that its
-- sender had waited for credits.
function R.smbd_send(c, by, send)
    local l, s, wire, at = c.smbd, send.bytes, send.wire, send.last
    local asks, answers = is_request(s, wire), is_response(s, wire)
    -- a message that could be nothing else, and one that is due and is not data
    local due = false
    if l.phase == "idle" then
        due = answers and not asks
    elseif l.phase == "negotiating" then
        due = l.initiator ~= by and (answers or not reads_as_data(s, wire))
    elseif l.phase == "established" then
        due = answers and not looks_like_data(s, wire)
    end
    if due then
        return response(c, l, at, by, s, wire)
    end
    if asks or (l.phase == "idle" and not reads_as_data(s, wire)) then
        local r = request_of(s)
        if r then
            negotiate_request(c, l, at, by, r)
        elseif wire < 20 then
            R.judge(c, "SMBD-NEG-REQ-LENGTH", by, at, string.format("sent a Negotiate Request of %d bytes; it has 20", wire))
        else
            R.smbd_missed(l, by)
        end
        return nil, "request", 0
    end
    local d = data_of(s, wire)
    if not d then
        if wire < HEADER then
            R.judge(c, "SMBD-DATA-LENGTH", by, at, string.format("sent a message of %d bytes; the header alone has 20", wire))
        end
        return nil, "data", 0
    end
    if d.offset > HEADER and d.offset <= #s and string.find(cut(s, HEADER, d.offset - HEADER), "[^\0]") then
        R.judge(c, "SMBD-RESERVED", by, at, "left something else than zeros in the padding before the data")
    end
    if l.phase == "idle" then
        first(c, "SMBD-NEG-FIRST", by, at, "sent data before the negotiation")
        R.smbd_missed(l, by)
        l.early = true
    elseif l.phase == "negotiating" then
        if l.initiator ~= by then
            first(c, "BUG-KSMBD-EARLY-DATA", by, at, "sent a data transfer message before its Negotiate Response")
            -- the response is still to come; nothing of this message was agreed on, its grant least of all
            shape(c, l, at, by, d, wire)
            l.sides[by].messages = l.sides[by].messages + 1
            return take(l.fragments[by], send, d, 0), "data", 0
        end
        first(c, "SMBD-NEG-FIRST", by, at, "sent data before the Negotiate Response came")
        R.smbd_missed(l, by)
    end
    shape(c, l, at, by, d, wire)
    fragment(c, l, at, by, d)
    local stalled = spend(c, l, at, by, d)
    return take(l.fragments[by], send, d, stalled), "data", stalled
end
