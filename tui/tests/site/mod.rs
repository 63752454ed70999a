//! The site: generated pages, outputs of commands in pages written by hand, and links. Part of the test `reports`, so
//! that `UPDATE=1 cargo test -p rdmascope --test reports` renews all of it.
//!
//! A fence ` ```console ` has commands after `$ ` and their output; they are run in the folder of the workspace.

use super::{samples, text};
use rdmascope_analyzer::finding::{Group, Rule};
use rdmascope_report::report::words::wrap;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const RENEW: &str = "UPDATE=1 cargo test -p rdmascope --test reports writes them anew";

fn root() -> PathBuf {
    samples().parent().expect("samples lie in the workspace").to_path_buf()
}

fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some_and(|v| v == "1")
}

/// Standard output of the program.
fn ask(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(arguments)
        .current_dir(root())
        .env_remove("NO_COLOR")
        .env("COLUMNS", "100")
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    text(&output)
}

/// Text escaped for Markdown, also for the cell of a table. A word between backticks stays one.
fn md(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escaped(text);
    }
    parts.iter().enumerate().map(|(n, part)| if n % 2 == 0 { escaped(part) } else { code(part) }).collect()
}

/// Text without a mark of Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '*' | '_' | '`' | '|' | '[' | ']' | '\\' => out.extend(['\\', c]),
            '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A word as a code span, also in the cell of a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Most characters of a line of prose in a page.
const WIDTH: usize = 120;

