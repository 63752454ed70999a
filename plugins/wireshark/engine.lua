-- The engine: the analysis as a library, loaded into Wireshark. Without it, only results that need no state are shown.
-- R is the table that `rdmascope export wireshark` generates, with rules and fields. For Lua 5.2 to 5.4.

-- Wireshark creates some Lua objects for each frame, and in unknown versions a string with its bytes. By default Lua
-- would run a full garbage collection every few hundred frames: let five times as much accumulate.
collectgarbage("setpause", 500)

local NAME = package.config:sub(1, 1) == "\\" and "rdmascope_engine.dll" or "librdmascope_engine.so"

-- Candidate paths, of which the first existing file is used.
local function places()
    -- a plugin named without a folder is in the current one
    local source = debug and debug.getinfo(1, "S").source:match("^@(.*)")
    local here = source and (source:match("^(.*[/\\])") or "./") .. NAME
    local list = { os.getenv("RDMASCOPE_ENGINE") or "", here or "", Dir.personal_plugins_path() .. "/" .. NAME, R.engine or "" }
    list[5], list[6] = "/usr/lib/rdmascope/" .. NAME, "/usr/local/lib/rdmascope/" .. NAME
    return list
end

-- The engine's function, or nil and the reason.
local function load()
    if not (package and package.loadlib) then
        return nil, "this Lua loads no libraries"
    end
    local why
    for _, path in ipairs(places()) do
        local file = io.open(path, "rb")
        if file then
            file:close()
            local call, problem = package.loadlib(path, "luaopen_rdmascope_engine")
            local version = call and call("version")
            if version == R.version then
                return call
            end
            why = why or path .. ": " .. (call and "is of version " .. tostring(version) .. ", this plugin of " .. R.version or tostring(problem))
        end
    end
    return nil, why or NAME .. " was not found"
end

R.call, R.why_not = load()
if not R.call then
    R.why_not = "rdmascope: no analysis here (" .. R.why_not .. "); `rdmascope export wireshark --install` installs the engine."
    io.stderr:write(R.why_not, "\n")
end

-- State of the current capture: engine handle, number of frames fed, number fed when findings were last settled, and
-- whether the capture was then treated as ended.
local handle, fed, settled, is_over, fed_at = nil, 0, 0, false, 0
-- Whole seconds of the first frame's time, and the offset added to times since then: if another frame becomes the first,
-- times must not change. `last` is the time of the last frame fed; before the first one, later than any.
local start, shift, base, last = 0, 0, nil, math.huge
local has_window, call = gui_enabled(), R.call
-- The last printed reason why keys are not used.
local told = nil

-- A property of a frame as a function: looking it up by name each time, as Wireshark does, takes half as long again.
function R.property(pinfo, name)
    local meta = getmetatable(pinfo)
    local known = type(meta) == "table" and type(meta.__getters) == "table" and meta.__getters[name]
    return known or function(frame) return frame[name] end
end

local since_first, length_of, bytes_of

-- Looks up such getters with the help of a frame; returns the one for its number. In known versions the engine reads a
-- frame's bytes from Wireshark's memory: this is tried with this frame.
function R.learn(tvb, pinfo)
    since_first, length_of, bytes_of = R.property(pinfo, "rel_ts"), R.property(pinfo, "len"), tvb.raw
    if get_version():find("^4%.[0-6]%.") then
        local bytes, length = call("bytes", tvb)
        if bytes == tvb:raw() and length == pinfo.len then
            length_of, bytes_of = nil, nil
        end
    end
    return R.property(pinfo, "number")
end

-- Lua ends when Wireshark ends, and when it reloads its plugins.
R.at_end = setmetatable({}, {
    __gc = function()
        if handle then
            R.call("close", handle)
            handle = nil
        end
    end,
})

function R.reset_engine()
    if handle then
        R.call("close", handle)
    end
    handle, fed, settled, last, base = nil, 0, 0, math.huge, nil
    if R.call then
        local keys, why = R.keys()
        handle, R.failed = R.call("open", 0, keys)
        if not handle then
            why = R.failed
            handle, R.failed = R.call("open", 0, "")
        end
        R.without_keys = why and "Keys are not used: " .. why:gsub("^keys: ", "") or nil
        if why and why ~= told then
            told = why
            io.stderr:write("rdmascope: ", R.failed or R.without_keys, "\n")
        end
        if handle and R.wanted_fields then
            R.call("want", handle, R.wanted_fields)
        end
    end
end

-- A Lua number cannot hold a time in ns, but the time since the first frame. Called for the first frame, and for a
-- frame earlier than the last one fed: then another frame may have become the first.
local function looked_at(pinfo)
    local time = since_first(pinfo)
    if not base then
        base = pinfo.abs_ts - time
        start = math.floor(base)
        shift = math.floor((base - start) * 1e6 + 0.5) / 1e6
    else
        local now = pinfo.abs_ts - time
        if math.abs(now - base) > 0.001 then
            base, shift = now, now - start
        end
    end
    return time + shift
end

-- Findings are settled when the capture has ended. A window does not report that: there, it counts as ended when no frame
-- came for some seconds, and unanswered requests are reported. If more frames come, findings are settled again.
function R.settle(now)
    if not handle or (settled == fed and is_over) then
        return
    end
    if now or not has_window or os.time() - fed_at > 2 then
        settled, is_over = fed, true
        call("settle", handle, true)
    elseif settled == 0 or fed > settled * 1.25 + 1000 then
        settled, is_over = fed, false
        call("settle", handle, false)
    end
end

-- What reads the fields of a frame: the protocol alone, some fields, or everything.
R.PROTOCOL, R.SOME, R.ALL = 1, 2, 3

-- The fields that R.SOME stands for, one per line.
function R.want(names)
    R.wanted_fields = names
    if handle then
        call("want", handle, names)
    end
end

-- Results for a frame: a number (layer * 256 + flags), and the items that `look` needs. nil without an engine.
function R.say(number, tvb, pinfo, look)
    if not handle then
        return nil
    elseif number > fed then
        fed = number
        if has_window then
            fed_at = os.time()
        end
        local time = since_first(pinfo) + shift
        if time < last then
            time = looked_at(pinfo)
        end
        last = time
        return call(handle, number, time, length_of and length_of(pinfo), bytes_of and bytes_of(tvb) or tvb, look, start)
    end
    R.settle()
    return call(handle, number, look)
end

-- All items of a frame that has some.
function R.again(number)
    return call(handle, number, R.ALL)
end

-- Calls a named function of the engine.
function R.ask(what, ...)
    return R.call(what, handle, ...)
end

function R.report()
    if not handle then
        return R.failed or R.why_not
    end
    R.settle(true)
    local frames, memory, not_kept = R.call("status", handle)
    local room = not_kept > 0 and string.format("; no room for what was said of %d", not_kept) or ""
    local keys = R.without_keys and R.without_keys .. "\n" or ""
    return string.format("%s%s\n%.0f frames, %.1f MB remembered%s", keys, R.call("report", handle), frames, memory / 1e6, room)
end
