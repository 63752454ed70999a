//! A plugin for Wireshark in one file of Lua: rules, fields and names from our tables, then the runtime of
//! `plugins/wireshark/`, whose files are put behind one another. It runs in every Wireshark from 4.0 on.
//!
//! ```text
//!  rules, fields, NTSTATUS names ─▶ R = { … }
//!  bytes.lua  numbers              exchange.lua  SMB2, RPC-over-RDMA, remote memory      show.lua  Wireshark's side
//!  smbd.lua   the credit ledger    flow.lua      PSN order, TCP, MPA, DDP                connection.lua
//! ```
//!
//! The runtime judges the rules of messages and of the wire at the frame that breaks them; [`judged`] says which. Rules over whole
//! connections or over many exchanges (latencies, leaks, statistics), and checksums, need the report, or an annotated capture.

use rdmascope_analyzer::finding::{Rule, explain};
use rdmascope_dissector::field::{Base, Def, FieldDef, Kind, Privacy, Values, id_of};
use rdmascope_dissector::registry::{DECLARED, Registry};
use rdmascope_dissector::wire::smb2::NtStatus;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Name of the file.
pub const FILE: &str = "rdmascope.lua";

/// The runtime, in its order.
const RUNTIME: [(&str, &str); 6] = [
    ("bytes.lua", include_str!("../wireshark/bytes.lua")),
    ("smbd.lua", include_str!("../wireshark/smbd.lua")),
    ("exchange.lua", include_str!("../wireshark/exchange.lua")),
    ("flow.lua", include_str!("../wireshark/flow.lua")),
    ("connection.lua", include_str!("../wireshark/connection.lua")),
    ("show.lua", include_str!("../wireshark/show.lua")),
];

/// Fields of other protocols that the plugin adds where Wireshark leaves bytes undecoded, by the beginning of their names.
const ADDED: [&str; 10] = [
    "smb_direct",
    "rdmascope.smb_direct",
    "rdmascope.smb2.rdma_transform",
    "rdmascope.smb2.rdma_crypto_transform",
    "rdmascope.smb2.rdma_v1_descriptor",
    "smb2.buffer_descriptor.",
    "iwarp_mpa.enhanced",
    "iwarp_mpa.legacy",
    "rdmascope.iwarp_mpa.enhanced",
    "rdmascope.iwarp_mpa.legacy",
];

/// Fields that only two passes over a capture, or only Wireshark's ways, make necessary.
static ONLY_THERE: [FieldDef; 2] = [
    extra("rdmascope.exchange.reply", "Answered in frame", Kind::FrameNum, Base::None),
    extra("rdmascope.cnp", "Congestion notification for queue pair", Kind::U32, Base::Hex),
];

const fn extra(name: &'static str, label: &'static str, kind: Kind, base: Base) -> FieldDef {
    FieldDef { name, id: id_of(name), label, kind, base, mask: 0, width: 0, values: &[], spec: "rdmascope", privacy: Privacy::Keep }
}

/// The plugin.
pub fn lua() -> String {
    let mut out = format!(
        "-- rdmascope {}: storage over RDMA in Wireshark 4.0 and later. Made by `rdmascope export wireshark`: do not edit.\n\
         -- Lua 5.2 to 5.4. Put it into Wireshark's plugin folder, or run `tshark -X lua_script:rdmascope.lua`.\n\n\
         local R = {{ version = \"{0}\", credits_plausible = 65535, read_budget = 1114112 }}\n\n",
        env!("CARGO_PKG_VERSION")
    );
    rules(&mut out);
    fields(&mut out);
    out.push_str("R.statuses = ");
    values(&mut out, NtStatus::VALUES, |value| value != 0);
    out.push_str("\n\n");
    for (name, text) in RUNTIME {
        // a local of its own scope: Lua allows two hundred of them in one
        let _ = writeln!(out, "do -- {name}\n{}\nend\n", text.trim_end());
    }
    out
}

/// The rules that the plugin judges: those that its runtime names.
pub fn judged() -> Vec<Rule> {
    let named = |rule: &Rule| RUNTIME.iter().any(|(_, text)| text.contains(&format!("\"{}\"", rule.id())));
    Rule::ALL.iter().copied().filter(named).collect()
}