/// The page with its paragraphs, quotes and items of lists filled to [`WIDTH`]. Tables, headings, comments and code
/// stay as they are.
fn filled(page: &str) -> String {
    fn fill(paragraph: &mut String, out: &mut String) {
        let (first, rest) = match paragraph.as_bytes() {
            [b'-', b' ', ..] => ("- ", "  "),
            [b'>', b' ', ..] => ("> ", "> "),
            _ => ("", ""),
        };
        for (n, line) in wrap(&paragraph[first.len()..], WIDTH - first.len()).iter().enumerate() {
            let _ = writeln!(out, "{}{line}", if n == 0 { first } else { rest });
        }
        paragraph.clear();
    }
    let (mut out, mut paragraph, mut is_code) = (String::new(), String::new(), false);
    for line in page.lines() {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.is_empty() && !line.starts_with(['|', '#', '<', ' ']);
        if !is_prose || line.starts_with("- ") || line.starts_with("> ") {
            fill(&mut paragraph, &mut out);
        }
        if is_prose {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    fill(&mut paragraph, &mut out);
    out
}

const MADE: &str = "<!-- Made by the program: UPDATE=1 cargo test -p rdmascope --test reports -->\n";

/// A sample that shows a rule.
struct Shown {
    sample: String,
    finding: Value,
}

/// The first occurrence of each rule in the samples.
fn shown() -> BTreeMap<String, Shown> {
    let mut captures = Vec::new();
    for folder in
        fs::read_dir(samples()).expect("samples").flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
    {
        let files = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        captures.extend(files.filter(|path| path.extension().is_some_and(|e| e == "pcap" || e == "pcapng")));
    }
    // recorded conversations before crafted ones
    captures.sort_by_key(|path| (path.parent().is_some_and(|p| p.ends_with("probes")), path.clone()));
    let mut found = BTreeMap::new();
    for capture in captures {
        let name = capture.strip_prefix(root()).expect("below the workspace").to_str().expect("a name").to_owned();
        let keys = capture.with_file_name("keys.txt");
        let mut arguments = vec!["analyze", "--format", "json", &name];
        if keys.is_file() {
            arguments.extend(["--keys", keys.to_str().expect("a name")]);
        }
        let report: Value = serde_json::from_str(&ask(&arguments)).expect("JSON");
        for finding in report["findings"].as_array().expect("findings") {
            let id = finding["id"].as_str().expect("an id").to_owned();
            found.entry(id).or_insert_with(|| Shown { sample: name.clone(), finding: finding.clone() });
        }
    }
    found
}

/// The page of a rule.
fn finding_page(rule: Rule, shown: Option<&Shown>) -> String {
    let row = rule.row();
    let mut page = format!("{MADE}# {}\n", row.id);
    let _ = writeln!(page, "{}\n", md(row.title));
    let _ = writeln!(
        page,
        "| | |\n| --- | --- |\n| severity | **{}**, unless the circumstances change it |",
        row.severity.name()
    );
    let _ = writeln!(page, "| about | {} |\n| source | {} |\n", md(row.group.title()), md(row.spec));
    let _ = writeln!(page, "## The rule\n{}\n\n## Usual causes", md(row.says));
    for cause in row.causes {
        let _ = writeln!(page, "- {}", md(cause));
    }
    let _ = writeln!(page, "\n## What to do\n{}\n", md(row.cure));
    if !row.documented.is_empty() {
        let list: Vec<String> = row.documented.iter().map(|document| md(document)).collect();
        let _ = writeln!(page, "As documented in: {}.\n", list.join("; "));
    }
    if !row.hits.product.is_empty() {
        let _ = writeln!(page, "## Affected versions\n{}\n", md(&row.hits.to_string()));
    }
    page.push_str("## How sure\n");
    match shown {
        Some(Shown { sample, finding }) => {
            let word = match finding["certainty"].as_str() {
                Some("certain") => "certain",
                Some("guess") => "a guess",
                _ => "likely",
            };
            let _ = writeln!(
                page,
                "Each occurrence says how sure it is ([what the words mean](README.md#how-sure)). In the sample below \
                    it is {word}.\n"
            );
            let folder = sample.rsplit_once('/').map_or("", |(folder, _)| folder);
            let _ = writeln!(page, "## In a sample\n[{folder}](../../{folder}), {}:\n", frames(finding));
            let _ = writeln!(page, "> {}\n", md(finding["text"].as_str().unwrap_or_default()));
            let first = finding["frame"].as_u64().unwrap_or(1);
            let _ = writeln!(page, "```sh\nrdmascope dissect {sample} -Y 'frame.number == {first}' -V\n```");
        }
        None => {
            page.push_str("Each occurrence says how sure it is ([what the words mean](README.md#how-sure)).");
            match broken(row.id) {
                Some(text) => page.push_str(&text),
                None => page.push_str("\n\n## In a sample\nNo shipped capture has it.\n"),
            }
        }
    }
    page
}

/// A made conversation that breaks a rule, for a page without a sample: what is found in it, and the frames.
fn broken(id: &str) -> Option<String> {
    let all =
        fs::read_to_string(root().join("analyzer/tests/broken.txt")).expect("the findings of broken conversations");
    let mut lines = all.lines().skip_while(|line| line.split('\t').next() != Some(id));
    let [_, certainty, frames, text] = lines.next()?.split('\t').collect::<Vec<_>>()[..] else { panic!("{id}") };
    let word = match certainty {
        "certain" => "certain",
        "guess" => "a guess",
        _ => "likely",
    };
    let of = if frames.contains([',', '…']) { "frames" } else { "frame" };
    let mut page = format!(
        " In the conversation below it is {word}.\n\n## In a conversation\nNo shipped capture has it. \
        [rules.rs](../../analyzer/tests/rules.rs) makes a conversation that breaks the rule, {of} {frames}, and the \
        same one that keeps it:\n\n\
        > {}\n",
        md(text)
    );
    let shown: Vec<[&str; 3]> = lines
        .map_while(|line| line.strip_prefix('\t'))
        .map(|line| {
            let mut cells = line.splitn(3, '\t');
            std::array::from_fn(|_| cells.next().unwrap_or_default())
        })
        .collect();
    if !shown.is_empty() {
        let widths = [0, 1].map(|column| shown.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
        page.push_str("\n```text\n");
        for [frame, protocol, info] in shown {
            page.push_str(format!("{frame:>0$}  {protocol:1$}  {info}", widths[0], widths[1]).trim_end());
            page.push('\n');
        }
        page.push_str("```\n");
    }
    Some(page)
}

fn frames(finding: &Value) -> String {
    let list: Vec<u64> = finding["frames"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let more = if list.len() > 5 || finding["frames_omitted"].as_u64().is_some_and(|n| n > 0) { " …" } else { "" };
    let first: Vec<String> = list.iter().take(5).map(u64::to_string).collect();
    format!("frame{} {}{more}", if list.len() == 1 { "" } else { "s" }, first.join(", "))
}

/// All rules under their groups.
fn findings_index(shown: &BTreeMap<String, Shown>) -> String {
    let mut page = format!(
        "{MADE}# Findings\nrdmascope checks captures against these {} rules. `rdmascope explain ID` prints the same as \
            the \
        page.\n\n## How sure\n| a finding is | when |\n| --- | --- |\n| certain | the frames that it names prove it, \
        even if the \
        capture missed others |\n| likely | it is right if the capture is complete; a frame that the capture missed \
        could explain it |\n| a guess | the \
        traffic suggests it, but does not prove it |\n",
        Rule::ALL.len()
    );
    for &group in Group::ALL {
        let _ = write!(
            page,
            "\n## {}\n| finding | severity | what happened | in a sample |\n| --- | --- | --- | --- |\n",
            group.title()
        );
        for rule in Rule::ALL.iter().filter(|rule| rule.row().group == group) {
            let row = rule.row();
            let seen = if shown.contains_key(row.id) { "yes" } else { "" };
            let _ =
                writeln!(page, "| [{0}]({0}.md) | {1} | {2} | {seen} |", row.id, row.severity.name(), md(row.title));
        }
    }
    page
}

/// `--help` of every command and of its subcommands.
fn commands_page() -> String {
    fn add(words: &[&str], page: &mut String, level: usize) {
        let help = ask(&[words, &["--help"]].concat());
        let title = [&["rdmascope"], words].concat().join(" ");
        let _ = write!(page, "\n{} {title}\n```text\n{}\n```\n", "#".repeat(level), help.trim_end());
        let verbs = help
            .split("\nCommands:\n")
            .nth(1)
            .into_iter()
            .flat_map(|rest| rest.lines().take_while(|l| l.starts_with("  ")));
        let verbs: Vec<String> = verbs
            .filter(|l| l.as_bytes().get(2).is_some_and(u8::is_ascii_lowercase))
            .filter_map(|l| l.split_whitespace().next().map(str::to_owned))
            .collect();
        for verb in verbs.iter().filter(|verb| *verb != "help") {
            add(&[words, &[verb]].concat(), page, level + 1);
        }
    }
    let mut page = format!(
        "{MADE}# Commands\nThe output of `--help` for every command. `rdmascope man DIR` writes the same as manual \
            pages.\n"
    );
    add(&[], &mut page, 2);
    page
}

/// A page of fields for each protocol, and their index.
fn field_pages(into: &mut BTreeMap<PathBuf, String>) {
    let list = ask(&["fields"]);
    let mut protocols: BTreeMap<&str, (&str, Vec<Vec<&str>>)> = BTreeMap::new();
    for line in list.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[..] {
            ["P", label, name, ..] => protocols.entry(name).or_default().0 = label,
            ["F", _, _, _, protocol, ..] => protocols.entry(protocol).or_default().1.push(columns),
            _ => panic!("rdmascope fields: {line}"),
        }
    }
    let total: usize = protocols.values().map(|(_, fields)| fields.len()).sum();
    let mut index = format!(
        "{MADE}# Fields\nThe {total} fields for display filters, `-e` and columns of the terminal UI. If Wireshark has \
            a field, its name and \
         kind are Wireshark's; fields that begin with `rdmascope.` are our own. `rdmascope fields PREFIX` lists \
         them.\n\n\
         | protocol | | fields |\n| --- | --- | --- |\n"
    );
    for (name, (label, fields)) in protocols {
        let _ = writeln!(index, "| [{}]({name}.md) | {} | {} |", code(name), md(label), fields.len());
        let mut page = format!(
            "{MADE}# {}\n{}\n\n| field | label | kind | section |\n| --- | --- | --- | --- |\n",
            md(name),
            md(label)
        );
        for field in fields {
            let at = |i: usize| field.get(i).copied().unwrap_or_default();
            let _ = writeln!(page, "| {} | {} | {} | {} |", code(at(2)), md(at(1)), at(3), md(at(7)));
        }
        into.insert(format!("reference/fields/{name}.md").into(), page);
    }
    into.insert("reference/fields/README.md".into(), index);
}

fn keys_page() -> String {
    let mut page = format!(
        "{MADE}# Keys and configuration\nThe file `$XDG_CONFIG_HOME/rdmascope/config.toml` \
            (`~/.config/rdmascope/config.toml`) configures the \
        terminal UI, and with `docs-url` and `ignore` reports:\n\n| key of the file | values |\n| --- | --- |\n"
    );
    for (name, values) in rdmascope_screens::CONFIGURATION {
        let _ = writeln!(page, "| {} | {} |", code(name), md(values));
    }
    page.push_str(
        "\nAn unknown key or action is reported as an error with its line.\n\n```toml\ntheme = \"light\"\ntime = \
            \"clock\"\n\
         columns = [\"smb2.msg_id\"]\ndocs-url = \"https://host/rdmascope\"\nignore = [\"RC-CNP\", \
         \"SMB2-ERROR:server\"]\n[keys]\nquit = [\"q\", \"F10\"]\n```\n",
    );
    let mut heading = "";
    for key in rdmascope_screens::keys() {
        if key.heading != heading {
            heading = key.heading;
            let _ = write!(page, "\n## {heading}\n| key | action | what it does |\n| --- | --- | --- |\n");
        }
        let names: Vec<String> = key.keys.iter().map(|name| code(name)).collect();
        let _ = writeln!(page, "| {} | {} | {} |", names.join(" "), code(key.name), md(key.help));
    }
    page
}

fn metrics_page() -> String {
    let mut page = format!(
        "{MADE}# Metrics\nWhile `analyze -i` or `capture -i` runs, `--metrics ADDR` serves these metrics at \
            `http://ADDR/metrics`, in \
        the text format of Prometheus. A dashboard for Grafana is in \
        [plugins/metrics](../../plugins/metrics/README.md).\n\n| metric | kind | what it is \
        |\n| --- | --- | --- |\n"
    );
    for (name, kind, help) in rdmascope_plugins::metrics::METRICS {
        let _ = writeln!(page, "| {} | {kind} | {} |", code(name), md(help));
    }
    page
}

/// The tables of `plugins/parquet/README.md`, which a test compares with the code of the export.
fn parquet_page() -> String {
    let readme = fs::read_to_string(root().join("plugins/parquet/README.md")).expect("the README of the tables");
    let tables = readme.split("\n## Tables\n").nth(1).expect("the tables");
    format!(
        "{MADE}# Parquet tables\n`rdmascope export parquet FILE DIR` writes these tables, with one partition per \
            capture. Join tables \
        by `capture` and `connection`. How to query them with DuckDB, Polars or Spark: \
        [plugins/parquet](../../plugins/parquet/README.md).\n\n{}\n",
        tables.trim_end().replace("\n### ", "\n## ").replacen("### ", "## ", 1)
    )
}

/// The JSON outputs, a table for each object of their schemas.
fn json_page() -> String {
    fn kind(schema: &Value) -> String {
        if let Some(any) = schema["anyOf"].as_array() {
            return any.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().filter_map(Value::as_str).map(code).collect::<Vec<_>>().join(", ");
        }
        match schema["type"].as_str() {
            Some("array") => format!(
                "array of {}",
                if schema["items"].is_object() { kind(&schema["items"]) } else { "values".into() }
            ),
            Some(name) => name.to_owned(),
            None => "any".to_owned(),
        }
    }
    fn rows(schema: &Value, path: &str, always: bool, page: &mut String) {
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let is_always = always && schema["required"].as_array().is_some_and(|r| r.iter().any(|name| name == key));
            let text = value["description"].as_str().unwrap_or_default();
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} |",
                code(&path),
                kind(value),
                if is_always { "always" } else { "" },
                md(text)
            );
            below(value, &path, is_always, page);
        }
    }
    fn below(schema: &Value, path: &str, always: bool, page: &mut String) {
        rows(schema, path, always, page);
        for one in schema["anyOf"].as_array().into_iter().flatten() {
            below(one, path, always, page);
        }
        if schema["items"].is_object() {
            below(&schema["items"], &format!("{path}[]"), always, page);
        }
    }
    let mut page = format!(
        "{MADE}# JSON\nThe interface for programs. These tables are made from the JSON Schemas (2020-12) that \
            `rdmascope schema NAME` prints. \
        Keys are added, never removed; if one changes its meaning, the number `schema` in the output increases.\n"
    );
    for line in ask(&["schema"]).lines() {
        let (name, what) = line.split_once(' ').expect("a name and a command");
        let schema: Value = serde_json::from_str(&ask(&["schema", name])).expect("JSON");
        let _ = write!(
            page,
            "\n## {name}\n`{}`\n\n| key | type | | what it is |\n| --- | --- | --- | --- |\n",
            what.trim()
        );
        below(&schema, "", true, &mut page);
    }
    page
}

