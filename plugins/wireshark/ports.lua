-- Ports of SMB that carry MPA. Wireshark's own MPA dissector is found by TCP's heuristics, which are tried last, and
-- cannot be called from here, because it needs TCP data that a plugin cannot pass on. So the dissector that owns the
-- port must step aside. It cannot be called from here either: NetBIOS needs the same data, and an exception of
-- Artemis's dissector would pass through Lua, which survives only a limited number of them. TCP calls the
-- conversation's dissector, then the owner of the server's port if it saw the SYN, then that of the lower port, and,
-- without SYN or up to 4.0, that of the higher one. Port 445 belongs to NetBIOS: we own a conversation there from its
-- SYN on, and for a frame with MPA, NetBIOS is removed from the table until the frame is done. Port 5445 belongs to
-- Artemis: we replace it, and for a frame without MPA, Artemis's dissector is the next one called, through the same
-- port or the other one. While all connections of a capture on 5445 carry MPA, nobody owns that port: two calls for
-- each segment would take longer than the analysis.

local claim = Proto("rdmascope_mpa", "MPA on a port of SMB")
local ports, changes = DissectorTable.get("tcp.port"), {}
local owners = { [445] = ports:get_dissector(445), [5445] = ports:get_dissector(5445) }
R.changes = changes

-- By a connection's two ports: the frame since which it carries MPA; connections on 5445 not known to carry MPA. Two
-- connections with the same ports are treated as one.
local claimed, others = {}, {}
-- True if 5445 is ours.
local is_ours = false

local function own(wanted)
    if wanted ~= is_ours and owners[5445] then
        is_ours = wanted
        ports[wanted and "add" or "remove"](ports, 5445, claim)
    end
end

function R.reset_ports()
    claimed, others = {}, {}
    own(true)
end

-- Both ports of a frame, and a key for the connection.
local source_of, destination_of
local function ports_of(pinfo)
    if not source_of then
        source_of, destination_of = R.property(pinfo, "src_port"), R.property(pinfo, "dst_port")
    end
    local src, dst = source_of(pinfo), destination_of(pinfo)
    return src, dst, src < dst and src * 65536 + dst or dst * 65536 + src
end

-- The connection of this frame may carry MPA; with `is_mpa` it does. We own 5445 from the next frame on, if one needs it.
function R.claim_ports(pinfo, is_mpa)
    local src, dst, name = ports_of(pinfo)
    if src == 445 or dst == 445 then
        if not claimed[name] then
            pinfo.conversation = claim
        end
    elseif src ~= 5445 and dst ~= 5445 then
        return
    end
    if is_mpa then
        claimed[name], others[name] = claimed[name] or pinfo.number, nil
    elseif src ~= 445 and dst ~= 445 and not claimed[name] then
        others[name] = true
    end
    own(next(others) ~= nil or next(claimed) == nil)
end

-- Until the frame is done, `to` owns `port` instead of `from`; either may be nil.
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

function R.come_back()
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

-- An MPA Request or Reply, RFC 5044 7.1.
local function is_startup(tvb)
    local key = tvb:len() >= 16 and tvb:raw(0, 16)
    return key == "MPA ID Req Frame" or key == "MPA ID Rep Frame"
end

function claim.dissector(tvb, pinfo)
    local src, dst, name = ports_of(pinfo)
    local number, since = pinfo.number, claimed[name]
    if not since and is_startup(tvb) then
        claimed[name], others[name], since = number, nil, number
    end
    local is_mpa, port = since and number >= since, owners[dst] and dst or src
    local owner, other = owners[port], src + dst - port
    if port == 445 and is_mpa then
        change(port, owner, nil)
    elseif port == 5445 and not is_mpa then
        others[name] = not since or nil
        if owner then
            change(port, claim, owner)
            change(other, ports:get_dissector(other), owner)
        end
    end
    return 0
end

own(true)