fn rules(out: &mut String) {
    out.push_str("R.rules = {\n");
    for rule in Rule::ALL {
        let row = rule.row();
        let [title, spec, text] = [row.title, row.spec, &explain(*rule)].map(quoted);
        let _ = writeln!(
            out,
            "    [\"{}\"] = {{ severity = \"{}\", title = {title}, spec = {spec}, explain = {text} }},",
            row.id,
            row.severity.name()
        );
    }
    out.push_str("}\n\n");
}

fn fields(out: &mut String) {
    let registry = Registry::of(DECLARED.iter().copied().chain([rdmascope_analyzer::connection::FIELDS]));
    let ours = rdmascope_analyzer::connection::FIELDS;
    let added = |def: &Def| ADDED.iter().any(|prefix| def.name.starts_with(prefix)) || ours.contains(def);
    out.push_str("R.fields = {\n");
    for def in registry.all().iter().copied().filter(added).chain(ONLY_THERE.iter()) {
        let _ = write!(
            out,
            "    {{ name = \"{}\", label = {}, kind = \"{}\", base = \"{}\"",
            def.name,
            quoted(def.label),
            def.kind.wireshark(),
            def.base.wireshark()
        );
        if def.kind == Kind::Bool {
            let _ = write!(out, ", width = {}", def.width.max(8));
        }
        if def.mask != 0 {
            let _ = write!(out, ", mask = {:#x}", def.mask);
        }
        if def.name.ends_with(".reply") {
            out.push_str(", answer = true");
        }
        if !def.values.is_empty() {
            out.push_str(", values = ");
            values(out, def.values, |_| true);
        }
        out.push_str(" },\n");
    }
    out.push_str("}\n\n");
}

fn values(out: &mut String, table: Values, wanted: impl Fn(u64) -> bool) {
    out.push('{');
    for (value, name) in table.iter().filter(|(value, _)| wanted(*value)) {
        let _ = write!(out, " [{value:#x}] = {},", quoted(name));
    }
    out.push_str(" }");
}

/// A string of Lua.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Why the plugin is not installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// Nobody said where, and nothing on this machine does.
    #[error("Wireshark's folder for your own files is not known here: name it with --dir (Wireshark shows it under Help, About, Folders)")]
    NoFolder,
    /// Something in or about a folder.
    #[error("{path}: {error}")]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The plugin was written here.
    Plugin(PathBuf),
    /// A plugin of ours that was already there was replaced.
    Replaced(PathBuf),
    /// The program can be found here as a source of captures.
    Extcap(PathBuf),
}