/// All generated pages, by their path in `docs`.
fn made() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    let shown = shown();
    for &rule in Rule::ALL {
        pages.insert(format!("findings/{}.md", rule.id()).into(), finding_page(rule, shown.get(rule.id())));
    }
    pages.insert("findings/README.md".into(), findings_index(&shown));
    field_pages(&mut pages);
    pages.insert("reference/keys.md".into(), keys_page());
    pages.insert("reference/metrics.md".into(), metrics_page());
    pages.insert("reference/json.md".into(), json_page());
    pages.insert("reference/parquet.md".into(), parquet_page());
    // features add flags; the page has those of the default build
    if !cfg!(any(feature = "kerberos", feature = "libpcap")) {
        pages.insert("reference/commands.md".into(), commands_page());
    }
    pages.values_mut().for_each(|page| *page = filled(page));
    pages
}

fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(pages_below(&path));
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn pages_that_the_program_makes_are_fresh() {
    let docs = root().join("docs");
    let pages = made();
    let mut stale = BTreeSet::new();
    for (path, page) in &pages {
        let path = docs.join(path);
        if fs::read_to_string(&path).ok().as_ref() == Some(page) {
            continue;
        }
        if is_update() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, page).expect("the page is written");
        } else {
            stale.insert(path);
        }
    }
    // pages that exist but are no longer generated
    for folder in ["findings", "reference/fields"] {
        for path in pages_below(&docs.join(folder)) {
            if !pages.contains_key(path.strip_prefix(&docs).expect("below docs")) {
                if is_update() {
                    fs::remove_file(&path).expect("the page goes");
                } else {
                    stale.insert(path);
                }
            }
        }
    }
    assert!(stale.is_empty(), "{RENEW}: {stale:#?}");
}

