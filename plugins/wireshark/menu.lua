-- Menus of Wireshark's window: the report, findings and what rules say.

-- Text without the ends of lines inside of paragraphs: a window breaks lines where it wants.
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

-- The report, with buttons that show the frames that it is of.
local function report()
    local window = TextWindow.new("rdmascope")
    window:set(R.report())
    local function filter(label, text)
        window:add_button(label, function()
            set_filter(text)
            apply_filter()
        end)
    end
    filter("Frames with findings", "rdmascope.finding")
    filter("Errors", 'rdmascope.finding.severity == "error"')
    filter("Answers, with their time", "rdmascope.exchange.time")
    filter("All frames", "")
    window:add_button("Again", function()
        window:set(R.report())
    end)
end

if gui_enabled() then
    register_menu("rdmascope", report, MENU_STAT_UNSORTED)
    register_menu("rdmascope/Findings of this capture", report, MENU_TOOLS_UNSORTED)
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
        register_packet_menu("rdmascope/Explain this finding", function(...)
            for _, f in ipairs({ ... }) do
                if f.name == "rdmascope.finding.id" then
                    explain(tostring(f.value))
                end
            end
        end, "rdmascope.finding.id")
    end
end