/// What says on this machine where Wireshark keeps a user's files: environment variables.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `WIRESHARK_CONFIG_DIR`
    pub configured: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`
    pub xdg: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
    /// `APPDATA`
    pub appdata: Option<PathBuf>,
}

impl Places {
    /// What the environment says.
    pub fn of_environment() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self { configured: path("WIRESHARK_CONFIG_DIR"), xdg: path("XDG_CONFIG_HOME"), home: path("HOME"), appdata: path("APPDATA") }
    }

    /// The folder of plugins, and that of capture sources. Wireshark looks for the former in `~/.local/lib/wireshark/plugins` on
    /// Unix, for the latter in `extcap` beside them (from 4.4 on) and in its configuration folder.
    fn folders(&self) -> Option<(PathBuf, Vec<PathBuf>)> {
        if let Some(folder) = &self.configured {
            return Some((folder.join("plugins"), vec![folder.join("extcap")]));
        }
        if let (true, Some(appdata)) = (cfg!(windows), &self.appdata) {
            let folder = appdata.join("Wireshark");
            return Some((folder.join("plugins"), vec![folder.join("extcap")]));
        }
        let home = self.home.as_ref()?;
        let library = home.join(".local/lib/wireshark");
        let configuration = self.xdg.clone().unwrap_or_else(|| home.join(".config")).join("wireshark");
        Some((library.join("plugins"), vec![library.join("extcap"), configuration.join("extcap")]))
    }
}

/// Puts the plugin, and `program` as a source of captures, where the user's Wireshark finds them. `folder` is Wireshark's folder for
/// the user's own files, where it is known better.
///
/// # Errors
/// No folder is known, or one cannot be written to.
pub fn install(places: &Places, folder: Option<&Path>, program: &Path) -> Result<Vec<Done>, InstallError> {
    let (plugins, sources) = match folder {
        Some(folder) => (folder.join("plugins"), vec![folder.join("extcap")]),
        None => places.folders().ok_or(InstallError::NoFolder)?,
    };
    let mut done = Vec::new();
    let make = |folder: &Path| std::fs::create_dir_all(folder).map_err(|error| InstallError::Write { path: folder.to_owned(), error });
    make(&plugins)?;
    let path = plugins.join(FILE);
    let replaced = path.exists();
    std::fs::write(&path, lua()).map_err(|error| InstallError::Write { path: path.clone(), error })?;
    done.push(if replaced { Done::Replaced(path) } else { Done::Plugin(path) });
    for folder in sources {
        make(&folder)?;
        let path = folder.join(if cfg!(windows) { "rdmascope-extcap.exe" } else { "rdmascope-extcap" });
        link(program, &path).map_err(|error| InstallError::Write { path: path.clone(), error })?;
        done.push(Done::Extcap(path));
    }
    Ok(done)
}

#[cfg(unix)]
fn link(program: &Path, path: &Path) -> io::Result<()> {
    // only what is a link is ours to replace
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_symlink() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is there, and is not a link of rdmascope's making")),
        Err(_) => {}
    }
    std::os::unix::fs::symlink(program, path)
}

#[cfg(not(unix))]
fn link(program: &Path, path: &Path) -> io::Result<()> {
    std::fs::copy(program, path).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_rule_and_field_that_the_runtime_names_is_there() {
        let registry = Registry::of(DECLARED.iter().copied().chain([rdmascope_analyzer::connection::FIELDS]));
        let known: BTreeSet<&str> = registry.all().iter().chain(&ONLY_THERE.iter().collect::<Vec<_>>()).map(|d| d.name).collect();
        for (file, text) in RUNTIME {
            for word in text.split('"').skip(1).step_by(2) {
                let is_rule =
                    word.contains('-') && word.len() > 5 && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'-');
                assert!(!is_rule || Rule::from_id(word).is_some(), "{file} names the rule {word}");
            }
            for piece in text.split("field[\"").skip(1).chain(text.split("add(t, \"").skip(1)).chain(text.split("add(f, \"").skip(1)) {
                let name = piece.split('"').next().unwrap_or("");
                assert!(known.contains(name), "{file} names the field {name}");
            }
        }
        assert!(judged().len() > 50, "{} rules", judged().len());
    }

    #[test]
    fn the_readme_lists_the_rules_that_are_left_out() {
        let readme = include_str!("../README.md");
        let (before, list) = readme.split_once("## What the plugin leaves out").unwrap();
        let judged = judged();
        let listed: BTreeSet<&str> = list.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
        for rule in Rule::ALL {
            assert_eq!(listed.contains(rule.id()), !judged.contains(rule), "{}", rule.id());
        }
        assert!(!before.is_empty());
    }

    #[test]
    fn strings_of_lua_end_where_they_should() {
        assert_eq!(quoted("a \"b\" \\ c\nd"), "\"a \\\"b\\\" \\\\ c\\nd\"");
    }

    #[cfg(unix)]
    #[test]
    fn it_is_installed_where_wireshark_looks_and_nothing_else_is_touched() {
        let home = tempfile::tempdir().unwrap();
        let places = Places { home: Some(home.path().to_owned()), ..Places::default() };
        let program = Path::new("/usr/bin/rdmascope");
        let plugin = home.path().join(".local/lib/wireshark/plugins/rdmascope.lua");
        let sources = [
            home.path().join(".local/lib/wireshark/extcap/rdmascope-extcap"),
            home.path().join(".config/wireshark/extcap/rdmascope-extcap"),
        ];
        let extcap = sources.clone().map(Done::Extcap);
        let expected = |first| [vec![first], extcap.to_vec()].concat();
        assert_eq!(install(&places, None, program).unwrap(), expected(Done::Plugin(plugin.clone())));
        assert_eq!(install(&places, None, program).unwrap(), expected(Done::Replaced(plugin.clone())));
        assert_eq!(std::fs::read_to_string(&plugin).unwrap(), lua());
        assert_eq!(std::fs::read_link(&sources[0]).unwrap(), program);
        std::fs::remove_file(&sources[0]).unwrap();
        std::fs::write(&sources[0], "mine").unwrap();
        assert!(matches!(install(&places, None, program), Err(InstallError::Write { path, .. }) if path == sources[0]));
        assert_eq!(std::fs::read_to_string(&sources[0]).unwrap(), "mine");
        assert!(matches!(install(&Places::default(), None, program), Err(InstallError::NoFolder)));
    }
}