/// The table of contents: a part written by hand, then a list of findings and fields.
#[test]
fn the_table_of_contents_has_every_page() {
    const MARK: &str = "# Every finding\n";
    let docs = root().join("docs");
    let path = docs.join("SUMMARY.md");
    let summary = fs::read_to_string(&path).unwrap_or_default();
    let by_hand = summary.split(MARK).next().unwrap_or_default();
    let mut made = format!("{by_hand}{MARK}- [All findings](findings/README.md)\n");
    for &group in Group::ALL {
        for rule in Rule::ALL.iter().filter(|rule| rule.row().group == group) {
            let _ = writeln!(made, "  - [{0}](findings/{0}.md)", rule.id());
        }
    }
    made.push_str("\n# Every field\n- [All fields](reference/fields/README.md)\n");
    let fields = ask(&["fields"]);
    let protocol = |line: &'static str, at: usize| {
        move |l: &str| l.strip_prefix(line).and_then(|l| l.split('\t').nth(at)).map(str::to_owned)
    };
    let (of_rows, of_fields) = (protocol("P\t", 1), protocol("F\t", 3));
    for name in fields.lines().filter_map(|l| of_rows(l).or_else(|| of_fields(l))).collect::<BTreeSet<String>>() {
        let _ = writeln!(made, "  - [{}](reference/fields/{name}.md)", md(&name));
    }
    let listed = |page: &Path| made.contains(&format!("({})", page.strip_prefix(&docs).expect("below docs").display()));
    let missing: Vec<PathBuf> = pages_below(&docs).into_iter().filter(|page| *page != path && !listed(page)).collect();
    assert!(missing.is_empty(), "these pages have no line in docs/SUMMARY.md: {missing:?}");
    if is_update() {
        fs::write(&path, made).expect("the table of contents is written");
    } else {
        assert!(made == summary, "docs/SUMMARY.md: {RENEW}");
    }
}

