-- Display: fields and expert items, and frames that Wireshark leaves undecoded.

local p = Proto("rdmascope", "rdmascope: storage over RDMA")
-- owns the fields of other protocols that are added here, so that a filter on those does not count as one on ours
local lent = Proto("rdmascope_decoding", "What rdmascope decodes where Wireshark does not")
R.proto = p

-- ── Fields ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local function base_of(f)
    return f.base == "BASE_HEX" and base.HEX or base.DEC
end

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
        return ProtoField["uint" .. bits](f.name, f.label, base_of(f), f.values, f.mask)
    end
    MAKE["FT_INT" .. bits] = function(f)
        return ProtoField["int" .. bits](f.name, f.label, base.DEC)
    end
end

p.prefs.keys = Pref.string("Key file", "", "Keys and passwords as for rdmascope --keys: what was encrypted is analyzed with them")

-- The content of the key file, or nil and the reason.
function R.keys()
    local path = p.prefs.keys
    if not path or path == "" then
        return ""
    end
    local file, why = io.open(path, "rb")
    local text = file and file:read("*a")
    if file then
        file:close()
    end
    return text or "", not text and why or nil
end

-- Converts the two numbers of an item to the value of a field.
local VALUE = {
    FT_UINT64 = function(a, b) return UInt64.new(a, b) end,
    FT_INT64 = function(a, b) return Int64.new(b < 2147483648 and b * 4294967296 + a or (b - 4294967296) * 4294967296 + a) end,
    FT_RELATIVE_TIME = function(a, b) return NSTime.new(a, b) end,
    FT_BYTES = function(a) return ByteArray.new(a, true):tvb("bytes"):range() end,
}

