-- The engine: the analysis itself, a library that is loaded into Wireshark. What it says of frames is all that is shown; without it, there is
-- what needs no state. R is the table that `rdmascope export wireshark` generates, with rules and fields in it. For Lua 5.2 to 5.4.

-- Of each frame Wireshark leaves some objects, and in versions that are not known a string of its bytes. Lua would look through all it has for every
-- few hundred of them: five times as much may gather.
collectgarbage("setpause", 500)

local NAME = package.config:sub(1, 1) == "\\" and "rdmascope_engine.dll" or "librdmascope_engine.so"

-- Places to look at, the first that is there wins: what the environment says, beside this file, where it was when this file was made, packages'.
local function places()
    -- of a plugin that was named without a folder, the current one
    local source = debug and debug.getinfo(1, "S").source:match("^@(.*)")
    local here = source and (source:match("^(.*[/\\])") or "./") .. NAME
    local list = { os.getenv("RDMASCOPE_ENGINE") or "", here or "", Dir.personal_plugins_path() .. "/" .. NAME, R.engine or "" }
    list[5], list[6] = "/usr/lib/rdmascope/" .. NAME, "/usr/local/lib/rdmascope/" .. NAME
    return list
end

-- The engine's function; without it, why.
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

-- The analysis of the capture at hand; how many frames of it were fed, of how many findings were settled, and whether as if they were all.
local handle, fed, settled, is_over, fed_at = nil, 0, 0, false, 0
-- Whole seconds of the first frame's time, and what is added to the time since then: where somebody makes another frame the first, time goes on.
-- When the last frame came; before the first one, later than any.
local start, shift, base, last = 0, 0, nil, math.huge
local has_window, call = gui_enabled(), R.call
-- Why keys were not used, where that was told.
local told = nil

-- A property of a frame, as a function. Wireshark looks for it by its name first; the function that it finds takes a third less time.
function R.property(pinfo, name)
    local meta = getmetatable(pinfo)
    local known = type(meta) == "table" and type(meta.__getters) == "table" and meta.__getters[name]
    return known or function(frame) return frame[name] end
end

local since_first, length_of, bytes_of

-- Learns such functions from a frame; that of its number. In versions that are known the engine reads a frame's bytes where they lie: that is tried
-- with this one.
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

-- Lua ends with Wireshark, and when that loads its plugins anew.
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

-- A number of Lua has no room for a time in ns, but for that since the first frame. Of the first frame, and of one that came before the one that
-- was handed over last: there the first frame may be another one by now.
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

-- Findings are settled when the capture is over. In the window nobody says when: there, when nothing came for some seconds, and what was not
-- answered by then is told. Where more comes, that is looked at again.
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

-- Who looks at a frame: at the protocol alone, at some fields, at all there is.
R.PROTOCOL, R.SOME, R.ALL = 1, 2, 3

-- The fields that R.SOME stands for, a line each.
function R.want(names)
    R.wanted_fields = names
    if handle then
        call("want", handle, names)
    end
end

-- What is said of a frame: a number (layer * 256 + flags), and items for whom looks at them. Nothing where there is no engine.
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

-- All items of a frame that was said to have some.
function R.again(number)
    return call(handle, number, R.ALL)
end

-- A call of the engine's that has a name.
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