/// The pages that are written by hand: those of the site, and the README.
fn by_hand() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut pages: Vec<PathBuf> = pages_below(&docs)
        .into_iter()
        .filter(|page| !page.starts_with(docs.join("findings")) && !page.starts_with(docs.join("reference")))
        .collect();
    pages.push(root().join("README.md"));
    pages
}

/// A page with the outputs of its commands as they are now.
fn with_outputs(page: &str) -> String {
    const FENCE: &str = "```console\n";
    let mut out = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(FENCE) {
        let from = at + FENCE.len();
        let to = from + rest[from..].find("\n```").expect("a fence ends") + 1;
        out.push_str(&rest[..from]);
        for command in rest[from..to].lines().filter_map(|line| line.strip_prefix("$ ")) {
            let program = Path::new(env!("CARGO_BIN_EXE_rdmascope")).parent().expect("a folder");
            let search = std::env::var("PATH").unwrap_or_default();
            let output = Command::new("sh")
                .args(["-c", &format!("{{ {command}\n}} 2>&1")])
                .current_dir(root())
                .env("PATH", format!("{}:{search}", program.display()))
                .env_remove("NO_COLOR")
                .env_remove("COLUMNS")
                .output()
                .expect("sh runs");
            let printed = text(&output);
            assert!(!printed.lines().any(|line| line.starts_with("rdmascope: ")), "{command}: {printed}");
            let _ = write!(out, "$ {command}\n{printed}");
        }
        rest = &rest[to..];
    }
    out + rest
}