local field, value_of, scale, names, of_proto, of_others = {}, {}, {}, {}, {}, {}
for n, f in ipairs(R.fields) do
    names[n], value_of[n], scale[n] = f.name, VALUE[f.kind], f.scale
    if f.name ~= "rdmascope" and f.name ~= "smb2" then
        field[n] = MAKE[f.kind](f)
        local list = f.lent and of_others or of_proto
        list[#list + 1] = field[n]
    end
end
p.fields, lent.fields = of_proto, of_others

-- One expert item for each rule, so that Wireshark counts them.
local level = { error = expert.severity.ERROR, warn = expert.severity.WARN, note = expert.severity.NOTE }
local expert_of, experts = {}, {}
for id, row in pairs(R.rules) do
    local name = "rdmascope.rule." .. id:lower():gsub("-", "_")
    expert_of[id] = ProtoExpert.new(name, id .. ": " .. row.title, expert.group.PROTOCOL, level[row.severity])
    experts[#experts + 1] = expert_of[id]
end
p.experts = experts

-- ── Items ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

local DOUBT = { guess = " (a guess)", if_nothing_was_missed = " (if the capture missed nothing)" }
local WHO = { client = "the client ", server = "the server ", network = "the network ", capture = "the capture ", unknown = "one side " }

-- The bytes at an item's place, if present.
local function range_of(tvb, place)
    local offset = place % 4294967296
    local length = (place - offset) / 4294967296
    local room = tvb:len() - offset
    if room <= 0 or length <= 0 then
        return nil
    end
    return tvb:range(offset, math.min(length, room))
end

-- `tree.add`, cached: Wireshark would look it up by name each time.
local add_to

-- Adds one item to a tree.
local function add(tree, n, range, a, b)
    local f, value = field[n], a
    if a ~= false then
        local make = value_of[n]
        if make then
            value = make(a, b)
        end
        value = scale[n] and value * scale[n] or value
        if not range then
            return add_to(tree, f, value)
        elseif R.fields[n].kind ~= "FT_BYTES" then
            return add_to(tree, f, range, value)
        end
    end
    return range and add_to(tree, f, range) or add_to(tree, f)
end

-- Adds items one after another. Used without a visible tree: only their fields are read.
local function add_some(tree, tvb, n, _, place, a, b, ...)
    add(tree, n, place and range_of(tvb, place), a, b)
    if ... then
        return add_some(tree, tvb, ...)
    end
end

-- A finding. Its parts follow it; there are no other parts than these.
local function finding(item, items, n)
    local part = {}
    while items[n] and items[n + 1] > 0 do
        part[names[items[n]]:match("[^.]+$")] = items[n + 3]
        n = n + 5
    end
    local row = R.rules[part.id]
    if row then
        item:set_text(part.id .. ": " .. row.title)
        item:add_proto_expert_info(expert_of[part.id], string.format("%s: %s%s%s. %s", part.id, WHO[part.by] or "", part.text, DOUBT[part.certainty] or "", row.spec))
    end
end

-- Adds items to a tree; of messages only the one that is `alone`.
local function fill(tree, tvb, items, alone)
    local parents = { [0] = tree }
    for n = 1, #items, 5 do
        local f, depth, place = items[n], items[n + 1], items[n + 2]
        local name = names[f]
        if alone or name ~= "smb2" and name ~= "smb_direct" then
            local range = place and range_of(tvb, place)
            local item = add(parents[depth] or tree, f, range, items[n + 3], items[n + 4])
            parents[depth + 1] = range and item or item:set_generated()
            if name == "rdmascope.finding" then
                finding(item, items, n + 5)
            end
        end
    end
end

-- The bytes of an item, in the frame or apart. nil if they were dropped or are incomplete.
local function bytes_of(tvb, number, items, n, name)
    local place = items[n + 2]
    if place then
        local range = range_of(tvb, place)
        return range and range:tvb()
    end
    local s = R.ask("message", number, items[n + 3])
    return s and #s > 0 and ByteArray.new(s, true):tvb(name) or nil
end

-- Shows an SMB Direct message that Wireshark did not recognize.
local function show_smb_direct(b, pinfo, root)
    local list = { R.ask("smb_direct", b:raw()) }
    table.remove(list, 1)
    if #list == 0 then
        return
    end
    fill(root, b, list, true)
    local what = "DataMessage"
    for n = 1, #list, 5 do
        local f = R.fields[list[n]]
        what = list[n + 1] == 1 and f.kind == "FT_NONE" and f.label or what
    end
    pinfo.cols.protocol:set("SMBDirect")
    pinfo.cols.info:set(what)
end

-- A malformed message raises an exception that passes through Lua unnoticed; up to 5.3, Lua survives two hundred.
local escaped, ESCAPED_MAX = 0, 30

local function show_smb2(b, pinfo, root)
    if escaped >= ESCAPED_MAX then
        return
    end
    escaped = escaped + 1
    DissectorTable.try_heuristics("smb_direct", b, pinfo, root)
    escaped = escaped - 1
end

-- ── Frames ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Requests of tshark: our fields in its arguments, one per line, and whether they name the protocol. If it only counts,
-- nothing reads fields; if it prints fields that Wireshark decodes in every frame, nothing reads the rest. In a window,
-- and in doubt, everything may be read.
local asked, is_protocol_asked, is_counting, is_watched = nil, true, false, true
if R.call and not gui_enabled() then
    local has_asked, protocol, nothing, others = R.call("asked")
    if has_asked then
        asked, is_protocol_asked, is_counting, is_watched = has_asked, protocol, nothing, others
    end
end
R.wanted_fields = asked

-- A value that Wireshark found in a frame. A requested field costs a tree for each frame: none if it only counts.
local function known(name)
    local ok, f = nil, nil
    if is_watched then
        ok, f = pcall(Field.new, name)
    end
    return ok and f or function() end
end
local of = { smb_direct = known("smb_direct"), smb2 = known("smb2") }
-- has the same name as one of those: looked up wherever fields are
local probe
for n, name in ipairs(names) do
    probe = name == "smb_direct" and field[n] or probe
end
if not R.call then
    of.opcode, of.qp = known("infiniband.bth.opcode"), known("infiniband.bth.destqp")
    of.channel, of.blob = known("smb2.channel"), known("smb2.channel_info_blob")
    of.remaining, of.data = known("smb2.read_remaining"), known("smb2.read_data")
end

local PROTOCOL, SOME, ALL = R.PROTOCOL, R.SOME, R.ALL
-- Fields that a filter or a column needs, and the last frame for which they were looked up.
local ours, referenced, last_looked = nil, nil, 0

-- What reads our fields in this frame: a filter, a column or a tree. PROTOCOL if perhaps that alone; nil if nothing.
local function wanted(root, number)
    ours = ours or Dissector.get("rdmascope")
    if not root:referenced(ours) then
        return nil
    elseif asked then
        return asked ~= "" and SOME or is_protocol_asked and PROTOCOL or nil
    elseif root.visible then
        return ALL
    end
    -- this changes with filters and columns, and then frames are dissected again
    if not referenced or number <= last_looked then
        local list = {}
        for n, f in ipairs(R.fields) do
            list[#list + 1] = field[n] and not f.lent and root:referenced(field[n]) and f.name or nil
        end
        local found = table.concat(list, "\n")
        if found ~= referenced then
            R.want(found)
        end
        referenced = found
    end
    last_looked = number
    return referenced ~= "" and SOME or PROTOCOL
end

local SMB_DIRECT, SMB2 = 10, 12
local MPA, SYN, SETTLED, FINDING, DECODED, HAS_FACTS, NO_MPA = 2, 4, 8, 16, 32, 64, 128

local function has(flags, bit)
    return flags % (bit + bit) >= bit
end

-- Shows SMB Direct and SMB2 messages of a frame that Wireshark did not decode, or reassembled wrongly.
local function show_messages(number, items, tvb, pinfo, root, stock, stock2)
    local whole = {}
    for n = 1, #items, 5 do
        local is_smb2, is_smb_direct = names[items[n]] == "smb2", names[items[n]] == "smb_direct" and items[n + 1] == 0
        if is_smb2 and (items[n + 4] == true or not stock2) or is_smb_direct and not stock then
            local b = bytes_of(tvb, number, items, n, is_smb2 and "SMB2 message" or "SMB Direct message")
            if b and is_smb2 then
                whole[#whole + 1] = b
            elseif b then
                show_smb_direct(b, pinfo, root)
            end
        end
    end
    return whole
end

local function show(who, number, tvb, pinfo, root, state, ...)
    local flags = state % 256
    local layer = (state - flags) / 256
    local items = who == ALL and { ... } or nil
    local is_message = layer == SMB_DIRECT or layer == SMB2
    local stock, stock2, looks = true, true, false
    if is_message or has(flags, DECODED) then
        -- SMB2 exists only within SMB Direct; each lookup costs half a microsecond
        stock2 = of.smb2() ~= nil
        stock = stock2 or of.smb_direct() ~= nil
        -- in the first of two passes no fields exist and nothing reads them; in the second there may be too few, but
        -- there is a column
        local primed = stock or root:referenced(probe)
        looks = primed or has(flags, SETTLED)
        if looks and not primed then
            local column = tostring(pinfo.cols.protocol)
            stock2 = column == "SMB2"
            stock = stock2 or column == "SMBDirect"
        end
    end
    local undecoded = looks and not (stock2 or layer == SMB_DIRECT and stock)
    local list = items
    if not items and (has(flags, DECODED) or undecoded or has(flags, FINDING) and not asked) then
        list = { R.again(number) }
        table.remove(list, 1)
    end
    if not list or #list == 0 then
        return
    end
    local whole = looks and show_messages(number, list, tvb, pinfo, root, stock, stock2)
    items = items or not asked and list or {}
    local others = false
    for n = 1, #items, 5 do
        if field[items[n]] and names[items[n]] ~= "smb_direct" then
            others = true
        end
        if names[items[n]] == "rdmascope.cnp" then
            pinfo.cols.info:set(string.format("CNP: slow down QP=0x%06x", items[n + 3]))
        end
    end
    if others and (who or has(flags, FINDING) or has(flags, DECODED)) then
        fill(root:add(p):set_generated(), tvb, items)
    end
    -- a malformed message raises an exception that ends the frame: it comes last
    for _, b in ipairs(whole or {}) do
        show_smb2(b, pinfo, root)
    end
end

-- ── Without an engine: what one packet tells by itself ─────────────────────────────────────────────────────────────────────

-- Adds a structure of R.layouts: returns its subtree, its numbers by name, and its end. nil if it is incomplete.
local function structure(tree, name, range, from, stop)
    local layout, numbers = R.layouts[name], {}
    if from + layout.length > stop then
        return nil
    end
    local item = tree:add(field[layout.node], range:range(from, layout.length))
    for _, part in ipairs(layout) do
        local bytes = range:range(from + part.at, part.length)
        item:add_le(field[part.field], bytes)
        numbers[part.name] = part.length <= 4 and bytes:le_uint()
    end
    return item, numbers, from + layout.length
end

-- SMB2_RDMA_TRANSFORM with its descriptors, and its transforms up to the first incomplete one.
local function show_transform(tree, range)
    local item, head, at = structure(tree, "transform", range, 0, range:len())
    local list, size = head and head.descriptor_offset, head and head.descriptor_length
    local stop = item and size > 0 and list >= at and math.min(list, range:len()) or range:len()
    for _ = 1, item and head.transform_count or 0 do
        local crypto, parts, behind = structure(item, "crypto", range, at, stop)
        at = behind
        for _, name in ipairs({ "signature", "nonce" }) do
            local length = crypto and parts[name .. "_length"]
            if not crypto or at + length > stop then
                goto descriptors
            elseif length > 0 then
                crypto:add(field[R.layouts.crypto[name]], range:range(at, length))
            end
            at = at + length
        end
    end
    ::descriptors::
    local first = list
    while item and first >= R.layouts.transform.length and structure(item, "descriptor", range, list, math.min(first + size, range:len())) do
        list = list + R.layouts.descriptor.length
    end
end

local function show_alone(pinfo, root)
    local opcode, qp = of.opcode(), of.qp()
    if opcode and qp and opcode.value == R.layouts.cnp then
        pinfo.cols.info:set(string.format("CNP: slow down QP=0x%06x", qp.value))
    end
    -- in a request, the channel tells the kind of the blob; in a READ reply, the flags after the remaining length do
    local before = { blob = { of.channel() }, data = { of.remaining() } }
    for name, heads in pairs(before) do
        for _, blob in ipairs({ of[name]() }) do
            local is_transform = false
            for _, head in ipairs(heads) do
                if name == "blob" and head.offset < blob.offset then
                    is_transform = head.value == R.layouts.channel
                elseif head.offset < blob.offset then
                    is_transform = head.source:range(head.offset + head.len, 4):le_uint() % 2 == 1
                end
            end
            if is_transform then
                show_transform(root:add(p):set_generated(), blob.range)
            end
        end
    end
    if (pinfo.src_port == 445 or pinfo.dst_port == 445) and not pinfo.visited then
        R.claim_ports(pinfo, false)
    end
end

local function shown(who, number, tvb, pinfo, root, state, ...)
    if not state then
        return
    end
    local flags = state % 256
    local is_special = has(flags, FINDING) or has(flags, DECODED)
    if who and who ~= ALL and (asked or not is_special) then
        if ... then
            add_some(root, tvb, ...)
        end
        if is_protocol_asked and has(flags, HAS_FACTS) then
            add_to(root, p)
        end
        who = nil
    end
    -- most frames have neither messages nor anything else to show, and Wireshark decoded most SMB2 messages
    local is_message = is_watched and state >= 256 * SMB_DIRECT and not (state - flags == 256 * SMB2 and of.smb2())
    if not (who or is_message or flags % HAS_FACTS ~= 0 or flags >= NO_MPA) then
        return
    elseif has(flags, MPA) or has(flags, SYN) or has(flags, NO_MPA) then
        R.claim_ports(pinfo, has(flags, MPA))
    end
    if who or is_message or is_watched and is_special then
        show(who, number, tvb, pinfo, root, state, ...)
    end
end

-- Without a window, what reads consecutive new frames does not change: it is looked up again from frame `newest` on.
local who_looks, holds_for, newest = nil, nil, 0

function p.init()
    R.reset_engine()
    R.reset_ports()
    holds_for, newest = nil, 0
end

local changes, say, has_window, number_of = R.changes, R.say, gui_enabled(), nil

function p.dissector(tvb, pinfo, root)
    if changes[1] then
        R.come_back()
    end
    if not R.call then
        return show_alone(pinfo, root)
    end
    number_of, add_to = number_of or R.learn(tvb, pinfo), add_to or root.add
    local number = number_of(pinfo)
    if number ~= holds_for then
        who_looks = not is_counting and wanted(root, number) or nil
    end
    holds_for = nil
    if number > newest then
        newest = number
        holds_for = not has_window and number + 1
    end
    shown(who_looks, number, tvb, pinfo, root, say(number, tvb, pinfo, who_looks))
end

register_postdissector(p)
