-- Ports of SMB and NFS that carry MPA. Wireshark's own MPA is found by TCP's heuristics, which come last, and cannot be called from here: it wants
-- to know more of TCP than a plugin can tell it. So whoever owns the port has to step aside, and cannot be called from here either: NetBIOS wants the
-- same, and an exception of Artemis's would leave through Lua, which bears that only so often. TCP asks the conversation's dissector, then the owner of
-- the lower port, then that of the higher one. 445 is NetBIOS's: there a conversation is ours from its SYN on, and for a frame with MPA the owner leaves
-- the table until the frame is done. 5445 is Artemis's: there we are the owner, and a frame that is not MPA finds Artemis at the other port.

local claim = Proto("rdmascope_mpa", "MPA on a port of SMB or NFS")
local ports, changes, owners = DissectorTable.get("tcp.port"), {}, {}
R.changes = changes
for _, port in ipairs({ 445, 5445, 20049 }) do
    owners[port] = ports:get_dissector(port)
end

-- Both ports of a frame.
local source_of, destination_of
local function ports_of(pinfo)
    if not source_of then
        source_of, destination_of = R.property(pinfo, "src_port"), R.property(pinfo, "dst_port")
    end
    return source_of(pinfo), destination_of(pinfo)
end

-- Remembers a TCP connection that carries MPA, by its two ports, since a frame. Two connections of the same ports may be taken for one: then whoever
-- owns the port is asked second in place of first.
local function claim_it(src, dst, number)
    R.claimed[src * 65536 + dst], R.claimed[dst * 65536 + src] = number, number
end

-- The connection of this frame may carry MPA; `is_mpa`: it does.
function R.claim_ports(pinfo, is_mpa)
    local src, dst = ports_of(pinfo)
    if (src == 445 or dst == 445) and not R.claimed[src * 65536 + dst] then
        pinfo.conversation = claim
        if is_mpa then
            claim_it(src, dst, pinfo.number)
        end
    end
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
    if tvb:len() < 16 then
        return false
    end
    local key = tvb:raw(0, 16)
    return key == "MPA ID Req Frame" or key == "MPA ID Rep Frame"
end

function claim.dissector(tvb, pinfo)
    local src, dst = ports_of(pinfo)
    local number, since = pinfo.number, R.claimed[src * 65536 + dst]
    if not since and is_startup(tvb) then
        claim_it(src, dst, number)
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