#[test]
fn outputs_in_pages_are_what_the_commands_print() {
    let mut stale = Vec::new();
    let mut commands = 0;
    for path in by_hand() {
        let page = fs::read_to_string(&path).expect("a page");
        commands += page.matches("\n$ ").count();
        let now = with_outputs(&page);
        if now != page {
            if is_update() {
                fs::write(&path, now).expect("the page is written");
            } else {
                stale.push(path);
            }
        }
    }
    assert!(stale.is_empty(), "{RENEW}: {stale:#?}");
    assert!(commands >= 5, "{commands} commands were run");
}

/// Anchor of a heading in links, as forges and mdBook form it.
fn anchor(heading: &str) -> String {
    let plain = heading.replace(['`', '*', '\\'], "");
    plain
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Lines outside of fences.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = pages_below(&root().join("docs"));
    let folders = [
        "",
        "analyzer",
        "benches",
        "capture",
        "capture/verbs",
        "dissector",
        "fuzz",
        "interop",
        "packaging",
        "plugins",
        "plugins/metrics",
    ];
    let more = ["compare", "plugins/parquet", "plugins/spark", "replay", "samples", "share", "sim", "tui"];
    for folder in folders.into_iter().chain(more) {
        let here = fs::read_dir(root().join(folder)).into_iter().flatten().flatten().map(|entry| entry.path());
        pages.extend(here.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages {
        let folder = page.parent().expect("a folder");
        let whole = fs::read_to_string(&page).expect("a page");
        for line in prose(&whole) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let (file, part) = target.split_once('#').map_or((target, None), |(file, part)| (file, Some(part)));
                if file.contains("://") || file.starts_with("mailto:") {
                    continue;
                }
                links += 1;
                let path = if file.is_empty() { page.clone() } else { folder.join(file) };
                let has_part = part.is_none_or(|part| {
                    fs::read_to_string(&path).is_ok_and(|text| {
                        prose(&text).any(|l| l.starts_with('#') && anchor(l.trim_start_matches('#')) == part)
                    })
                });
                if !path.exists() || !has_part {
                    broken.push(format!("{}: {target}", page.display()));
                }
            }
        }
    }
    // pages may be about to be written
    assert!(broken.is_empty() || is_update(), "{broken:#?}");
    assert!(links > 300, "{links} links were looked at");
}

/// The README is for newcomers.
#[test]
fn the_readme_is_short_and_its_second_command_is_what_ci_runs() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let words = readme.split_whitespace().count();
    assert!(words <= 600, "the README has {words} words; 600 at most");
    let two = readme.split("## Two commands\n").nth(1).expect("two commands").split("```").nth(1).expect("a fence");
    let commands: Vec<&str> = two.lines().skip(1).collect();
    let [show, test] = commands[..] else { panic!("two commands, not {commands:?}") };
    let ci = fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    assert!(
        ci.lines().any(|line| line.split_once("CI=1 ").is_some_and(|(_, command)| command.trim() == test)),
        "{test}"
    );
    let arguments =
        show.strip_prefix("cargo run --release -p rdmascope -- ").expect("the first command runs the program");
    ask(&arguments.split_whitespace().collect::<Vec<_>>());
}
