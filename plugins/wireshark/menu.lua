-- Menus of Wireshark's window: the report and its parts, and explanations of rules.

-- Joins the lines of paragraphs: a window wraps text by itself.
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

local function filter_by(text)
    set_filter(text)
    apply_filter()
end

-- Selects a frame. Wireshark has no call for that in plugins: a filter that passes only this frame selects it. It stays
-- selected when "All frames" removes the filter; both at once do not work.
local function go_to(number)
    filter_by("frame.number == " .. number)
end

-- The lines of a part of the report without its heading; without a name, all lines.
local function part_of(text, name)
    local lines, is_in = {}, not name
    for line in (text .. "\n"):gmatch("(.-)\n") do
        local heading = line:match("^# (.+)")
        if name and heading then
            is_in = heading == name
        end
        if is_in then
            lines[#lines + 1] = line
        end
    end
    return lines
end

-- A window with the report or a part of it. Text cannot be clicked: buttons go through the frames that begin its lines.
local function show(name)
    local window = TextWindow.new(name and "rdmascope: " .. name or "rdmascope")
    local lines, places, at
    local function draw()
        local out = {}
        for n, line in ipairs(lines) do
            out[n] = (at and places[at].line == n and "> " or "  ") .. line
        end
        local here = at and "> " .. lines[places[at].line] .. "\n\n" or ""
        window:set(here .. table.concat(out, "\n"))
    end
    local function read()
        lines, places, at = part_of(R.report(), name), {}, nil
        for n, line in ipairs(lines) do
            local number = line:match("^frame (%d+)")
            if number then
                places[#places + 1] = { line = n, frame = number }
            end
        end
        draw()
    end
    local function step(by)
        if #places > 0 then
            at = at and (at - 1 + by) % #places + 1 or (by > 0 and 1 or #places)
            draw()
            go_to(places[at].frame)
        end
    end
    read()
    window:add_button("Next", function() step(1) end)
    window:add_button("Previous", function() step(-1) end)
    window:add_button("Go to frame...", function()
        new_dialog("Go to frame", function(number)
            if number:find("^%s*%d+%s*$") then
                go_to(number)
            end
        end, "Frame")
    end)
    window:add_button("With findings", function() filter_by("rdmascope.finding") end)
    window:add_button("Answers", function() filter_by("rdmascope.exchange.time") end)
    window:add_button("All frames", function() filter_by("") end)
    window:add_button("Again", read)
end

if gui_enabled() then
    -- a plugin cannot add submenus to Statistics
    register_menu("rdmascope", function() show() end, MENU_STAT_UNSORTED)
    for _, name in ipairs({ "Sessions", "Requests by time", "Findings" }) do
        register_menu("rdmascope: " .. name, function() show(name) end, MENU_STAT_UNSORTED)
    end
    register_menu("rdmascope/Explain a finding...", function()
        new_dialog("Explain a finding", explain, "Rule, as in rdmascope.finding.id")
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
        -- the first value of a field of the clicked frame
        local function of_field(name, act)
            return function(...)
                for _, f in ipairs({ ... }) do
                    if f.name == name then
                        return act(tostring(f.value))
                    end
                end
            end
        end
        local id, exchange = "rdmascope.finding.id", "rdmascope.exchange"
        register_packet_menu("rdmascope/Explain this finding", of_field(id, explain), id)
        register_packet_menu("rdmascope/Frames of this request", of_field(exchange, function(number)
            filter_by(exchange .. " == " .. number)
        end), exchange)
        register_packet_menu("rdmascope/Go to its request", of_field(exchange .. ".request", go_to), exchange .. ".request")
    end
end
